"""A results database that somebody else made: cells are changed at random, and every command answers in plain lines."""

import json
import random
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lengthwise.cli import main
from lengthwise.config import EvaluationConfig, ModelConfig, TrainingConfig
from lengthwise.evaluation import evaluate, shifted, together
from lengthwise.store import open_results
from lengthwise.studies import Study, grid
from lengthwise.training import train

MODEL = ModelConfig(d_model=16, num_layers=2, num_heads=2)
SCORE = ("asked", "length", "metric", "better", "n", "mean", "standard_error", "out_of_distribution", "seconds")
ESCAPE = "\x1b]0;PWN\x07\x1b[31m"
COLUMNS = {
    "studies": ("name", "question", "command", "evaluation", "created", "updated", "published"),
    "runs": (
        *("key", "label", "encoding", "task", "metric", "better", "unit", "seed", "train_length", "config", "created"),
        *("worker", "heartbeat", "handed_out", "claims", "step", "steps", "started", "finished", "error", "facts"),
    ),
    "study_runs": ("study", "key", "position"),
    "asked": ("study", "key", "question", "position"),
    "scores": (
        *("key", "question", "length", "metric", "better", "n", "mean", "standard_error", "out_of_distribution"),
        *("seconds", "facts", "created"),
    ),
    "curve": ("key", "step", "loss", "learning_rate", "gradient_norm", "tokens_per_second"),
    "probes": ("key", "question", "result", "created", "facts"),
}
CELLS: list[Any] = [None, 0, -1, 7, 2**63 - 1, -(2**63), 0.5, 1e308, -1e308, float("inf"), "", "x", "1", "\x00", ESCAPE]
CELLS += [
    "é" * 50,
    "9" * 5000,
    "../../../etc",
    "/etc",
    "0123456789ABCDEF",
    b"",
    b"\xff\xfe\x00",
    "[]",
    "{}",
    "null",
    "1e999",
]
CELLS += ["[" * 5000, '{"a":NaN}', '{"length":"8"}', '{"probe":"lengths"}', '{"probe":"attended-distance","length":8}']
NOT_TEXT = b"\xff{"  # stored as text, which it is not
VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    1,
    3,
    10**18,
    10**30,
    0.5,
    1e300,
    -1e300,
    "",
    "x",
    "é\x00",
    ESCAPE,
    "\ud800",
    "0" * 16,
]
VALUES += [[], {}, [[]], [{}], [None], ["x"], {"x": None}, {"is": "RoPE"}, [1, 2], [[[0.5]]], {"length": 4}]


def studies() -> list[Study]:
    """Every kind of row: exact answers, decoded ones, functions in context with their groups and baselines, published numbers, and
    what probes measure in encodings with biases and with vectors."""
    words = grid(["nope", "rope"], ["copy", "summation:scratchpad=full"], model=MODEL,
                 training=TrainingConfig(train_length=4, steps=2, batch_size=2))  # fmt: skip
    functions = grid(["nope", "rope"], ["linearregression:dims=2"], 2, model=MODEL,
                     training=TrainingConfig(train_length=4, steps=2, batch_size=2))  # fmt: skip
    encodings = grid(["sinusoidal", "fire"], ["copy"], model=MODEL,
                     training=TrainingConfig(train_length=4, steps=2, batch_size=2))  # fmt: skip
    published = {"source": "A paper", "scores": {"Copy": {"RoPE": 0.5}}, "ranks": {"NoPE": 0.5}}
    return [
        Study(name="words", runs=words, evaluation=EvaluationConfig(lengths=(4, 8), examples=4), published=published),
        Study(name="functions", runs=functions, evaluation=EvaluationConfig(lengths=(2, 4, 8), examples=40)),
        Study(name="encodings", runs=encodings, evaluation=EvaluationConfig(lengths=(4, 8), examples=4)),
    ]


@pytest.fixture(scope="module", autouse=True)
def few_drawn_examples() -> Iterator[None]:
    """Let `lengths` draw few examples, because what is counted does not matter here."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("lengthwise.probes.example_lengths.measure.SAMPLE_SIZE", 10)
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder as the commands leave it."""
    folder = tmp_path_factory.mktemp("hostile") / "results"
    with open_results(folder) as store:
        for study in studies():
            store.add_study(**study.metadata(), runs=study.rows())
            for run in study.runs:
                row = store.claim(study.name, "elsewhere:1:w")
                assert row is not None
                trained = train(run, folder / "runs" / run.key)
                store.add_curve(run.key, trained.curve, worker="elsewhere:1:w")
                if trained.tracked:
                    store.add_probe(run.key, {"probe": "development"}, trained.tracked, {"device": "cpu"})
                for config, shift in together(row.asked):
                    task = shifted(run.task, shift).build() if shift else trained.task
                    for score in evaluate(trained.model, task, config, train_length=4, positions=None, shift=shift):
                        cells = {name: getattr(score, name) for name in SCORE}
                        facts = {"details": score.details, "note": "a note"} if score.details else {}
                        store.add_scores(run.key, [cells | {"facts": facts}], worker="elsewhere:1:w")
                facts = {"seconds": 1.5, "parameters": 9, "versions": {"torch": "2"}, "device": "cpu", "dirty": False}
                store.finish(run.key, "elsewhere:1:w", facts)
        keys = [run.key for study in studies() for run in study.runs]
    for words in PROBES:
        assert main([*words, "--results", str(folder)]) == 0, words
    for key in keys[:2]:
        assert main(["lengths", key, "--results", str(folder)]) == 0
    return folder


