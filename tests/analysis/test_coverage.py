"""The coverage of every 95 % interval: as stored, and by small simulations that would notice a wrong formula."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
LOWEST = 0.92


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        spec = importlib.util.spec_from_file_location("coverage_of_intervals", BENCHMARKS / "coverage.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCHMARKS))
    return module


def test_the_stored_coverage_is_above_its_limit(benchmark: ModuleType) -> None:
    figures = json.loads((BENCHMARKS / "results" / "coverage.json").read_text(encoding="utf-8"))["figures"]
    for part, cases in benchmark.PARTS.items():
        assert {name: list(found) for name, found in figures[part].items()} == {n: list(c) for n, c in cases.items()}
        for statistic, found in figures[part].items():
            for case, by_seeds in found.items():
                assert list(by_seeds) == [f"{seeds} seeds" for seeds in benchmark.SEEDS]
                for seeds, share in by_seeds.items():
                    where = f"{statistic}, {case}, {seeds}: {share['coverage']}"
                    assert part == "limited" or share["coverage"] >= LOWEST, where


@pytest.mark.parametrize(
    ("statistic", "case", "studies"),
    [
        ("score, shares", "mean 0.98, sd 0.02", 600),
        ("score, shares", "mean 0.995, sd 0.004", 600),
        ("score, losses", "seeds 0.01 on the same texts, standard error 0.04", 600),
        ("score, losses", "examples, equal seeds", 600),
        ("score, groups of prompts", "both 1", 300),
        ("effective length", "shares, threshold 0.8", 300),
        ("area", "losses", 400),
        ("difference", "effect 1", 600),
        ("effect size", "effect 0.5", 600),
        ("standard deviation of differences", "normal differences", 600),
    ],
)
def test_intervals_of_simulated_studies(benchmark: ModuleType, statistic: str, case: str, studies: int) -> None:
    """Three seeds. With 300 studies the share varies by 1.3 percentage points (one standard deviation)."""
    found = benchmark.coverage(benchmark.CASES[statistic][case], 3, studies, start=1)["coverage"]
    assert 0.90 <= found <= 0.99


def test_a_wrong_interval_is_noticed(benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The normal quantile instead of Student's t, of three seeds, contains the true mean in about 81 % of studies."""
    monkeypatch.setattr("lengthwise.analysis.estimates.quantile_t", lambda degrees: 1.959964)
    found = benchmark.coverage(benchmark.CASES["score, losses"]["seeds"], 3, 600)["coverage"]
    assert found == pytest.approx(0.81, abs=0.05)


def test_students_t_of_shares_near_1_is_too_narrow(benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Why shares have a method of their own."""
    monkeypatch.setattr(benchmark, "EXACT_MATCH", benchmark.CROSS_ENTROPY)
    found = benchmark.coverage(benchmark.CASES["score, shares"]["mean 0.98, sd 0.02"], 3, 600)["coverage"]
    assert found == pytest.approx(0.88, abs=0.04)
