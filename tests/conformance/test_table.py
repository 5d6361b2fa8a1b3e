"""`lengthwise check`: every answer in the table, every reason in words, and an exit code that says it."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lengthwise.attention import BACKENDS
from lengthwise.conformance import QUESTIONS, Answer, Row, Verdict, backends_of, table
from lengthwise.conformance.table import main
from lengthwise.encodings import ENCODINGS


@pytest.mark.medium
def test_json_of_one_question(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first question, in a worker process."""
    monkeypatch.setattr(table, "QUESTIONS", QUESTIONS[:1])
    assert main(json=True, encodings=["NOPE"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] is True
    assert [q["name"] for q in said["questions"]] == [QUESTIONS[0].name]
    expected = [("NoPE", QUESTIONS[0].name, backend) for backend in backends_of(QUESTIONS[0])]
    assert [(a["encoding"], a["question"], a["backend"]) for a in said["answers"]] == expected
    assert {a["verdict"] for a in said["answers"]} == {"ok"}


@pytest.mark.slow
def test_json_of_one_encoding(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(json=True, encodings=["NOPE"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] is True
    assert {a["encoding"] for a in said["answers"]} == {"NoPE"}
    assert (
        {a["question"] for a in said["answers"]}
        == {q.name for q in QUESTIONS}
        == {q["name"] for q in said["questions"]}
    )
    assert {a["backend"] for a in said["answers"]} == {*BACKENDS, None}
    assert all(a["detail"] for a in said["answers"] if a["verdict"] == "not applicable")


def test_an_unknown_encoding_names_the_near_miss() -> None:
    with pytest.raises(ValueError, match="did you mean 'ALiBi'"):
        main(encodings=["alibbi"])


def answers(names: list[str], on_answer: Any) -> list[Row]:
    odd = {
        "agrees": Answer(Verdict.REFUSED, "it has [no] biases"),
        "settings": Answer(Verdict.NOT_APPLICABLE, "it has no settings"),
        "future": Answer(Verdict.FAILED, "tokens from 3 on change [bold]what[/bold] is said before"),
    }
    return [
        Row(name, backend, question.name, odd.get(question.name, Answer(Verdict.OK)))
        for name in names
        for question in QUESTIONS
        for backend in backends_of(question)
    ]


def test_the_table_fits_a_terminal_and_holds_every_reason(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(table, "ask_in_processes", answers)
    assert main() == 1
    out = capsys.readouterr().out
    words = " ".join(out.split())
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= 80
    asked = {q.name: backends_of(q) for q in QUESTIONS}
    assert asked["future"] == [name for name in BACKENDS if name != "flex"]
    assert f"KerplePower {next(iter(BACKENDS))}" in words
    assert f"NoPE, agrees on {' and '.join(BACKENDS)}: it has [no] biases" in words
    assert "NoPE, settings: it has no settings" in words
    assert (
        f"FIRE, future on {' and '.join(asked['future'])}: tokens from 3 on change [bold]what[/bold] is said before"
        in words
    )
    count = len(ENCODINGS.names())
    assert f" {len(asked['future']) * count} failed" in words
    cells = [len(line.split()) for line in out.splitlines() if f" {next(iter(BACKENDS))} " in line and "✗" in line]
    assert cells == [2 + len(QUESTIONS)] * count


@pytest.mark.medium
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc to see the workers")
@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
        (signal.SIGKILL, -9),  # the command has no chance to end its workers
    ],
)
def test_workers_end_with_the_command(number: signal.Signals, code: int) -> None:
    """Ctrl-C reaches every process of a terminal, others this one alone. Living workers hold its stderr open."""
    command = [sys.executable, "-m", "lengthwise", "check", "nope", "rope"]
    ran = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        end = time.monotonic() + 60
        while not _has_workers(ran.pid):
            assert ran.poll() is None and time.monotonic() < end
            time.sleep(0.01)
        time.sleep(0.5)  # they are importing
        os.killpg(ran.pid, number) if number == signal.SIGINT else ran.send_signal(number)
        error = ran.communicate(timeout=60)[1]
        assert ran.returncode == code, error
        assert "Traceback" not in error
        if code > 0:
            assert error.splitlines()[-1] == "lengthwise: stopped; run the same command again"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(ran.pid, signal.SIGKILL)


def _has_workers(parent: int) -> bool:
    with suppress(OSError):  # a process that is ending
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        return any(b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes() for child in children)
    return False


@pytest.mark.slow
def test_the_verb_answers_everything() -> None:
    environment = {**os.environ, "COLUMNS": "100"}
    ran = subprocess.run(
        [sys.executable, "-m", "lengthwise", "check"], capture_output=True, text=True, check=False, env=environment
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "0 failed" in ran.stdout
    assert "Learned, lengths on" in ran.stdout
