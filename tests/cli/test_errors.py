"""Bad input: one plain line on stderr, exit code 2, no traceback."""

import os
import shutil
import signal
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.store import open_store

Call = Callable[..., Any]

COMPARE = ["compare", "nope", "--task", "copy", "--train-length", "4"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with things that are wrong."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "short.txt").write_text("To be, or not to be, that is the question.\n" * 20)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.py").write_text("x = 1\n")
    (tmp_path / "raises.py").write_text("import math\n\nmath.sqrt('two')\n")
    (tmp_path / "unknown.py").write_text(
        "from lengthwise.studies import grid\n\ngrid(['fier'], ['copy'], training=0)\n"
    )
    (tmp_path / "no_database").mkdir()
    (tmp_path / "no_database" / "results.db").write_text("this is a letter, not a database " * 50)
    (tmp_path / "future").mkdir()
    return tmp_path


def plainly(ran: Any, says: str) -> None:
    assert ran.code == 2, (ran.code, ran.out, ran.err)
    assert "Traceback" not in ran.err
    assert ran.err.startswith("lengthwise: ")
    assert ran.err.count("\n") == 1, ran.err
    assert says in ran.err


USAGE = [
    (["rnu", "x.py"], 'Unknown command "rnu". Did you mean "run"?'),
    (["recency", "3f9a"], "recency is not a command; use `lengthwise probe recency KEY`"),
    (["run"], "run needs STUDY; see `lengthwise run --help`"),
    (["run", "x.py", "--results"], "--results needs 1 value; see `lengthwise run --help`"),
    (["bench", "--compare", "a.json"], "--compare needs 2 values; see `lengthwise bench --help`"),
    (["run", "x.py", "--wokers", "2"], "Did you mean --workers?"),
    (["run", "x.py", "--workers", "two"], "--workers"),
    (["run", "x.py", "y.py"], "y.py"),
    (["compare", "nope", "--task", "copy"], "--train-length"),
    (["compare", "--task", "copy", "--train-length", "4"], "compare needs at least one encoding, as in"),
    (["compare", "nope", "--train-length", "4"], "compare needs either --text PATH or --task NAME, got neither"),
    ([*COMPARE, "--text", "short.txt"], "needs either --text PATH or --task NAME, got both; omit one of them\n"),
    ([*COMPARE, "--name", " "], "the study's name must be one line of printable text, got ' '"),
    (["compare", "rope*999999999999+nope", *COMPARE[2:]], "a pattern must have at most 1,000 layers"),
    (
        ["compare", "rope*0+nope", *COMPARE[2:]],
        "a pattern must have at most 1,000 layers, and each encoding at least 1",
    ),
    (["report", "--output", ""], "--output is empty; name a file, or omit the option"),
    (["lengths", ""], "or a run's key (`lengthwise list runs`), got '': there is no such file"),
    (["lengths", "zzzz"], "lengths needs a file of JSON lines, - for standard input, or a run's key"),
    (["lengths", "folder"], "got 'folder': it is a folder"),
    (
        [*COMPARE, "--lengths", "4,x8"],
        "--lengths must be whole numbers from 1 to 2147483647, comma-separated, got 'x8'",
    ),
    ([*COMPARE, "--lengths", "4,4"], "lengths must differ, got [4, 4]"),
    ([*COMPARE, "--lengths", ""], "--lengths must be whole numbers, comma-separated, got ''"),
    ([*COMPARE, "--seeds", "0"], "seeds must be at least 1, or a list of seeds, got 0"),
    ([*COMPARE, "--steps", "0"], "steps must be at least 1 for a run without a parent, got 0"),
    ([*COMPARE, "--num-heads", "3"], "--d-model must be a multiple of --num-heads, got 128 and 3"),
    ([*COMPARE, "--then", ""], "--then is empty; name encodings to continue with, or omit it"),
    ([*COMPARE, "--learning-rate", "-1"], "lengthwise: --learning-rate must be more than 0, got -1.0"),
    ([*COMPARE, "--batch-size", "0"], "lengthwise: --batch-size must be at least 1, got 0"),
    (["bench", "--rounds", "0"], "lengthwise: --rounds must be a whole number of at least 1, got 0"),
    ([*COMPARE, "--workers", "0"], "workers must be from 1 to 10,000, got 0"),
    ([*COMPARE, "--device", "gpu"], "device 'gpu' cannot be used with this PyTorch on this machine; available: cpu"),
    ([*COMPARE, "--device", "tpu"], "device 'tpu' cannot be used with this PyTorch on this machine; available: cpu"),
    ([*COMPARE, "--device", "xla"], "device 'xla' cannot be used with this PyTorch on this machine; available: cpu"),
    ([*COMPARE, "--device", "meta"], "device 'meta' cannot be used"),
    ([*COMPARE, "--seeds", "2.5"], "--seeds: must be a whole number, got '2.5'"),
    ([*COMPARE, "--results", ""], "the results folder has no name; give a folder"),
    ([*COMPARE, "--results", "r\udcff"], "cannot be used ("),
    (["sample", "copy", "--length", "2.7"], "--length: must be a whole number, got '2.7'"),
    (["run", ""], "the study's path is empty"),
    (["compare", "nope", "--task", "copy", "--train-length", "0"], "--train-length must be at least 1, got 0"),
    ([*COMPARE, "--min-length", "5"], "--min-length must be at most --train-length 4, got 5"),
    (
        [*COMPARE, "--train-examples", "3"],
        "--train-examples must be at least 16 (a batch, and an example of each length), got 3",
    ),
    (["compare", "fier", "--task", "copy", "--train-length", "4"], "no encoding 'fier'; did you mean 'FIRE'?"),
    (["compare", "nope", "--task", "cpoy", "--train-length", "4"], "no task 'cpoy'; did you mean 'Copy'?"),
    (["compare", "fire:hiden_layers=1", "--task", "copy", "--train-length", "4"], "did you mean 'hidden_layers'?"),
    (["compare", "fire:activation=rleu", "--task", "copy", "--train-length", "4"], "did you mean 'relu'?"),
    ([*COMPARE, "--positions", "randomised"], "no position scheme 'randomised'; did you mean 'Randomized'?"),
    ([*COMPARE, "--positions", "randomized:max_lenght=9"], "did you mean 'max_length'?"),
    ([*COMPARE, "--positions", "randomized:max_length=0"], "max_length must be a whole number of at least 1, got 0"),
    ([*COMPARE, "--positions", ""], "--positions is empty; name position schemes, or omit it"),
    ([*COMPARE, "--positions", "shift,shift"], "the position scheme Shift is given 2 times; give it once"),
    (
        [*COMPARE, "--positions", "consecutive,consecutive"],
        "the position scheme Consecutive is given 2 times; give it once",
    ),
    ([*COMPARE, "rope", "rope:base=10000"], "the encoding RoPE is given 2 times; give it once"),
    ([*COMPARE, "fire-s", "fire", "fire-s"], "the encoding FIRE-S is given 2 times; give it once"),
    ([*COMPARE, "--encodings", "NoPE"], "the encoding NoPE is given 2 times; give it once"),
    (["list", "positions", "pso"], "no position scheme 'pso'"),
    (["list", "positions", "shfit"], "did you mean 'Shift'?"),
    (["list"], "name what to list: encodings, tasks, positions, probes, runs, studies"),
    (["list", "encodigns"], "no list of 'encodigns'; did you mean 'encodings'?"),
    (["list", "encodings", "rop"], "no encoding 'rop'; did you mean 'RoPE'?"),
    (["list", "runs", "x"], "list runs takes no names"),
    (["list", "tasks", "--study", "x"], "--study applies only to list runs"),
    (["sample", "cpoy"], "no task 'cpoy'; did you mean 'Copy'?"),
    (["sample", "copy", "--length", "0"], "length must be at least 1, got 0 symbols"),
    (["sample", "copy", "--count", "0"], "--count must be from 1 to 100000, got 0"),
    (["sample", "copy", "--split", "tset"], 'Did you mean "test"?'),
    (["sample", "copy:symbols=x"], "Copy.symbols must be int, got 'x'"),
    (["sample", "copy:symbols=5,symbols=9"], "'copy:symbols=5,symbols=9' sets Copy.symbols twice"),
    (["compare", "fire:c=1,L=8,c=2", "--task", "copy", "--train-length", "4"], "sets FIRE.c twice"),
    ([*COMPARE, "--positions", "shift:max_shift=9,max_shift=8"], "sets Shift.max_shift twice"),
    (["report", "--ties", "publishd"], "no rule for ties 'publishd'; did you mean 'published'?"),
]

