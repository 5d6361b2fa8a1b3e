"""Events of worker processes as lines of text."""

import pytest

from lengthwise.studies.events import Event, Failed, Note
from lengthwise.studies.worker_process import EVENTS, line_of
from lengthwise.validation import from_json


@pytest.mark.parametrize(
    ("event", "arrives"),
    [
        (Failed(key="a" * 16, error="naïve, 数, \n", permanent=True), None),
        (Note(text="no file ode-\udcff.txt"), Note(text="no file ode-?.txt")),
    ],
    ids=["any text", "a file name that is not UTF-8"],
)
def test_an_event_arrives_as_one_line(event: Event, arrives: Event | None) -> None:
    line = line_of(event)
    name, _, text = line.partition(" ")
    assert "\n" not in line
    assert from_json(EVENTS[name], text.encode()) == (arrives or event)
