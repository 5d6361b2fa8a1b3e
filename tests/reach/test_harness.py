"""Retrieval tasks as tasks of lm-evaluation-harness."""

import json
import runpy
from pathlib import Path

import pytest

from lengthwise.cli import main
from lengthwise.config import ConfigError
from lengthwise.evaluation.harness import write_rows
from lengthwise.reach.harness import retrieval_rows
from lengthwise.reach.tasks import TASKS
from lengthwise.reach.text import Text, read_text
from tests.reach.models import prose


def text_in(path: Path, content: str) -> Text:
    path.write_text(content, encoding="utf-8")
    return read_text(path)


@pytest.mark.parametrize("name", list(TASKS))
def test_a_prompt_has_its_length_and_the_answer_once_found(name: str, tmp_path: Path) -> None:
    text = text_in(tmp_path / "text.txt", " ".join(f"w{n}" for n in range(900)))
    tasks = retrieval_rows([name, name], text, [120, 240], count=6, seed=3)
    assert [(task.label, task.length) for task in tasks] == [(name, 120), (name, 240)]
    for task in tasks:
        for row in task.rows:
            whole = f"{row['prompt']} {row['answer']}"
            assert len(whole.split()) == task.length == row["length"]
            if name in ("needle", "keys", "copying"):
                assert str(row["prompt"]).count(str(row["answer"])) == 1
    assert [row["answer"] for row in tasks[0].rows] == [
        row["answer"] for row in tasks[1].rows
    ]  # as in lengthwise reach
    firsts = [str(row["prompt"]).split()[0] for row in tasks[0].rows]
    if name == "needle":  # the first and the sixth example begin with the sentence, at depth 0
        assert firsts[0] == firsts[5] == "The" and firsts[1] != "The"
        depths = [str(row["prompt"]).split().index("number") / 120 for row in tasks[0].rows]
        assert depths == sorted(depths[:5]) + depths[:1]
        starts = [
            min(int(word[1:]) for word in str(row["prompt"]).split() if word[1:].isdigit()) for row in tasks[0].rows
        ]
        assert starts == sorted(starts) and starts[-1] > 700  # windows over the whole text


def test_what_is_refused(tmp_path: Path) -> None:
    text = text_in(tmp_path / "text.txt", prose(50))
    with pytest.raises(ConfigError, match="words, fewer than the length of 100,000; name a longer text"):
        retrieval_rows(["needle"], text, [100_000], count=2, seed=0)
    with pytest.raises(ConfigError, match="--lengths 5 is too short for the sentences and the question of needle"):
        retrieval_rows(["needle"], text, [5], count=2, seed=0)


def test_written_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("datasets", reason="datasets is not installed: pip install '.[lm-eval]'")
    text = text_in(
        tmp_path / "text.txt", "one\u2028two\x85three {{four}} " * 60
    )  # separators that str.splitlines knows
    out = tmp_path / "out"
    written = write_rows(out, retrieval_rows(["needle"], text, [60], count=4, seed=0))
    assert [task.name for task in written] == ["lengthwise_needle_60"]
    assert "process_results: !function examples.beginning" in (out / "lengthwise_needle_60.yaml").read_text()
    module = runpy.run_path(str(out / "examples.py"))
    rows = module["lengthwise_needle_60"]()["test"]
    assert len(rows) == 4 and "\u2028" in rows[0]["prompt"]
    for continued, score in {" 12345.": 1.0, "12345": 1.0, " 12345 and": 1.0, "123456": 0.0, " 1234": 0.0}.items():
        assert module["beginning"]({"answer": "12345"}, [continued]) == {"exact_match": score}, continued


def test_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "text.txt", tmp_path / "out"
    file.write_text(prose(400))
    settings = ["--lengths", "60", "--examples", "3", "--out"]
    assert main(["harness", "needle", "copy", "--text", str(file), *settings, str(out)]) == 0
    said = capfd.readouterr().out
    assert "lm_eval --model hf --model_args pretrained=FOLDER,max_length=TOKENS" in said
    assert "lengthwise_copy_60,lengthwise_needle_60" in said
    lines = (out / "lengthwise_needle_60.jsonl").read_text().splitlines()
    assert [json.loads(line)["length"] for line in lines] == [60] * 3
    for words, message in (
        (["needle"], "needle needs --text"),
        (["copy", "--text", str(file)], "--text belongs to retrieval tasks"),
        (["needle", "--text", str(file), "--prompt", "{input}"], "--prompt has no effect"),
        (["copy", "--prompt", "x"], "--prompt must contain {input}"),
    ):
        assert main(["harness", *words, *settings, str(tmp_path / "other")]) == 2
        assert message in capfd.readouterr().err
    assert not (tmp_path / "other").exists()
