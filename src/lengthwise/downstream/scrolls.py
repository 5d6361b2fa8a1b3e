"""SCROLLS: seven data sets of questions about long texts, in their published files."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any

from lengthwise.corpora.sources.rows import text_field
from lengthwise.downstream.examples import Example, ExampleSet, average
from lengthwise.downstream.metrics import EXACT_MATCH, F1, ROUGE, AnswerMetric
from lengthwise.downstream.records import Records, find_file, index, records
from lengthwise.values import ConfigError, near_miss

FILES = {"train": "train.jsonl", "test": "validation.jsonl"}  # the published test files have no answers
DEMO = "demo"
NO_OUTPUT = "the test files of SCROLLS have no answers; use train.jsonl and validation.jsonl"


@dataclass(frozen=True)
class ScrollsDataset:
    """One of the data sets. `name`: that of its folder. `title`: as papers print it.

    The field `input` of a row begins with the question, if there is one, and a blank line. `cue`: the text between the
    input and the answer, which tells a language model that an answer follows. `answer_tokens`: the largest number of
    tokens of an answer unless the task has another one. `paper`: the score of FIRE's base model, times 100 (Li et al.
    2024, table 1).
    """

    name: str
    title: str
    metric: AnswerMetric
    cue: str
    answer_tokens: int
    paper: float


SCROLLS = (
    ScrollsDataset("qasper", "Qasper", F1, "\n\nAnswer:", 128, 16.24),
    ScrollsDataset("contract_nli", "ContractNLI", EXACT_MATCH, "\n\nAnswer:", 16, 82.93),
    ScrollsDataset("qmsum", "QMSum", ROUGE, "\n\nSummary:", 256, 14.58),
    ScrollsDataset("narrative_qa", "NarrativeQA", F1, "\n\nAnswer:", 64, 9.55),
    ScrollsDataset("summ_screen_fd", "SummScreenFD", ROUGE, "\n\nSummary:", 256, 15.87),
    ScrollsDataset("gov_report", "GovReport", ROUGE, "\n\nSummary:", 1024, 16.31),
    ScrollsDataset("quality", "QuALITY", EXACT_MATCH, "\n\nAnswer:", 64, 24.02),
)
NAMES = tuple(dataset.name for dataset in SCROLLS)


def dataset(name: str) -> ScrollsDataset:
    """Return the data set with this name. Raise `ConfigError` if there is none."""
    for one in SCROLLS:
        if one.name == name:
            return one
    raise ConfigError(f"SCROLLS has no data set {name!r}{near_miss(name, NAMES)}; available: {', '.join(NAMES)}")


def scrolls_average(scores: Mapping[str, float]) -> float:
    """Return the average over SCROLLS: the plain mean of the scores of all seven data sets, by name.

    Source: evaluator/benchmark_evaluator.py of SCROLLS; FIRE's tables take the same mean.
    """
    return average("SCROLLS", NAMES, scores)


# Lengths at which the FIRE paper evaluates NarrativeQA without fine-tuning (Li et al. 2024, table 10).
ZERO_SHOT_LENGTHS = (512, 2048, 4096, 8192, 16384, 24576, 32768)


def zero_shot_average(scores: Mapping[int, float]) -> float:
    """Return the average of NarrativeQA without fine-tuning: the plain mean over `ZERO_SHOT_LENGTHS`."""
    texts = {str(length): score for length, score in scores.items()}
    return average("NarrativeQA", [str(length) for length in ZERO_SHOT_LENGTHS], texts)


class ScrollsExamples(ExampleSet):
    """The examples of one data set, from the files train.jsonl and validation.jsonl.

    Each line is an object with the texts `id`, `input` and `output`; other fields are not read. Rows with the same `id`
    are one question with several accepted answers. Each of them is an example for training. In the test they are one
    example, whose references are all their answers and whose input is that of the first.

    Source: the loader and evaluator of tau/scrolls.
    """

    def __init__(self, train: Records, test: Records):
        self.train, self.test = train, test
        self.questions = list(test.by_id.values())
        self.sha256 = f"{train.sha256}{test.sha256}"

    def count(self, split: str) -> int:
        return len(self.train) if split == "train" else len(self.questions)

    def example(self, split: str, number: int) -> Example:
        if split == "train":
            row = self.train.row(number)
            return Example(row["input"], (row["output"],), row["id"])
        rows = [self.test.row(n) for n in self.questions[number]]
        return Example(rows[0]["input"], tuple(row["output"] for row in rows), rows[0]["id"])


def checked(row: dict[str, Any]) -> str:
    """Return the ID of a row. Raise `ConfigError` for a row that is not in the format of SCROLLS."""
    if not text_field(row, "input").strip():
        raise ConfigError("the field 'input' must not be empty")
    if row.get("output", "") is None:
        raise ConfigError(f"the field 'output' is null; {NO_OUTPUT}")
    text_field(row, "output")
    return text_field(row, "id")


def open_examples(name: str, path: str) -> ScrollsExamples:
    """Return the examples of a data set.

    `path`: a folder with train.jsonl and validation.jsonl, directly or in a folder with the data set's name, as they
    are published; or "demo" for `demo`. Raise `ConfigError`, with file and line, for anything that is not in the
    format.
    """
    dataset(name)
    if path == DEMO:
        return demo()
    train, test = (records(find_file(path, [name], file), checked) for file in FILES.values())
    return ScrollsExamples(train, test)


COLOURS = ("red", "blue", "green", "white")
THINGS = ("gate", "roof", "door", "wall", "boat", "lamp")
DEMO_ROWS = {"train": 512, "test": 64}


def demo_rows(split: str, count: int, sentences: int = 12) -> list[dict[str, str]]:
    """Return invented rows in the format of SCROLLS: a sentence in a text says which colour something has.

    The first of two references in every fourth row is followed by a row with the same `id` and another accepted answer.
    """
    rng = random.Random(f"{split} {count} {sentences}")
    rows: list[dict[str, str]] = []
    for n in range(count):
        thing, colour = rng.choice(THINGS), rng.choice(COLOURS)
        filler = [f"{rng.choice('ABCDEFGH')} went to the {rng.choice(THINGS)}." for _ in range(sentences - 1)]
        filler.insert(rng.randrange(min(3, sentences)), f"The {thing} is {colour}.")
        row = {"id": f"{split}-{n}", "input": f"Which colour is the {thing}?\n\n{' '.join(filler)}", "output": colour}
        answers = [colour, f"It is {colour}."] if n % 4 == 3 else [colour]
        rows += [{**row, "pid": f"{row['id']}_{k}", "output": text} for k, text in enumerate(answers)]
    return rows


def demo() -> ScrollsExamples:
    """Return a small invented data set, which shows how the tasks work; its scores mean nothing."""
    return ScrollsExamples(*(_demo_records(split) for split in FILES))


def _demo_records(split: str) -> Records:
    content = "".join(dumps(row) + "\n" for row in demo_rows(split, DEMO_ROWS[split])).encode()
    return index(Path(DEMO, FILES[split]), checked, content)