INPUT = [
    (["run", "unknwon.py"], "there is no file unknwon.py; did you mean 'unknown.py'?"),
    (["run", "folder"], "folder is a folder; name a study file in it: a.py"),
    (["run", "raises.py"], "raises.py, line 3: TypeError: must be real number, not str"),
    (["run", "unknown.py"], "unknown.py, line 3: there is no encoding 'fier'; did you mean 'FIRE'?"),
    (["work", "short.txt"], "short.txt is not a Python file; give the path of a study, whose name ends in .py"),
    (["run", "folder/a.py"], "defines no `study`"),
    (["compare", "nope", "--text", "empty.txt", "--train-length", "16"], "empty.txt"),
    (["compare", "nope", "--text", "missing.txt", "--train-length", "16"], "missing.txt"),
    (["compare", "nope", "--text", "folder", "--glob", "*.md", "--train-length", "16"], "*.md"),
    (
        ["compare", "nope", "--text", "short.txt", "--train-length", "16", "--lengths", "16,512"],
        "the longest validation document",
    ),
    (
        ["compare", "learned:max_length=12", "--task", "copy", "--train-length", "4", "--lengths", "4,8"],
        "needs 18 positions, but Learned has 12",
    ),
    (
        [*COMPARE, "--positions", "randomized:max_length=9"],
        "max_length must be at least the number of tokens, 10, got 9",
    ),
    (
        [*COMPARE, "--positions", "randomized:max_length=65"],
        "max_length must be at least the number of tokens, 66, got 65",
    ),
    ([*COMPARE, "--positions", "skip:chunks=11"], "chunks must be at most the number of tokens, 10, got 11"),
    (
        [*COMPARE, "--positions", "skip:target_length=9"],
        "target_length must be at least the number of tokens, 10, got 9",
    ),
    ([*COMPARE, "--positions", "digits"], "give zero=... (the ID of digit 0)"),
    (
        [
            "compare",
            "learned:max_length=99",
            "--task",
            "copy",
            "--train-length",
            "4",
            "--positions",
            "shift:max_shift=90",
        ],
        "needs 100 positions with Shift(max_shift=90), but the encoding has 99",
    ),
    (["sample", "text:path=missing.txt"], "missing.txt"),
    ([*COMPARE, "--results", "no_database"], "not a SQLite database"),
    (["report", "--results", "no_database"], "not a SQLite database"),
    (["list", "runs", "--results", "nowhere"], "nowhere"),
    (["show", "abc", "--results", "nowhere"], "nowhere"),
]


