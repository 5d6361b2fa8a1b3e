"""docs/adding-a-task.md, and the plug-in section of docs/adding-an-encoding.md: what they tell one to write works."""

import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lengthwise.analysis import findings
from lengthwise.cli import main
from lengthwise.config import TrainingConfig
from lengthwise.encodings import ENCODINGS
from lengthwise.metrics import Metric
from lengthwise.store import open_store
from lengthwise.studies import grid, load
from lengthwise.tasks import TASKS

DOCS = Path(__file__).parent.parent / "docs"
TASK = (DOCS / "adding-a-task.md").read_text(encoding="utf-8")
ENCODING = (DOCS / "adding-an-encoding.md").read_text(encoding="utf-8").partition("## In a file of your own")
SLOW = ("lengthwise check",)  # half a minute; tests/cli/test_plugins.py asks the same


def blocks(kind: str, text: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", text, flags=re.S)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the files of both pages, which is the current one."""
    monkeypatch.chdir(tmp_path)
    named = re.findall(r"`(\w+\.py)`[^`]*```python\n(.*?)```", TASK, flags=re.S)
    assert [name for name, _ in named] == ["largest.py", "mystudy.py", "dictator.py"]
    for name, code in [*named, ("log_slopes.py", blocks("python", ENCODING[0])[0])]:
        (tmp_path / name).write_text(code, encoding="utf-8")
    yield tmp_path
    for name in ("largest", "by_token", "log_slopes"):
        sys.modules.pop(name, None)


@pytest.mark.medium
@pytest.mark.parametrize("text", [TASK, ENCODING[2]], ids=["task", "encoding"])
def test_every_command_works_as_written(
    place: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr("lengthwise.studies.estimate.MEASURING_SECONDS", 0.0)
    commands = [line for block in blocks("sh", text) for line in block.splitlines() if line.startswith("lengthwise ")]
    assert len(commands) >= 3
    for command in commands:
        inline = " --on inline" if command.startswith("lengthwise compare") else ""  # without worker processes
        if not command.startswith(SLOW):
            assert main(shlex.split(command + inline)[1:]) == 0, (command, capfd.readouterr().err)


def test_the_task_says_what_its_docstring_says(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["sample", "largest:base=3", "--plugin", "largest.py", "--length", "2", "--all", "--json"]) == 0
    rows = [re.search(r'"input": "(.*?)", "target": "(.*?)"', line) for line in capfd.readouterr().out.splitlines()]
    pairs = {(row[1], row[2]) for row in rows if row}
    assert len(pairs) == 9
    assert all(max(question.split()) == answer for question, answer in pairs)


def test_study_files_pass_the_classes_themselves(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {run.task.name for run in load("mystudy.py").runs} == {"Largest"}
    monkeypatch.syspath_prepend(str(place))
    statement, call = re.search(  # type: ignore[union-attr]
        r"\(`(from log_slopes .*?)`\).*?\n?`(grid\(.*?\))`",
        ENCODING[2],
        flags=re.S,
    ).groups()
    space: dict[str, Any] = {"grid": grid, "TrainingConfig": TrainingConfig}
    exec(statement, space)
    assert [run.encoding.name for run in eval(call, space)] == ["LogSlopes", "ALiBi"]


def test_a_declared_version_is_read(place: Path) -> None:
    (declared,) = [code for code in blocks("python", TASK) if "version = 2" in code]
    whole = (place / "largest.py").read_text(encoding="utf-8")
    line = next(line for line in declared.splitlines() if "version" in line)
    (place / "largest.py").write_text(
        whole.replace('    unit = "digits"', f'{line}\n    unit = "digits"'), encoding="utf-8"
    )
    from lengthwise.plugins import plugins

    with plugins(["largest.py"]):
        assert TASKS.parse("largest").to_data()["class"] == {"version": 2, "module": "largest"}


def test_a_metric_of_its_own_reaches_the_report(place: Path) -> None:
    (code,) = [code for code in blocks("python", TASK) if "metric = Metric" in code]
    (place / "by_token.py").write_text(code, encoding="utf-8")
    sizes = (
        "--train-length 4 --lengths 4,8 --steps 2 --d-model 16 --num-layers 1 --num-heads 2 --examples 8 --on inline"
    )
    assert main(f"compare nope --task largestbytoken --plugin by_token.py {sizes} --results out".split()) == 0
    with open_store("out", create=False) as store:
        (task,) = findings(store).tasks
        assert store.runs()[0].facts["metric"] == {"low": 0.0, "high": 1.0}
    assert task.metric == Metric(name="correct tokens", better="higher", low=0.0, high=1.0)
    (baseline,) = task.baselines
    assert (baseline.label, baseline.floor, sorted(baseline.scores)) == ("always the highest digit", True, [4, 8])
    assert all(0.5 <= score < 1.0 for score in baseline.scores.values()), "EOS is always correct, and nine is often"
    assert all(0.0 <= point.interval.low <= point.interval.high <= 1.0 for point in task.series[0].points)


@pytest.mark.parametrize(
    ("text", "registry", "name"),
    [(TASK, TASKS, "Largest"), (ENCODING[2], ENCODINGS, "LogSlopes")],
    ids=["task", "encoding"],
)
def test_the_entry_point_lists_it(place, monkeypatch, text, registry, name):
    (written,) = blocks("toml", text)
    ((group, points),) = tomllib.loads(written)["project"]["entry-points"].items()
    about = place / "mine-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    lines = "".join(f"{key} = {value}\n" for key, value in points.items())
    (about / "entry_points.txt").write_text(f"[{group}]\n{lines}")
    monkeypatch.syspath_prepend(str(place))
    before = registry.state()
    try:
        registry.restore(None)
        assert registry.find(name).__name__ == name
        assert registry.parse(name.lower()).to_data()["class"].keys() == {"code"}
        assert registry.broken == {}
    finally:
        registry.restore(before)
