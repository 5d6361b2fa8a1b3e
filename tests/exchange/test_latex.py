"""Tables in LaTeX."""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.analysis import findings
from lengthwise.exchange.latex import escaped, latex_tables
from lengthwise.store import Store
from tests.exchange.conftest import score_data

pytest.importorskip("pandas")
Fill = Callable[..., list[dict[str, Any]]]
HOSTILE = "\\input{/etc/passwd} $x_1^2$ 50% #1 & ~ {a} <b> | ^^41 [c]\n\\end{tabular}"
DOCUMENT = "\\documentclass{article}\n\\usepackage{booktabs}\n\\begin{document}\n\\input{scores.tex}\n\\end{document}\n"


def table_of(store: Store) -> str:
    return latex_tables(store, "made")


def rows(text: str) -> dict[str, list[str]]:
    """The rows of a table by their label, without those of the intervals."""
    found = re.findall(r"^\{?(\S.*?)\}? & (.*) \\\\$", text, re.MULTILINE)
    return {label: cells.split(" & ") for label, cells in found}


def test_means_intervals_and_the_best(store: Store, made: Fill) -> None:
    made(store)
    text = table_of(store)
    lines = rows(text)
    assert lines["encoding"] == ["8", "16", "32"]
    assert lines["NoPE"] == ["1.000", "0.390", "0.150"]
    # At the training length, both are equal, so none is the best.
    assert lines["FIRE(hidden\\_layers=1)"] == ["1.000", r"\textbf{0.890}", r"\textbf{0.800}"]
    assert lines["constant (floor)"] == ["0.250"] * 3
    assert list(lines).index("FIRE(hidden\\_layers=1)") < list(lines).index("NoPE"), (
        "the best at the longest length is first"
    )
    (nope,) = (series for series in findings(store).tasks[0].series if series.label == "NoPE")
    interval = nope.point_at(16).interval  # as on the page
    assert rf"{{\scriptsize {interval.low:.3f}~\ldots{{}} {interval.high:.3f}}}" in text
    title = "Copy: exact match by length in symbols, higher is better"
    assert rf"\caption[{{{title}}}]{{{title}. Trained at 8 symbols" in text
    assert "3 seeds per score, 256 test examples per seed." in text
    assert r"Intervals: 95\,\% over seeds." in text
    assert "One seed" not in text
    assert r"\toprule" in text
    assert r"\multicolumn{2}{c}{longer}" in text


def test_a_single_seed_has_no_interval(store: Store, made: Fill) -> None:
    made(store, seeds=1)
    text = table_of(store)
    assert "One seed: there is no interval between seeds." in text
    assert "1 seed per score" in text
    assert not any(word in text for word in ("\\pm", "\\ldots", "scriptsize", "Intervals", "^{1}"))


def test_single_seeds_are_marked_among_others(store: Store, made: Fill) -> None:
    runs = made(store)
    store.drop([run["key"] for run in runs[1:3]], finished=True)
    lines = rows(text := table_of(store))
    assert lines["NoPE"][1] == "0.400$^{1}$"
    assert "^{1}" not in lines["FIRE(hidden\\_layers=1)"][1]
    assert "$^{1}$One seed: there is no interval between seeds." in text
    assert "1 to 3 seeds per score" in text


def test_many_lengths_are_in_several_tables(store: Store, made: Fill) -> None:
    lengths = tuple(range(8, 88, 8))
    asked = [{"length": n, "examples": 256, "seed": 0} for n in lengths]
    runs = made(store, done=False, questions=asked)
    for run in runs:
        store.add_answers(run["key"], [score_data(question, 0.9) for question in asked])
    text = table_of(store)
    heads = [row.split(" & ") for row in re.findall(r"encoding & (.*) \\\\", text)]
    assert [int(n) for row in heads for n in row] == list(lengths)
    assert max(map(len, heads)) == 4
    assert "(lengths 8 to 32)" in text
    assert re.findall(r"\\label\{(.*?)\}", text) == ["tab:made-1-1", "tab:made-1-2", "tab:made-1-3"]


def test_labels_are_escaped() -> None:
    assert escaped("a_b & 50%") == r"a\_b \& 50\%"
    assert escaped("\\x{1}") == r"\textbackslash{}x\{1\}"
    assert escaped("x--y\n\x07ü 2×") == "x-{}-{}y  ü 2$\\times$"
    for letter in map(chr, range(32, 127)):
        assert letter.isalnum() or letter in " '()*+,./:;=?@[]!" or escaped(letter) != letter, letter


def test_rows(store: Store, made: Fill) -> None:
    """A bracket at a row's beginning would be an option of the row before. Encodings without a score have no row."""
    runs = made(store, done=False, labels=("NoPE", "[3pt]", "RoPE"))
    for run in runs[:6]:
        store.add_answers(run["key"], [score_data(asked, 0.5) for asked in run["questions"]])
    text = table_of(store)
    assert "\n{[3pt]} & 0.500" in text and "RoPE" not in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_the_table_compiles(store: Store, made: Fill, tmp_path: Path) -> None:
    made(store, labels=("NoPE", "FIRE(hidden_layers=1)", HOSTILE, "[3pt]", "*", "“naïve” − 2×"))
    (tmp_path / "scores.tex").write_text(table_of(store))
    (tmp_path / "main.tex").write_text(DOCUMENT)
    words = ["pdflatex", "-no-shell-escape", "-interaction=nonstopmode", "-halt-on-error", "main.tex"]
    ran = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False, timeout=120
    )
    assert ran.returncode == 0, ran.stdout[-2000:]
    assert "(/etc/passwd" not in ran.stdout.replace("\n", "")
    assert (tmp_path / "main.pdf").read_bytes().startswith(b"%PDF")