@pytest.mark.parametrize(("words", "says"), USAGE, ids=lambda v: " ".join(v) if isinstance(v, list) else "")
def test_words_that_cannot_be(here: Call, place: Path, words: list[str], says: str) -> None:
    plainly(here(*words), says)
    assert not (place / "lengthwise-results").exists()


@pytest.mark.parametrize(("words", "says"), INPUT, ids=lambda v: " ".join(v) if isinstance(v, list) else "")
def test_input_that_cannot_be(here: Call, place: Path, words: list[str], says: str) -> None:
    plainly(here(*words), says)


@pytest.mark.slow
@pytest.mark.parametrize(("words", "says"), [*USAGE, *INPUT], ids=lambda v: " ".join(v) if isinstance(v, list) else "")
def test_the_same_in_a_process_of_its_own(apart: Call, place: Path, words: list[str], says: str) -> None:
    plainly(apart(*words), says)


def test_some_in_a_process_of_its_own(apart: Call, place: Path) -> None:
    plainly(apart("list", "encodings", "--plugin", "raises.py"), "raises.py, line 3: TypeError")
    plainly(apart("run", "x.py", "--wokers", "2"), "Did you mean --workers?")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="permissions mean nothing to this user")
def test_unreadable_files(here: Call, place: Path) -> None:
    (place / "short.txt").chmod(0)
    plainly(here("compare", "nope", "--text", "short.txt", "--train-length", "8"), "short.txt")
    (place / "raises.py").chmod(0)
    plainly(here("run", "raises.py"), "cannot be read")


def test_runs_that_are_not_there(here: Call, finished: Path) -> None:
    plainly(here("show", "zzzz", "--results", finished), "no run has a key that starts with 'zzzz'")
    plainly(here("show", "", "--results", finished), "no run has a key that starts with")
    plainly(here("report", "--study", "tinny", "--results", finished), "no study 'tinny'; did you mean 'tiny'?")
    plainly(here("list", "runs", "--study", "tinny", "--results", finished), "did you mean 'tiny'?")


