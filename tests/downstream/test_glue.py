"""GLUE and SuperGLUE: their published files, and the texts of T5."""

import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from lengthwise.downstream import glue
from lengthwise.downstream.examples import Example
from lengthwise.downstream.glue import GLUE, glue_average, open_examples
from lengthwise.downstream.glue.demo import demo_rows
from lengthwise.values import ConfigError


def lines(rows: list[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def write(folder: Path, **files: list[Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in files.items():
        (folder / f"{name}.jsonl").write_text(lines(rows), encoding="utf-8")
    return folder.parent


def read(name: str, path: Path) -> dict[str, list[Example]]:
    found = open_examples(name, str(path))
    return {split: [found.example(split, n) for n in range(found.count(split))] for split in ("train", "test")}


# Columns of the hub's files, and T5's texts for them (Raffel et al. 2020, appendix D, and the documentation of T5's
# preprocessors).
T5 = {
    "cola": ({"sentence": "John made Bill.", "label": 1}, "cola sentence: John made Bill.", "acceptable"),
    "sst2": ({"sentence": "it is fun", "label": 0}, "sst2 sentence: it is fun", "negative"),
    "mrpc": ({"sentence1": "A.", "sentence2": "B.", "label": 1}, "mrpc sentence1: A. sentence2: B.", "equivalent"),
    "qqp": (
        {"question1": "Why?", "question2": "Who?", "label": 0},
        "qqp question1: Why? question2: Who?",
        "not_duplicate",
    ),
    "mnli": ({"premise": "P.", "hypothesis": "H.", "label": 2}, "mnli hypothesis: H. premise: P.", "contradiction"),
    "qnli": ({"question": "Q?", "sentence": "S.", "label": 1}, "qnli question: Q? sentence: S.", "not_entailment"),
    "rte": ({"sentence1": "A.", "sentence2": "B.", "label": 0}, "rte sentence1: A. sentence2: B.", "entailment"),
    "boolq": ({"question": "q", "passage": "p", "label": 1}, "boolq passage: p question: q", "True"),
    "cb": ({"premise": "P.", "hypothesis": "H.", "label": 2}, "cb hypothesis: H. premise: P.", "neutral"),
    "copa": (
        {"premise": "P.", "choice1": "A.", "choice2": "B.", "question": "cause", "label": 1},
        "copa choice1: A. choice2: B. premise: P. question: cause",
        "choice2",
    ),
    "multirc": (
        {
            "paragraph": "<b>Sent 1: </b>It rained.<br>It stopped.",
            "question": "What?",
            "answer": "Rain",
            "idx": {"paragraph": 3, "question": 7, "answer": 1},
            "label": 1,
        },
        "multirc question: What? answer: Rain paragraph: Sent 1: It rained. It stopped.",
        "True",
    ),
    "wic": (
        {"word": "bank", "sentence1": "A bank.", "sentence2": "The bank.", "start1": 2, "label": 0},
        "wic sentence1: A bank. sentence2: The bank. word: bank",
        "False",
    ),
    "wsc": (
        {
            "text": "This is a test sentence .",
            "span1_text": "test",
            "span1_index": 3,
            "span2_text": "This",
            "span2_index": 0,
            "label": 0,
        },
        "wsc text: # This # is a * test * sentence .",
        "False",
    ),
}


@pytest.mark.parametrize("name", T5)
def test_the_texts_are_those_of_t5(name: str) -> None:
    row, text, answer = T5[name]
    (dataset,) = glue.datasets(name)
    (example,) = dataset.examples({"idx": 0, **row}, train=True)
    assert (example.input, example.references, example.dataset) == (text, (answer,), name)


def test_numbers_are_rounded_for_training_only() -> None:
    (dataset,) = glue.datasets("stsb")
    row = {"sentence1": "A.", "sentence2": "B.", "idx": 0}
    for label, rounded in ((1.8, "1.8"), (3.25, "3.2"), (4.75, "4.8"), (0.0, "0.0"), (5, "5.0")):
        (train,), (test,) = (dataset.examples({**row, "label": label}, train=split) for split in (True, False))
        assert train == Example("stsb sentence1: A. sentence2: B.", (rounded,), dataset="stsb")
        assert float(test.references[0]) == label


RECORD = {
    "passage": 'He said "no"\n@highlight\nIt rained.\n@highlight\nAnn left\n@highlight\nBob stayed',
    "query": "@placeholder stayed",
    "entities": ["Bob", "Ann"],
    "answers": ["Bob", "Bob", "Ann"],
}


def test_record_has_an_example_for_each_answer_in_training() -> None:
    (dataset,) = glue.datasets("record")
    text = 'record query: @placeholder stayed entities: Bob, Ann passage: He said "no" It rained. Ann left. Bob stayed'
    assert [(one.input, one.references) for one in dataset.examples(RECORD, train=True)] == [
        (text, ("Bob",)),
        (text, ("Ann",)),
    ]
    assert [one.references for one in dataset.examples(RECORD, train=False)] == [("Bob", "Ann")]


def test_a_marked_word_that_is_elsewhere_is_left_alone() -> None:
    (dataset,) = glue.datasets("wsc")
    row = {"text": "The cat (it) sat .", "span1_text": "The cat", "span1_index": 0, "span2_text": "it", "label": True}
    assert dataset.examples({**row, "span2_index": 2}, train=True)[0].input == "wsc text: * The cat * (it) sat ."
    assert dataset.examples({**row, "span2_index": 99}, train=True)[0].references == ("True",)
    same = {**row, "text": "a it sat", "span1_text": "a", "span2_index": 1}
    assert dataset.examples(same, train=True)[0].input == "wsc text: * a * # it # sat"


def test_superglues_own_files_give_the_same_examples(tmp_path: Path) -> None:
    """Nested rows of SuperGLUE's archives, and the flat rows of the hub."""
    passage = "Ann met Bob. Ann left."
    own: dict[str, tuple[str, list[Any]]] = {
        "boolq": ("BoolQ", [{"question": "q", "passage": "p", "idx": 0, "label": True}]),
        "cb": ("CB", [{"premise": "P.", "hypothesis": "H.", "label": "neutral", "idx": 0}]),
        "rte": ("RTE", [{"premise": "P.", "hypothesis": "H.", "label": "not_entailment", "idx": 0}]),
        "multirc": (
            "MultiRC",
            [
                {
                    "idx": 3,
                    "version": 1.1,
                    "passage": {
                        "text": "It rained.",
                        "questions": [
                            {
                                "question": "What?",
                                "idx": 7,
                                "answers": [{"text": "Rain", "idx": 1, "label": 1}, {"text": "", "idx": 2, "label": 0}],
                            }
                        ],
                    },
                }
            ],
        ),
        "record": (
            "ReCoRD",
            [
                {
                    "source": "CNN",
                    "passage": {
                        "text": passage,
                        "entities": [{"start": 8, "end": 10}, {"start": 0, "end": 2}, {"start": 13, "end": 15}],
                    },
                    "qas": [
                        {
                            "query": "@placeholder left",
                            "answers": [
                                {"start": 0, "end": 2, "text": "Ann"},
                                {"start": 13, "end": 15, "text": "Ann"},
                            ],
                            "idx": 0,
                        }
                    ],
                    "idx": 0,
                }
            ],
        ),
        "wsc": (
            "WSC",
            [
                {
                    "text": "Ann met Bob when she came .",
                    "target": {"span1_index": 0, "span1_text": "Ann", "span2_index": 4, "span2_text": "she"},
                    "idx": 0,
                    "label": True,
                }
            ],
        ),
    }
    for folder, rows in own.values():
        write(tmp_path / folder, train=rows, val=rows)
    expected = {
        "boolq": [("boolq passage: p question: q", "True", "")],
        "cb": [("cb hypothesis: H. premise: P.", "neutral", "")],
        "rte": [("rte hypothesis: H. premise: P.", "not_entailment", "")],
        "multirc": [
            ("multirc question: What? answer: Rain paragraph: It rained.", "True", "3-7"),
            ("multirc question: What? answer:  paragraph: It rained.", "False", "3-7"),
        ],
        "record": [(f"record query: @placeholder left entities: Ann, Bob passage: {passage}", "Ann", "")],
        "wsc": [("wsc text: * Ann * met Bob when # she # came .", "True", "")],
    }
    for name, examples in expected.items():
        for split in read(name, tmp_path).values():
            assert [(one.input, one.references[0], one.group) for one in split] == examples


@pytest.mark.parametrize("layout", ["{}.parquet", "{}-00000-of-00001.parquet", "{}/0000.parquet", "{}.jsonl"])
def test_the_files_of_the_hub(tmp_path: Path, layout: str) -> None:
    rows = {"train": [{**T5["cola"][0], "idx": n} for n in range(3)], "validation": [{**T5["cola"][0], "idx": 0}]}
    for split, some in rows.items():
        file = tmp_path / "cola" / layout.format(split)
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".jsonl":
            file.write_text(lines(some), encoding="utf-8")
        else:
            parquet.write_table(pyarrow.Table.from_pylist(some), file)
    examples = read("cola", tmp_path)
    assert [len(examples[split]) for split in ("train", "test")] == [3, 1]
    assert examples["test"] == [Example("cola sentence: John made Bill.", ("acceptable",), dataset="cola")]


def test_several_parquet_files_and_nested_columns(tmp_path: Path) -> None:
    row = T5["multirc"][0]
    (tmp_path / "multirc").mkdir()
    for split, count in (("train", 3), ("validation", 1)):
        for n in range(count):
            table = pyarrow.Table.from_pylist([{**row, "answer": f"{split} {n}"}])
            parquet.write_table(table, tmp_path / "multirc" / f"{split}-{n:05}-of-{count:05}.parquet")
    examples = read("multirc", tmp_path)
    assert [one.input.partition("answer: ")[2][:7] for one in examples["train"]] == [f"train {n}" for n in range(3)]
    assert examples["test"][0].group == "3-7"
    (tmp_path / "multirc" / "train-00001-of-00003.parquet").unlink()
    with pytest.raises(ConfigError, match="multirc has 2 of 3 parquet files of a split"):
        read("multirc", tmp_path)


def test_mnli_has_two_tests_that_count_equally(tmp_path: Path) -> None:
    row = {**T5["mnli"][0], "idx": 0}
    path = write(tmp_path / "mnli", train=[row], validation_matched=[row] * 3, validation_mismatched=[row])
    test = read("mnli", path)["test"]
    assert [one.group for one in test] == ["validation_matched"] * 3 + ["validation_mismatched"]
    (dataset,) = glue.datasets("mnli")
    predictions = ["contradiction", "neutral", "neutral", "contradiction"]
    scores = dataset.metric.score(predictions, [one.references for one in test], [one.group for one in test])
    assert scores.score == pytest.approx((1 / 3 + 1) / 2)


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("cola", {"label": -1}, "it has no label, as in the published test files"),
        ("cola", {"label": None}, "it has no label"),
        ("cola", {"label": 2}, "'label' must be 0 to 1, or unacceptable or acceptable, got 2"),
        ("cola", {"label": "good"}, "got 'good'"),
        ("cola", {"sentence": 7}, "'sentence' must be text, got a int"),
        ("cola", {"sentence": None}, "'sentence' must be text, got a NoneType"),
        ("stsb", {"label": -1.0}, "it has no label"),
        ("stsb", {"label": 7.5}, "'label' must be a number from 0 to 5, got 7.5"),
        ("multirc", {"idx": 4}, "'idx' must be an object with the numbers paragraph and question"),
        ("record", {"answers": []}, "it has no label"),
        ("record", {"entities": "Bob"}, "'entities' must be a list of texts"),
        ("wsc", {"span1_index": -1}, "'span1_index' must be a whole number of at least 0, got -1"),
    ],
)
def test_rows_in_another_format(tmp_path: Path, name: str, change: dict[str, Any], problem: str) -> None:
    good = {**T5["mrpc"][0], "label": 1.0} if name == "stsb" else RECORD if name == "record" else T5[name][0]
    path = write(tmp_path / name, train=[good], validation=[good, {**good, **change}])
    with pytest.raises(ConfigError, match=problem) as error:
        read(name, path)
    assert "validation.jsonl, line 2: " in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_are_missing_or_something_else(tmp_path: Path) -> None:
    row = T5["cola"][0]
    path = write(tmp_path / "CoLA", train=[row])
    cases: dict[str, str] = {
        "has no file of cola for validation; expected cola/validation.jsonl": "",
        "has no rows": "\n",
    }
    cases |= {"line 1: it is not a JSON object": "plain", "no field 'sentence'": lines([{"sentnce": "x", "label": 1}])}
    for problem, content in cases.items():
        if content:
            (tmp_path / "CoLA" / "validation.jsonl").write_text(content, encoding="utf-8")
        with pytest.raises(ConfigError, match=problem) as error:
            read("cola", path)
        assert "\n" not in str(error.value)
    (tmp_path / "CoLA" / "validation.jsonl").unlink()
    (tmp_path / "CoLA" / "validation.parquet").write_bytes(b"no parquet")
    with pytest.raises(ConfigError, match=r"validation\.parquet is not a readable parquet file"):
        read("cola", path)
    with pytest.raises(ConfigError, match=r"there is no folder .*missing"):
        read("cola", tmp_path / "missing")
    with pytest.raises(ConfigError, match="no data set 'colla'; did you mean 'cola'"):
        glue.datasets("colla")
    with pytest.raises(ConfigError, match="cola is given 2 times"):
        glue.datasets("cola+cola")


def test_the_average_needs_all_15() -> None:
    scores = {name: n / 100 for n, name in enumerate(glue.NAMES)}
    assert glue_average(scores) == pytest.approx(sum(scores.values()) / 15)
    with pytest.raises(ConfigError, match="needs all 15 scores; missing: wsc"):
        glue_average({name: score for name, score in scores.items() if name != "wsc"})


@pytest.mark.parametrize("dataset", GLUE, ids=lambda dataset: dataset.name)
def test_a_right_answer_scores_1_and_a_wrong_one_less(dataset: glue.GlueDataset) -> None:
    rows = demo_rows(dataset, "test")
    examples = [one for n, row in enumerate(rows) for one in dataset.examples(row, False, n % len(dataset.tests))]
    references = [one.references for one in examples]
    groups = [one.group or str(n) for n, one in enumerate(examples)]
    assert dataset.metric.score([texts[0] for texts in references], references, groups).score == pytest.approx(1)
    assert dataset.metric.score(["?"] * len(examples), references, groups).score <= 0