PROBES = [
    ["probe", "attended-distance", "--study", "words", "--lengths", "8", "--examples", "2"],
    ["probe", "attention-distance", "--study", "words", "--against", "nope", "--lengths", "4,8", "--examples", "2"],
    ["probe", "learned-bias", "--study", "encodings", "--query", "5"],
    ["probe", "logit-parts", "--study", "encodings", "--examples", "2"],
    ["probe", "position-shift", "--study", "encodings", "--shifts", "0,3", "--examples", "2"],
    ["probe", "recency", "--study", "functions", "--lengths", "8", "--examples", "2"],
    ["probe", "duplicates", "--study", "functions", "--lengths", "8", "--examples", "2", "--resamples", "2"],
    ["probe", "lost-in-the-middle", "--study", "functions", "--lengths", "8", "--positions", "2", "--examples", "2",
     "--resamples", "2"],
    ["probe", "induction", "--study", "functions", "--lengths", "8", "--points", "2", "--repeats", "2", "--examples", "2"],
]  # fmt: skip


# ---- what is changed ----------------------------------------------------------------------------------------------


def change(file: Path, chance: random.Random) -> str:
    """Change a cell of one row; what was done, in words."""
    connection = sqlite3.connect(file, isolation_level=None)
    connection.text_factory = lambda stored: stored.decode("utf-8", "surrogateescape")
    table = chance.choice(list(COLUMNS))
    column = chance.choice(COLUMNS[table])
    rows = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
    rowid, old = chance.choice(rows)
    value = changed(old, chance)
    what = "CAST(? AS TEXT)" if value is NOT_TEXT else "?"
    try:
        connection.execute(f"UPDATE {table} SET {column} = {what} WHERE rowid = ?", (value, rowid))
    except sqlite3.IntegrityError:  # a cell that has to be there, or a second row of the same name
        value = "nothing"
    finally:
        connection.close()
    return f"{table}.{column}: {old!r:.2000} became {value!r:.2000}"


def changed(old: Any, chance: random.Random) -> Any:
    try:
        data = json.loads(old) if isinstance(old, str) and old[:1] in "{[" else None
    except ValueError:
        data = None
    if data and chance.random() < 0.8:
        return json.dumps(inside(data, chance))
    return chance.choice([*CELLS, NOT_TEXT])


def inside(data: Any, chance: random.Random) -> Any:
    """The data with one of its parts changed, left out or added, at some depth."""
    if not isinstance(data, (dict, list)) or not data or chance.random() < 0.1:
        return chance.choice(VALUES)
    places = list(data) if isinstance(data, dict) else range(len(data))
    place = chance.choice(places)
    kind = chance.random()
    if kind < 0.2:
        del data[place]
    elif kind < 0.3 and isinstance(data, dict):
        data[chance.choice(["x", "", ESCAPE, "length", "probe", "key"])] = chance.choice(VALUES)
    elif kind < 0.3:
        data.append(chance.choice(VALUES))
    else:
        data[place] = inside(data[place], chance)
    return data


# ---- what is asked ------------------------------------------------------------------------------------------------


def commands(keys: list[str], page: Path, chance: random.Random) -> Iterator[list[str]]:
    key = chance.choice(keys)
    yield ["list", "runs"]
    yield ["list", "studies"]
    yield ["show", key]
    yield ["show", key, "--json"]
    yield ["report", "--output", str(page)]
    yield ["report", "--study", "words", "--json"]
    yield ["lengths", keys[0]]
    yield chance.choice(PROBES)
    yield ["drop", "--study", chance.choice(["words", "functions"]), *chance.choice([[], ["--finished"]])]


def attack(whole: Path, place: Path, capfd: Any, seeds: range) -> list[str]:
    """Change some cells and run the commands, once for each seed; what went wrong."""
    wrong = []
    with open_results(whole, create=False) as store:
        keys = [run.key for run in store.runs()]
    for seed in seeds:
        chance = random.Random(seed)
        folder = place / "results"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        shutil.copyfile(whole / "results.db", folder / "results.db")
        (folder / "runs").symlink_to("nowhere") if seed % 5 == 0 else shutil.copytree(whole / "runs", folder / "runs")
        done = [change(folder / "results.db", chance) for _ in range(chance.choice([1, 1, 3]))]
        for words in commands(keys, place / "page.html", chance):
            capfd.readouterr()
            code = main([*words, "--results", str(folder)])
            out, err = capfd.readouterr()
            if code not in (0, 2) or "bug in lengthwise" in err or "\x1b" in out + err or "Traceback" in err:
                wrong.append(f"seed {seed}: {' '.join(words)} ({code}) after {done}:\n{err}")
            elif code and words[0] in ("list", "report") and "there is no study" not in err:
                wrong.append(f"seed {seed}: {' '.join(words)} has no answer after {done}:\n{err}")
    return wrong


@pytest.mark.medium
def test_changed_cells(whole: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert attack(whole, tmp_path, capfd, range(6)) == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_many_changed_cells(whole: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert attack(whole, tmp_path, capfd, range(100, 400)) == []