def test_a_page_that_cannot_be_written(here: Call, finished: Path, place: Path) -> None:
    plainly(here("report", "--results", finished, "--output", place / "short.txt" / "page.html"), "short.txt")
    plainly(here("report", "--results", finished, "--output", place / "folder"), "folder")
    plainly(here("report", "--results", finished, "--output", ""), "--output is empty")
    plainly(here("report", "--results", finished, "--output", "x" * 300), "File name too long")
    assert not list(place.glob(".report-*"))


@pytest.mark.skipif(os.name == "nt", reason="file names are text there")
def test_a_text_whose_name_is_no_text(here: Call, place: Path) -> None:
    name = "ode-\udcff.txt"
    (place / name).write_bytes((place / "short.txt").read_bytes())
    tiny = "compare nope --train-length 8 --lengths 8 --steps 1 --tokens 64 --d-model 8 --results r --on inline"
    plainly(
        here(*tiny.split(), "--text", name), "ode-\\udcff.txt' is not valid UTF-8, so it cannot be stored; rename it"
    )


FAILED_ALLOCATION = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate"
)


def test_a_task_that_needs_more_memory_than_there_is(here: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*_: Any, **__: Any) -> None:
        raise RuntimeError(f"{FAILED_ALLOCATION} 33600 bytes. Error code 12 (Cannot allocate memory)")

    monkeypatch.setattr("lengthwise.cli.sample.show_examples", ask)
    plainly(here("sample", "copy"), "not enough memory (one allocation of 33600 bytes failed); use shorter")


@pytest.mark.slow
def test_a_length_that_does_not_fit_into_memory_is_named(here: Call, finished: Path) -> None:
    with open_store(finished) as store:
        run = store.runs()[0]
    call = ("probe", "attended-distance", run.key, "--lengths", 10**9, "--results", finished)
    named = f"{run.key[:8]} ({run.label}, seed {run.seed}), length 1000000000"
    plainly(here(*call), f"{named}: not enough memory (one allocation of ")


@pytest.mark.medium
def test_a_width_that_does_not_fit_into_memory_is_named(here: Call, place: Path) -> None:
    sizes = ("--task", "copy", "--train-length", 8, "--d-model", 10**9)
    ran = here("compare", "rope", *sizes, "--results", place / "wide")
    assert ran.code == 1
    assert (
        "the weights of the model (d_model 1,000,000,000, num_layers 4): not enough memory (one allocation of "
        in ran.err
    )
    assert "; use a smaller model" in ran.err and "shorter lengths" not in ran.err


STOPPED = "\nlengthwise: stopped; run the same command again\n"
SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_signals_while_a_command_starts(apart: Call, place: Path, number: signal.Signals, code: int) -> None:
    (place / "stops.py").write_text(f"import signal\nsignal.raise_signal({number:d})\n")
    ran = apart("list", "encodings", "--plugin", "stops.py")
    assert (ran.code, ran.out, ran.err) == (code, "", STOPPED)


@pytest.mark.parametrize(("number", "code"), [pytest.param(*SIGNALS[0], marks=pytest.mark.slow), SIGNALS[1]])
def test_signals_that_a_package_swallows_while_it_is_imported(
    apart: Call, place: Path, number: signal.Signals, code: int
) -> None:
    (place / "swallows.py").write_text(
        f"import signal\ntry:\n    signal.raise_signal({number:d})\nexcept KeyboardInterrupt:\n    pass\n"
        "raise ImportError('cannot load module more than once per process')\n"
    )
    ran = apart("list", "encodings", "--plugin", "swallows.py")
    assert (ran.code, ran.out, ran.err) == (code, "", STOPPED)


