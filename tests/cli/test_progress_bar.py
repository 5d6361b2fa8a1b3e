"""Progress of one computation, without a terminal."""

from types import SimpleNamespace

import pytest

from lengthwise.cli.progress_bar import progress


def test_lines_are_occasional_and_have_the_remaining_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = iter([0.0, 1.0, 6.0, 7.0, 12.0])
    monkeypatch.setattr("lengthwise.cli.progress_bar.time", SimpleNamespace(perf_counter=lambda: next(times)))
    with progress() as show:
        for done in (0, 5, 6, 20):
            show("prompt\x1b", done, 20)
    assert capsys.readouterr().err == "prompt\\x1b (25%, about 15 s left)\nprompt\\x1b (100%)\n"


def test_the_remaining_time_is_that_of_the_running_part(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The time of earlier parts does not count, and what an earlier call had completed does not either."""
    times = iter([0.0, 0.0, 100.0, 100.0, 110.0, 120.0, 130.0])
    monkeypatch.setattr("lengthwise.cli.progress_bar.time", SimpleNamespace(perf_counter=lambda: next(times)))
    with progress() as show:
        for text, done in (("one", 0), ("one", 10), ("two", 0), ("two", 5), ("three", 4), ("three", 6)):
            show(text, done, 10)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["one (100%)", "two (50%, about 10 s left)", "three (40%)", "three (60%, about 20 s left)"]
