"""No process that a command starts imports a module from the current folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

MODULES = ("jinja2", "json", "pickle", "socket", "sqlalchemy", "tempfile", "torch")

STUDY = """
from lengthwise.config import EvaluationConfig, ModelConfig, TrainingConfig
from lengthwise.studies import Study, grid
import steps

study = Study(
    name="tiny",
    question="Is it safe?",
    runs=grid(["nope"], ["copy"], seeds=2, model=ModelConfig(d_model=8, num_layers=1, num_heads=1),
              training=TrainingConfig(train_length=4, steps=steps.STEPS, batch_size=2)),
    evaluation=EvaluationConfig(lengths=(4,), examples=2),
)
"""


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder whose modules say on import that they were executed."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    for name in MODULES:
        code = (
            f"open({str(folder / 'executed')!r}, 'a').write('{name} ')\nraise ImportError('from the current folder')\n"
        )
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
    return folder


def executed(folder: Path) -> str:
    file = folder / "executed"
    return file.read_text() if file.exists() else ""


@pytest.mark.medium
@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "{study}", "--workers=2", "--threads=1"),
        ("run", "{study}", "--workers=1", "--devices-per-run=2", "--threads=1"),
        ("tokenize", "{texts}", "--workers=2", "--output={out}"),
        ("bench", "nope", "--d-model=8", "--num-layers=1", "--num-heads=1", "--lengths=16", "--batch-tokens=16",
         "--rounds=2", "--warmup=0"),
    ],
    ids=lambda arguments: f"{arguments[0]} {arguments[2]}",
)  # fmt: skip
def test_children_import_nothing_from_the_current_folder(
    arguments: tuple[str, ...], hostile: Path, tmp_path: Path
) -> None:
    study = tmp_path / "study.py"
    study.write_text(STUDY, encoding="utf-8")
    (tmp_path / "steps.py").write_text("STEPS = 2\n", encoding="utf-8")  # a study imports what is beside it
    texts = tmp_path / "texts"
    texts.mkdir()
    for name in "abcd":
        (texts / f"{name}.txt").write_text(f"{name} text\n" * 200_000, encoding="utf-8")  # a part each
    paths = {"study": study, "texts": texts, "out": tmp_path / "out"}
    script = tmp_path / "lengthwise-script"  # as installed: unlike python -m, it does not search the current folder
    script.write_text("import sys\nfrom lengthwise.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n")
    command = [sys.executable, str(script), *(word.format(**paths) for word in arguments)]
    environment = {**os.environ, "LENGTHWISE_RESULTS": str(tmp_path / "results")}
    done = subprocess.run(command, cwd=hostile, env=environment, capture_output=True, text=True, check=False)
    assert executed(hostile) == ""
    assert done.returncode == 0, done.stderr


def test_python_m_imports_nothing_from_the_current_folder(hostile: Path) -> None:
    command = [sys.executable, "-m", "lengthwise", "list", "runs", "--results", "nowhere"]
    done = subprocess.run(command, cwd=hostile, capture_output=True, text=True, check=False)
    assert executed(hostile) == ""
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "nowhere" in done.stderr