def test_handlers_of_signals_are_put_back_and_those_of_the_caller_stay(
    here: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr("lengthwise.cli.sample.show_examples", lambda *_, **__: seen.append(handlers()))

    def handlers() -> list[Any]:
        return [signal.getsignal(number) for number, _ in SIGNALS]

    usual = [signal.default_int_handler, signal.SIG_DFL]
    assert handlers() == usual
    here("sample", "copy")
    assert handlers() == usual
    old = signal.signal(signal.SIGTERM, own := lambda *_: None)
    try:
        here("sample", "copy")
        assert handlers() == [signal.default_int_handler, own]
    finally:
        signal.signal(signal.SIGTERM, old)
    thread = threading.Thread(target=here, args=("sample", "copy"))
    thread.start()
    thread.join()
    assert all(handler not in usual for handler in seen[0])
    assert seen[1][1] is own
    assert seen[2] == usual


@pytest.fixture
def newer_tables(finished: Path, place: Path) -> Path:
    """The finished results, as a newer version of the program would have left them."""
    copy = place / "future" / "results.db"
    with sqlite3.connect(finished / "results.db") as source, sqlite3.connect(copy) as target:
        source.backup(target)
    with sqlite3.connect(copy) as target:
        target.execute("UPDATE lengthwise_schema SET version_num = '999'")
    target.close()
    return place / "future"


def test_newer_tables(here: Call, newer_tables: Path) -> None:
    plainly(here("list", "runs", "--results", newer_tables), "999")
    plainly(here(*COMPARE, "--results", newer_tables), "999")


def test_the_traceback_on_request(here: Call, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LENGTHWISE_DEBUG", "1")
    ran = here("run", "raises.py")
    assert ran.code == 2
    assert "Traceback" in ran.err
    assert ran.err.splitlines()[-1].startswith("lengthwise: raises.py, line 3: TypeError")


@pytest.mark.medium
@pytest.mark.parametrize("way", ["here", pytest.param("apart", marks=pytest.mark.slow)])
def test_a_failed_run_is_named_and_the_exit_code_is_1(way: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """With a worker process; the slow test starts the command in a process of its own too, as a shell does."""
    call = request.getfixturevalue(way)
    study = tmp_path / "faulty.py"
    study.write_text(
        "from lengthwise.config import EvaluationConfig, ModelConfig, TrainingConfig\n"
        "from lengthwise.encodings import NoPE\n"
        "from lengthwise.studies import Study, grid\n"
        "class Faulty(NoPE):\n"
        "    def modifiers(self, span):\n"
        "        raise RuntimeError('broken on purpose')\n"
        "study = Study(name='faulty', runs=grid([Faulty, 'nope'], ['copy'], training=TrainingConfig(train_length=4,\n"
        "    steps=5, batch_size=2), model=ModelConfig(d_model=16, num_layers=1, num_heads=2)),\n"
        "    evaluation=EvaluationConfig(lengths=(4, 8), examples=4))\n"
    )
    ran = call("run", study, "--results", tmp_path / "results", "--workers", 1)
    assert ran.code == 1, ran.err
    assert "Traceback" not in ran.err
    assert "lengthwise: failed: Faulty on Copy, seed 0 (" in ran.err
    assert "RuntimeError: broken on purpose" in ran.err
    assert "1 of 2 runs failed; run the same command again to retry it" in ran.err
    assert "NoPE" in ran.out
    assert "Report: " in ran.out


@pytest.mark.medium
@pytest.mark.parametrize("words", [["encodings"], ["probes", "--json"]], ids=["tables", "JSON"])
def test_output_that_nobody_reads_to_the_end(words: list[str]) -> None:
    import subprocess
    import sys

    show = [sys.executable, "-m", "lengthwise", "list", *words]
    with subprocess.Popen(show, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_advice_names_the_results_folder_of_the_command(
    here: Call, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(finished, tmp_path / "my results")
    shutil.copytree(finished, tmp_path / "lengthwise-results")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LENGTHWISE_RESULTS", raising=False)
    elsewhere = "`lengthwise list runs --results 'my results'`"
    for words in (
        ["show", "zz"],
        ["drop", "zz"],
        ["drop"],
        ["probe", "recency"],
        ["probe", "recency", "zz"],
        ["lengths", ""],
    ):
        assert elsewhere in here(*words, "--results", "my results").err
        assert elsewhere in here(*words, "--results", tmp_path / "my results").err
        assert "`lengthwise list runs`" in here(*words).err
        assert "`lengthwise list runs`" in here(*words, "--results", "lengthwise-results").err
        monkeypatch.setenv("LENGTHWISE_RESULTS", "my results")
        assert "`lengthwise list runs`" in here(*words).err
        assert (
            "lengthwise list runs --results lengthwise-results`" in here(*words, "--results", "lengthwise-results").err
        )
        monkeypatch.delenv("LENGTHWISE_RESULTS")


@pytest.mark.parametrize(
    ("killed", "words"), [(False, "and all progress is saved"), (True, "which loses the steps since")]
)
def test_a_stop_says_whether_progress_was_lost(killed: bool, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    from lengthwise.cli import process
    from lengthwise.studies import Interrupted

    counts = {"pending": 1, "running": 1, "done": 2, "failed": 0}
    assert process._report_interrupt(Interrupted(2, counts, killed), "run") == 130
    error = capsys.readouterr().err
    assert "2 of 4 runs are done" in error and words in error
    assert ("all progress is saved" in error) is not killed
