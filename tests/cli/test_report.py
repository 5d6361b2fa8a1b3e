"""`lengthwise report`: the table, the page and the JSON."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


TWO = """
from lengthwise.config import EvaluationConfig, ModelConfig, TrainingConfig
from lengthwise.studies import Study, grid

study = Study(
    name="two",
    runs=grid(["nope", "fire-s"], ["copy", "reverse"], model=ModelConfig(d_model=16, num_layers=1, num_heads=2),
              training=TrainingConfig(train_length=4, steps=1, batch_size=4)),
    evaluation=EvaluationConfig(lengths=(4, 8), examples=16),
)
"""


def test_report(here: Call, finished: Path, tmp_path: Path) -> None:
    page = tmp_path / "deep" / "page.html"
    page.parent.mkdir()
    ran = here("report", "--study", "tiny", "--results", finished, "--output", page)
    assert ran.code == 0
    assert "exact match" in ran.out
    assert f"Report: {page}" in ran.out
    assert page.read_text(encoding="utf-8").lower().startswith("<!doctype html>")
    page.unlink()
    found = json.loads(here("report", "--results", finished, "--json").out)
    assert found["tasks"][0]["lengths"] == [4, 8]
    assert found["ranking"] is None, "one task"
    assert not page.exists()


@pytest.mark.medium
def test_the_published_rule_for_ties(here: Call, tmp_path: Path) -> None:
    """Models of one step get nothing right at twice the length, so that all are equal."""
    (tmp_path / "two.py").write_text(TWO)
    results = tmp_path / "results"
    assert here("run", tmp_path / "two.py", "--results", results, "--on", "inline").code == 0
    page, ranks = tmp_path / "page.html", {"average": (2 / 3, 2 / 3), "published": (1, 1 / 2)}
    for ties, wanted in ranks.items():
        words = ["report", "--results", results, "--ties", ties, "--output", page]
        found = json.loads(here(*words, "--json").out)["ranking"]
        assert found["ties"] == ties
        assert [(rank["label"], rank["longer"]["mean"]) for rank in found["ranks"]] == [
            ("NoPE", pytest.approx(wanted[0])), ("FIRE-S", pytest.approx(wanted[1]))
        ]  # fmt: skip
        published = ties == "published"
        assert ("the published rule" in page.read_text(encoding="utf-8")) == published
        page.unlink()
        assert ("the published rule" in here(*words).out) == published
        assert ("the published rule" in page.read_text(encoding="utf-8")) == published


def test_results_come_from_the_environment(here: Call, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LENGTHWISE_RESULTS", str(finished))
    assert "FIRE-S" in here("list", "runs").out
