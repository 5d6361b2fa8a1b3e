"""A study that looks like a real one, without training anything: rows as the store would give them."""

import hashlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lengthwise.analysis import Findings, from_rows
from lengthwise.store.rows import AnswerRow, RunRow, StudyRow
from tests.made_answers import score_answer, stored

ENCODINGS = ("NoPE", "Sinusoidal", "RoPE", "ALiBi", "T5", "KerpleLog", "FIRE")

# Mean scores at 1, 2, 4 and 8 times the trained length, about as published studies of small models have them.
TEXT = {
    "NoPE": (1.871, 2.102, 2.894, 3.712),
    "Sinusoidal": (1.902, 3.315, 5.921, 9.443),
    "RoPE": (1.812, 2.244, 3.371, 4.529),
    "ALiBi": (1.829, 1.806, 1.797, 1.793),
    "T5": (1.821, 1.805, 1.853, 1.962),
    "KerpleLog": (1.818, 1.794, 1.784, 1.781),
    "FIRE": (1.807, 1.783, 1.774, 1.776),
}
COPY = {
    "NoPE": (0.996, 0.611, 0.042, 0.0),
    "Sinusoidal": (0.981, 0.004, 0.0, 0.0),
    "RoPE": (1.0, 0.377, 0.011, 0.0),
    "ALiBi": (0.992, 0.714, 0.203, 0.016),
    "T5": (0.999, 0.957, 0.622, 0.183),
    "KerpleLog": (0.998, 0.901, 0.541, 0.141),
    "FIRE": (1.0, 0.984, 0.871, 0.529),
}


