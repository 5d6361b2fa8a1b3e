"""Our tasks as tasks of lm-evaluation-harness. tests/huggingface/test_packages.py evaluates them with it."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from lengthwise.config import Choice, ConfigError, choose
from lengthwise.evaluation.harness import HarnessTask, question_rows, write_rows
from lengthwise.tasks import TASKS, Addition, Copy, Text


def write_tasks(folder: str | Path, choices: list[Choice], lengths: list[int], **options: Any) -> list[HarnessTask]:
    return write_rows(folder, question_rows(choices, lengths, **options))


def test_the_examples_are_those_of_an_evaluation(tmp_path: Path) -> None:
    choice = TASKS.parse("copy:symbols=5")
    (task,) = write_tasks(tmp_path / "out", [choice, choice], [4, 4], count=7, seed=3, prompt="Copy: {input}\nCopy:")
    assert (task.name, task.count, task.tokens) == ("lengthwise_copy_symbols_5_4", 7, 9)
    own = choice.build()
    rows = own.render(own.examples(3, 7, 4))
    lines = (tmp_path / "out" / f"{task.name}.jsonl").read_text().splitlines()
    expected = [{"prompt": f"Copy: {r['input']}\nCopy:", "answer": r["target"], "length": 4} for r in rows]
    assert [json.loads(line) for line in lines] == expected
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        f"{task.name}.yaml", f"{task.name}.jsonl", "examples.py",
    }  # fmt: skip


def test_what_is_refused(tmp_path: Path) -> None:
    def refused(words: str, *arguments: object, **options: object) -> None:
        with pytest.raises(ConfigError, match=words):
            write_tasks(*arguments, **{"count": 3, **options})  # type: ignore[arg-type]

    refused("nothing is overwritten", tmp_path, [choose(Copy)], [3])
    refused("there is no folder", tmp_path / "a" / "b", [choose(Copy)], [3])
    refused("Text has no questions and answers in words", tmp_path / "a", [choose(Text)], [3])
    refused("length must be at least 1", tmp_path / "a", [choose(Addition)], [0])
    refused("got an address", "s3://bucket/folder", [choose(Copy)], [3])
    assert not list(tmp_path.iterdir()), "nothing half-written"


def scores(folder: Path) -> dict[str, Any]:
    """Return the functions that the tasks in a folder call."""
    pytest.importorskip("datasets", reason="datasets is not installed: pip install '.[lm-eval]'")
    return runpy.run_path(str(folder / "examples.py"))


def test_a_space_before_an_answer_does_not_count(tmp_path: Path) -> None:
    """Tokenizers such as those of GPT-2 and Llama 3 generate it after a prompt that ends with a word."""
    write_tasks(tmp_path / "out", [choose(Copy)], [3], count=1)
    assert "process_results: !function examples.whole" in (tmp_path / "out" / "lengthwise_copy_3.yaml").read_text()
    whole = scores(tmp_path / "out")["whole"]
    for text, score in {" a b": 1.0, "a b\n": 1.0, "a  b": 0.0, "a b c": 0.0, "": 0.0}.items():
        assert whole({"answer": "a b"}, [text]) == {"exact_match": score}, text
