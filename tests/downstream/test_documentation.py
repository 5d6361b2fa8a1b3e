"""The examples of docs/downstream.md run, on small files in the published formats at the paths that they name."""

import json
import re
from pathlib import Path

import pytest

from lengthwise.cli import main
from lengthwise.downstream.scrolls import NAMES, SCROLLS, demo_rows
from lengthwise.studies import Study

PAGE = (Path(__file__).parents[2] / "docs" / "downstream.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.chdir(tmp_path)
    texts = [row["input"] for row in demo_rows("train", 60)]
    (tmp_path / "texts.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8"
    )
    assert main(["tokenize", "texts.jsonl", "--output", "data/c4", "--tokenizer", "bpe:300"]) == 0
    for name in NAMES:
        folder = tmp_path / "data" / "scrolls" / name
        folder.mkdir(parents=True)
        for split, file in (("train", "train"), ("test", "validation")):
            rows = demo_rows(split, 4)
            (folder / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return tmp_path


def test_the_metric(capsys: pytest.CaptureFixture[str]) -> None:
    exec(BLOCKS[0], {})
    assert capsys.readouterr().out.startswith("100.0")


@pytest.mark.parametrize(("number", "metrics"), [(1, ["cross-entropy"] * 2), (2, ["cross-entropy"] * 2)])
def test_the_studies(number: int, metrics: list[str], files: Path) -> None:
    space: dict[str, object] = {}
    exec(BLOCKS[number], space)
    study = space["study"]
    assert isinstance(study, Study)
    names = [one.metric.name for one in SCROLLS for _ in range(2)] if number == 1 else ["F1", "F1"]
    assert [row["metric"] for row in study.rows()] == [*metrics, *names]
    for run in study.runs[2:]:
        assert run.task.build().vocab_size == study.runs[0].task.build().vocab_size


def test_the_table_has_the_metrics_of_the_list() -> None:
    rows = re.findall(r"^\| (\w+) \| `(\w+)` \| ([\w ]+) \| ([\d.]+) \|$", PAGE, flags=re.M)
    assert rows == [(one.title, one.name, one.metric.name, f"{one.paper:.2f}") for one in SCROLLS]
