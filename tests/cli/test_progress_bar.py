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
    assert capsys.readouterr().err == "prompt\\x1b (25%, about 18 s left)\nprompt\\x1b (100%)\n"
