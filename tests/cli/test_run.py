"""`lengthwise run`: what it prints."""

from pathlib import Path


def test_run_shows_progress_then_the_table_then_the_page(finished: Path) -> None:
    out, err = (finished.parent / "said.txt").read_text().split("\n====\n")
    assert "tiny: 2 runs; 1 worker, results in" in err
    assert "NoPE, Copy, seed 0: starts" in err
    assert "[2/2] FIRE-S, Copy, seed 0: done in" in err
    assert "exact match" in out
    assert "FIRE-S" in out
    assert out.rstrip().endswith(f"Report: {finished / 'report.html'}")
    assert "FIRE-S" in (finished / "report.html").read_text(encoding="utf-8")
