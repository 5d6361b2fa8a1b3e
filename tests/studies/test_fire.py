"""The files in studies/fire and studies/lecture are studies that can be loaded and run, and describe themselves."""

from pathlib import Path

import pytest

from lengthwise.studies import StudyError, load

STUDIES = Path(__file__).parents[2] / "studies"
FILES = [path for name in ("fire", "lecture") for path in sorted((STUDIES / name).glob("*.py"))]
FILES = [path for path in FILES if path.stem != "language_modelling"]


@pytest.mark.medium
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_study_can_be_run(path: Path) -> None:
    study = load(path)
    study.check()
    text, name = path.read_text(), f"lengthwise run {path.parent.name}/{path.stem}"
    for words in ("Question:", "Expectation", "Outcome:", "Cost:", f"Command: {name}"):
        assert words in text
    assert study.expectation
    assert study.cost
    assert name in study.command


def test_all_are_here() -> None:
    assert {path.stem for path in FILES} == {
        "threshold", "small", "medium", "paper", "ablations", "extension", "extrapolation"
    }  # fmt: skip


def test_language_models_are_asked_both_protocols_on_every_domain() -> None:
    study = load(STUDIES / "fire" / "small.py", {"seeds": "1"})
    assert len(study.runs) == 20
    for row in study.rows():
        shifts = [asked.get("shift", {}) for asked in row["questions"] if asked["length"] == 256]
        assert [shift.get("path", "python:docstrings") for shift in shifts] == [
            name for name in ("python:docstrings", "python:manual", "python:source") for _ in range(2)
        ]
        assert [shift.get("targets", 0) for shift in shifts] == [0, 64] * 3


def test_ablations_are_those_of_the_tables() -> None:
    """The published means are over 4,096 and 8,192 tokens, the two lengths longer than training."""
    study = load(STUDIES / "fire" / "ablations.py", {"seeds": "1"})
    assert study.published is not None
    ((_, scores),) = study.published["scores"].items()
    assert set(scores) == {run.label for run in study.runs}
    assert scores["FIRE(hidden_layers=0)"] == pytest.approx((3.20 + 3.32) / 2)
    paper = load(STUDIES / "fire" / "ablations.py", {"scale": "paper"})
    assert {(run.model.d_model, run.training.train_length) for run in paper.runs} == {(768, 2048)}


def test_models_of_the_paper_have_its_sizes() -> None:
    for size, parameters in (("base", 85_000_000), ("large", 302_000_000)):
        run = load(STUDIES / "fire" / "paper.py", {"size": size}).runs[0]
        blocks = 12 * run.model.d_model**2 * run.model.num_layers  # without embeddings
        assert blocks == pytest.approx(parameters, rel=0.01)


@pytest.mark.parametrize(
    ("file", "options", "says"),
    [
        ("fire/paper.py", {"size": "huge"}, "size must be base or large, got 'huge'"),
        ("fire/ablations.py", {"scale": "big"}, "scale must be laptop or paper, got 'big'"),
        ("lecture/extrapolation.py", {"scale": "big"}, "scale must be laptop or paper, got 'big'"),
        ("fire/small.py", {"prose": "/nowhere"}, "there is no text at /nowhere"),
        ("fire/small.py", {"prosa": "x"}, "has no option 'prosa'; did you mean 'prose'?"),
    ],
)
def test_options_that_cannot_be(file: str, options: dict[str, str], says: str) -> None:
    with pytest.raises(StudyError, match=says.replace("?", r"\?")):
        load(STUDIES / file, options)


def test_every_run_of_the_extension_starts_from_a_trained_one() -> None:
    study = load(STUDIES / "fire" / "extension.py", {"seeds": "2", "factor": "8"})
    parents = {run.key for run in study.runs if run.parent is None}
    children = [run for run in study.runs if run.parent is not None]
    dropped = {run.key: run for run in children if run.encoding.name == "NoPE"}
    assert {run.parent.key for run in children if run.parent} - dropped.keys() == parents
    tuned = [run for run in children if run.training.steps and run.key not in dropped]
    assert {run.training.train_length for run in tuned} == {2048}
    assert len(children) - len(dropped) == 2 * (7 + 4 + 8)
    lengths = {(run.training.steps, run.training.train_length, run.model.qk_norm) for run in dropped.values()}
    assert lengths == {(20, 256, False), (100, 256, False), (100, 256, True), (0, 256, False)}