def key_of(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def config(task: str, encoding: str, seed: int, train_length: int) -> dict[str, Any]:
    text = {"is": "Text", "path": "/home/someone/python", "glob": "**/*", "validation": 0.1, "sha256": "ab" * 32}
    return {
        "encoding": {"is": encoding},
        "task": text if task == "Text" else {"is": "Copy", "symbols": 26},
        "model": {"d_model": 128, "num_layers": 4, "num_heads": 4, "norm": "layer", "share_encoding": encoding == "T5"},
        "training": {"train_length": train_length, "min_length": 1 if task == "Copy" else train_length, "steps": 600},
        "seed": seed,
    }


def run_row(**changes: Any) -> RunRow:
    """A finished run on text; anything may be changed."""
    row: dict[str, Any] = {
        "key": "0123456789abcdef",
        "label": "FIRE",
        "encoding": "FIRE",
        "task": "Text",
        "metric": "cross-entropy",
        "better": "lower",
        "unit": "bytes",
        "seed": 0,
        "train_length": 128,
        "config": config("Text", changes.get("label", "FIRE"), changes.get("seed", 0), 128),
        "questions": [{"length": n, "tokens": 65536, "seed": 0} for n in (128, 256, 512, 1024)],
        "status": "done",
        "worker": None,
        "heartbeat": None,
        "step": 600,
        "steps": 600,
        "claims": 1,
        "failures": 0,
        "deaths": 0,
        "error": None,
        "facts": {},
        "created": 1.7e9,
        "started": 1.7e9,
        "finished": 1.7e9 + 60,
    }
    return RunRow(**{**row, **changes})


def score_row(
    run: RunRow, length: int, mean: float, standard_error: float = 0.01, n: int = 512, **cells: Any
) -> AnswerRow:
    asked = next(a for a in run.questions if a["length"] == length)
    return stored(run.key, score_answer(asked, mean, n, standard_error, **cells))


def study_row(**changes: Any) -> StudyRow:
    row: dict[str, Any] = {
        "name": "quickstart",
        "question": "Which position encodings keep their score on inputs up to eight times as long as any they were "
        "trained on: on real text, and on a task that has to count?",
        "expectation": "Additive biases (ALiBi, KERPLE, FIRE) hold on text, rotations and absolute encodings do not; "
        "on copying everything falls, FIRE and T5 last.",
        "cost": "6 minutes on 2 CPU cores",
        "command": "lengthwise run studies/quickstart.py",
        "evaluation": {},
        "created": 1.7e9,
        "updated": 1.7e9,
        "progress": {},
    }
    return StudyRow(**{**row, **changes})


def facts(task: str, run: int) -> dict[str, Any]:
    corpus = {"corpus": "python", "corpus_sha256": "ab" * 32, "corpus_python": "3.11.2", "corpus_bytes": 18_202_113}
    return {
        "parameters": 824_321 + 8 * run,
        "seconds": 17.3 + run / 7,
        "backend": "sdpa",
        "device": "cpu",
        "threads": 1,
        "python": "3.11.2",
        "platform": "Linux-6.1-x86_64",
        "commit": "9d4c9f6e",
        "versions": {"lengthwise": "0.1.0", "torch": "2.13.0+cpu", "numpy": "2.3.1"},
        "weights": "/home/someone/lengthwise-results/runs/x/weights.safetensors",
        **(corpus if task == "Text" else {}),
    }


def rows(seeds: int = 3, labels: tuple[str, ...] = ENCODINGS) -> tuple[list[RunRow], list[AnswerRow]]:
    """7 encodings × 2 tasks × 4 lengths × seeds, with noise that is the same in every call."""
    chance = random.Random(7)
    runs: list[RunRow] = []
    scores: list[AnswerRow] = []
    for task, table, train_length in (("Text", TEXT, 128), ("Copy", COPY, 20)):
        for label in labels:
            means = table.get(label, table["FIRE"])
            for seed in range(seeds):
                count = {"tokens": 65536} if task == "Text" else {"examples": 512}
                lengths = [train_length * m for m in (1, 2, 4, 8)]
                run = run_row(
                    key=key_of(task, label, seed),
                    label=label,
                    encoding=label,
                    task=task,
                    seed=seed,
                    metric="cross-entropy" if task == "Text" else "exact match",
                    better="lower" if task == "Text" else "higher",
                    unit="bytes" if task == "Text" else "symbols",
                    train_length=train_length,
                    config=config(task, label, seed, train_length),
                    questions=[{"length": n, "seed": 0, **count} for n in lengths],
                    facts=facts(task, len(runs)),
                )
                runs.append(run)
                for length, mean in zip(lengths, means, strict=True):
                    if task == "Text":
                        value = mean + chance.gauss(0, 0.004) * (1 + 9 * max(0, mean - 1.9))
                        scores.append(score_row(run, length, value, 0.01, 65536 // length))
                    else:
                        spread = 0.12 * (mean * (1 - mean)) ** 0.5
                        value = round(512 * min(1, max(0, mean + chance.gauss(0, spread)))) / 512
                        scores.append(score_row(run, length, value, (value * (1 - value) / 512) ** 0.5))
    return runs, scores


@pytest.fixture(scope="session")
def quickstart() -> Findings:
    return from_rows([study_row()], *rows())


@pytest.fixture(scope="session")
def make_row() -> Callable[..., RunRow]:
    return run_row


@pytest.fixture(scope="session")
def make_score() -> Callable[..., AnswerRow]:
    return score_row


@pytest.fixture(scope="session")
def make_study() -> Callable[..., StudyRow]:
    return study_row


@pytest.fixture(scope="session")
def make_rows() -> Callable[..., tuple[list[RunRow], list[AnswerRow]]]:
    return rows


# ---- the browser ------------------------------------------------------------------------------------------------


SCROLL = """async () => {
  for (const plot of document.querySelectorAll(".plot")) {
    if (!plot.checkVisibility()) continue;
    plot.scrollIntoView({ behavior: "instant" });
    while (!plot.querySelector("svg")) await new Promise((then) => setTimeout(then, 10));
  }
  scrollTo({ top: 0, behavior: "instant" });
}"""


@pytest.fixture
def open_page(browser: Any) -> Callable[..., Any]:
    """Open pages, offline, and scroll through them, so that all their visible charts are drawn.

    `page.messages` has the messages of the console and the uncaught errors, `page.requests` the addresses that were
    requested.
    """

    def open_page(path: Path, **settings: Any) -> Any:
        page = browser.new_context(offline=True, **settings).new_page()
        page.messages, page.requests = [], []
        page.on("console", lambda message: page.messages.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: page.messages.append(f"error: {error}"))
        page.on("request", lambda request: page.requests.append(request.url))
        page.goto(path.resolve().as_uri())
        page.wait_for_selector("html[data-ready=yes]", state="attached")
        page.evaluate(SCROLL)
        return page

    return open_page


@pytest.fixture
def opened(open_page: Any) -> Iterator[Callable[..., Any]]:
    """Open pages as `open_page` does, and close them at the end of the test."""
    pages: list[Any] = []

    def opened(path: Path, **settings: Any) -> Any:
        pages.append(open_page(path, **settings))
        return pages[-1]

    yield opened
    for page in pages:
        page.context.close()
