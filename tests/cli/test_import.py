"""`lengthwise export bundle` and `lengthwise import`; tests/exchange/test_bundles.py has what bundles may contain."""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


def plainly(ran: Any, says: str) -> None:
    assert ran.code == 2, (ran.out, ran.err)
    assert ran.err.count("\n") == 1, ran.err
    assert says in ran.err, ran.err


def test_a_study_moves_to_another_folder(here: Call, finished: Path, tmp_path: Path) -> None:
    file, there = tmp_path / "tiny.zip", tmp_path / "there"
    ran = here("export", "bundle", "tiny", "--out", file, "--results", finished)
    assert (ran.code, ran.out) == (0, f"{file}: tiny with 2 runs, 7 answers and the weights of 2 runs\n"), ran.err
    plainly(here("export", "bundle", "tiny", "--out", file, "--results", finished), "overwrite it with --force")
    assert here("export", "bundle", "tiny", "--out", file, "--results", finished, "--force").code == 0
    ran = here("import", file, "--results", there)
    assert ran.code == 0, ran.err
    assert ran.out == f"tiny in {there / 'results.db'}: added 2 runs, 7 answers, 2 weights files\n"
    ran = here("import", file, "--results", there)
    assert (ran.code, ran.out) == (0, f"tiny in {there / 'results.db'}: nothing new\n")
    pages = []
    for results in (finished, there):
        page = tmp_path / f"{len(pages)}.html"
        assert here("report", "--study", "tiny", "--output", page, "--results", results).code == 0
        pages.append(page.read_bytes())
    assert pages[0] == pages[1]
    assert here("probe", "attended-distance", *key_of(here, there), "--lengths", "4", "--results", there).code == 0
    ran = here("export", "bundle", "tiny", "--out", file, "--results", finished, "--no-weights", "--force")
    assert ran.out == f"{file}: tiny with 2 runs, 7 answers and the weights of 0 runs\n"
    assert not ran.err
    for weights in (there / "runs").glob("*/weights.safetensors"):
        weights.unlink()
    ran = here("export", "bundle", "tiny", "--out", file, "--results", there, "--force")
    assert (ran.code, ran.err) == (0, "lengthwise: the bundle has no weights of 2 runs\n")


def key_of(here: Call, results: Path) -> list[str]:
    return [here("list", "runs", "--results", results).out.splitlines()[1].split()[0]]


def test_wrong_input(here: Call, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def export(study: str, out: object) -> Any:
        return here("export", "bundle", study, "--out", out, "--results", finished)

    plainly(export("tini", tmp_path / "x.zip"), "there is no study 'tini'; did you mean 'tiny'")
    plainly(export("tiny", tmp_path / "x.tar"), "--out must end in .zip")
    plainly(export("tiny", tmp_path / "none" / "x.zip"), "there is no folder")
    there = tmp_path / "there"
    plainly(
        here("import", tmp_path / "none.zip", "--results", there), "(No such file or directory); nothing was imported"
    )
    plainly(here("import", "s3://bucket/x.zip", "--results", there), "got an address")
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as file:
        file.writestr("../../evil.py", "print(1)")
    plainly(
        here("import", tmp_path / "evil.zip", "--results", there), "it contains '../../evil.py', which no bundle has"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evil.zip"], "the results folder was not created"
    monkeypatch.setattr("lengthwise.exchange.bundle._add", lambda *file: 1 / 0)
    (tmp_path / "old.zip").write_bytes(b"old")
    assert here("export", "bundle", "tiny", "--out", tmp_path / "old.zip", "--results", finished, "--force").code == 2
    assert (tmp_path / "old.zip").read_bytes() == b"old", "an export that fails leaves the older file"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evil.zip", "old.zip"]
