"""Progress without a terminal."""

import pytest

from lengthwise.cli import progress as module
from lengthwise.cli.progress import Bars, progress


class Clock:
    """A clock that a test sets, in place of the module `time`."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(module, "time", clock := Clock())
    return clock


def test_lines_are_occasional_and_have_the_remaining_time(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as show:
        for clock.now, done in ((0, 0), (11, 5), (12, 6), (40, 20)):
            show("prompt\x1b", done, 20)
    assert capsys.readouterr().err == "prompt\\x1b: 25%, about 33 s left\nprompt\\x1b: 100%\n"


def test_the_remaining_time_is_that_of_the_running_part(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """The time of earlier parts does not count, and what an earlier call had completed does not either."""
    with progress() as show:
        for clock.now, text, done in (
            (0, "one", 0), (100, "one", 10), (100, "two", 0), (110, "two", 5), (120, "three", 4), (130, "three", 6)
        ):  # fmt: skip
            show(text, done, 10)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["one: 100%", "two: 50%, about 10 s left", "three: 40%", "three: 60%, about 20 s left"]


def test_bars_have_a_row_for_each_key() -> None:
    shown = Bars()
    shown.show("a", "first\x1b", 1, 4, "25%")
    shown.show("b", "second", 0, None, "starts")
    shown.show("a", "first", 2, 4, "50%")
    shown.remove("b")
    (task,) = shown.bars.tasks
    assert (task.description, task.completed, task.total, task.fields["status"]) == ("first", 2, 4, "50%")
