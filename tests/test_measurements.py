"""Measured figures in the documentation come from stored results: tables are generated, prose quotes no own figures."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
# The log is a diary whose entries have their own commands. The others are generated from beginning to end.
GENERATED = ("claims.md", "battery.md", "battery-scores.md", "which-encoding.md")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = [page for page in PAGES if page.name not in ("log.md", *GENERATED)]
QUANTITY = re.compile(
    r"(?:\d[\d,.]*|\b(?:half|two|three|four|five|ten|hundred)) ?"
    r"(?:times|x|%|ms|s|seconds?|minutes?|hours?|[KMG]i?B|nats|as fast)(?!\w)|\b(?:twice|half) (?:as|the)\b"
)
# What the pattern finds although nothing was measured: limits and settings of the program, definitions, estimates.
NOT_MEASURED = {
    "README.md": ("95 % interval", "(0.3 GB more)"),
    "kernels.md": ("0 times NaN", "more than 32 MiB", "more than 4 GiB", "limited to ten minutes"),
    "measurements.md": (
        "ratios of two times that",
        "95 % interval",
        "How often the 95 % intervals",
        "with a probability of at least 95 %",
        "false claim is at most 5 %",
        "has to change by at least 5 %",
    ),
    "language-modelling.md": ("stands for 2 % of the parent's training", "0.5 to 2 % of the tokens"),
    "reach.md": ("95 % interval",),
    "exporting.md": ("95 % intervals",),
    "huggingface.md": ("its 95 % interval is a bootstrap", "4 times ... as much"),
    "several-machines.md": (
        "needs at least 2 minutes",
        "ends 90 seconds",
        "after a minute",
    ),
    "downstream.md": ("need at most 2 GiB",),
    "statistics.md": (
        "differ more in 99 % of studies",
        "resampled (1,000 times",
        "central 95 % of the posterior",
        "95 % interval",
        "at the level of 5 %",
        "in 80 % of studies",
        "times the observed standard deviation",
        "allow 0.52 to 6.28 times",
    ),
    "probes.md": ("0.3 nats over all keys",),
}


@pytest.fixture(scope="module")
def measurements() -> ModuleType:
    spec = importlib.util.spec_from_file_location("measurements", ROOT / "docs" / "measurements.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def quoted(text: str) -> list[str]:
    """Return the sentences that quote a quantity outside of generated tables and code."""
    text = re.sub(r"<!-- table: .*?<!-- end of table -->", "", text, flags=re.S)
    text = re.sub(r"^(`{3,}).*?^\1|^\|.*?\|$", "", text, flags=re.M | re.S)
    lines = " ".join(text.split())
    return [lines[max(0, m.start() - 60) : m.end() + 30] for m in QUANTITY.finditer(lines)]


def test_the_tables_are_up_to_date(measurements: ModuleType) -> None:
    for page in measurements.PAGES:
        text = page.read_text(encoding="utf-8")
        assert measurements.with_tables(text, page) == text, f"{page.name}: run python docs/measurements.py"


def test_every_table_is_on_a_page(measurements: ModuleType) -> None:
    marked = {
        match["name"] for page in measurements.PAGES for match in measurements.MARKED.finditer(page.read_text("utf-8"))
    }
    assert marked == set(measurements.TABLES)


def test_a_stale_table_is_found(
    measurements: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table: startup -->\n<!-- end of table -->\nafter\n")
    monkeypatch.setattr(measurements, "PAGES", (page,))
    monkeypatch.setattr(measurements, "ROOT", tmp_path)
    monkeypatch.setattr(measurements, "stored", lambda name: {"made": MADE, "figures": {"python": TIMES}})
    assert measurements.main(["--check"]) == 1
    assert capsys.readouterr().err == "page.md has tables that are out of date; run python docs/measurements.py\n"
    assert measurements.main([]) == 0
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n")
    assert "| python | 1.00 (0.50-2.00) |" in text
    assert "startup.json" in text and "commit abc" in text
    assert measurements.main(["--check"]) == 0
    TIMES["median"] = 1.25
    assert measurements.main(["--check"]) == 1
    page.write_text("<!-- table: none -->\n<!-- end of table -->")
    with pytest.raises(SystemExit, match=r"page\.md marks the table 'none', which does not exist; available: "):
        measurements.main([])


TIMES = {"median": 1.0, "low": 0.5, "high": 2.0}
MADE = {
    "commit": "abc",
    "processor": "some CPU",
    "torch": "2",
    "date": "2026-01-01",
    "command": "python benchmarks/startup.py",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_prose_quotes_no_figure(page: Path) -> None:
    allowed = NOT_MEASURED.get(page.name, ())
    found = [words for words in quoted(page.read_text(encoding="utf-8")) if not any(part in words for part in allowed)]
    assert found == [], "put measured figures into a generated table (docs/measurements.py)"


def test_a_quoted_figure_is_found() -> None:
    for sentence in ("FIRE takes 1.2 times as long.", "It needs 40 MiB.", "is twice as fast", "in 3 ms", "12 % faster"):
        assert quoted(f"Some text. {sentence}"), sentence
        assert not quoted(f"<!-- table: a -->\n{sentence}\n<!-- end of table -->"), sentence
