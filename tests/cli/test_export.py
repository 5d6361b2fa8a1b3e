"""`lengthwise export scores`, `answers`, `charts` and `model`."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise.store import open_results

Call = Callable[..., Any]


def plainly(ran: Any, says: str) -> None:
    assert ran.code == 2, (ran.out, ran.err)
    assert ran.err.count("\n") == 1, ran.err
    assert says in ran.err, ran.err


def test_files(here: Call, finished: Path, tmp_path: Path) -> None:
    words = [("scores", "tiny")] * 3 + [("answers", "tiny", "training")]
    for command, ending in zip(words, ("csv", "parquet", "tex", "csv"), strict=True):
        table = command[-1] if command[0] == "answers" else "scores"
        file = tmp_path / f"{table}.{ending}"
        ran = here("export", *command, "--out", file, "--results", finished)
        assert ran.code == 0, ran.err
        assert ran.out == f"{file}: {table} of tiny\n"
        content = file.read_bytes()
        plainly(
            here("export", *command, "--out", file, "--results", finished),
            "exists; name another file, or overwrite it with --force",
        )
        file.write_text("old")
        assert here("export", *command, "--out", file, "--results", finished, "--force").code == 0
        assert file.read_bytes() == content
    assert len(list(csv.DictReader(io.StringIO((tmp_path / "scores.csv").read_text())))) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "scores.csv",
        "scores.parquet",
        "scores.tex",
        "training.csv",
    ]


def test_standard_output(here: Call, finished: Path) -> None:
    ran = here("export", "scores", "tiny", "--out", "-", "--results", finished)
    assert ran.code == 0
    assert {row["length"] for row in csv.DictReader(io.StringIO(ran.out))} == {"4", "8"}


@pytest.mark.parametrize("words", [("scores",), ("answers", "training")], ids=lambda words: words[0])
def test_wrong_input(here: Call, finished: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    def export(out: object, study: str = "tiny") -> Any:
        return here("export", words[0], study, *words[1:], "--out", out, "--results", finished)

    plainly(export(tmp_path / "x.csv", "tini"), "there is no study 'tini'; did you mean 'tiny'")
    plainly(export(tmp_path / "x.xlsx"), "--out must end in .csv")
    plainly(export(tmp_path), "--out must be a file, got the folder")
    plainly(export(tmp_path / "none" / "x.csv"), "there is no folder")
    plainly(export(""), "--out is empty")
    plainly(export("s3://bucket/x.csv"), "got an address")
    (tmp_path / "link.csv").symlink_to("nowhere.csv")
    plainly(export(tmp_path / "link.csv"), "link.csv exists")
    assert [path.name for path in tmp_path.iterdir()] == ["link.csv"]


def test_a_study_without_results(here: Call, tmp_path: Path) -> None:
    with open_results(tmp_path / "results") as store:
        store.add_study("empty", evaluation={}, runs=[])
    for table in ("scores", "charts"):
        ran = here(
            "export",
            table,
            "empty",
            "--out",
            tmp_path / ("x" if table == "charts" else "x.csv"),
            "--results",
            tmp_path / "results",
        )
        plainly(
            ran,
            "yet, so there is nothing to export; run the study first, and `lengthwise list runs --study empty "
            "--results",
        )
    plainly(here("export", "scores", "x", "--out", "x.csv", "--results", tmp_path / "none"), "none")


@pytest.mark.medium
def test_charts(here: Call, finished: Path, tmp_path: Path) -> None:
    def export(*more: object) -> Any:
        return here("export", "charts", "tiny", "--out", tmp_path / "charts", "--results", finished, *more)

    plainly(export("--format", "pgn"), "there is no format 'pgn'; did you mean 'png'?; available: png, svg, pdf")
    plainly(
        here("export", "charts", "tini", "--out", tmp_path / "charts", "--results", finished), "did you mean 'tiny'"
    )
    assert not list(tmp_path.iterdir())
    ran = export()
    assert ran.code == 0, ran.err
    files = sorted(path.name for path in (tmp_path / "charts").iterdir())
    assert ran.out == f"{tmp_path / 'charts'}: {len(files)} charts of tiny\n"
    assert "copy-exact-match-by-length.svg" in files and all(name.endswith(".svg") for name in files)
    plainly(export(), "charts exists, and nothing is overwritten; name another folder, or add --force")
    (tmp_path / "charts" / files[0]).write_text("old")
    (tmp_path / "charts" / "own.txt").write_text("own")
    assert export("--force").code == 0
    assert (tmp_path / "charts" / files[0]).read_text().startswith("<svg")
    assert sorted(path.name for path in (tmp_path / "charts").iterdir()) == sorted([*files, "own.txt"])
    (tmp_path / "file").write_text("own")
    plainly(
        here("export", "charts", "tiny", "--out", tmp_path / "file", "--results", finished, "--force"), "file exists"
    )


def test_a_trained_model(here: Call, finished: Path, tmp_path: Path) -> None:
    """The folder has the logits of the stored run when transformers loads it, and is written once."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[hf]'")
    from lengthwise.store import open_folder
    from lengthwise.studies.trained_models import load_model

    with open_results(finished, create=False) as store:
        row = store.runs("tiny")[0]
    folder = tmp_path / "model"
    ran = here("export", "model", row.key[:8], "--out", folder, "--results", finished)
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[0] == f"{folder}: {row.label} on {row.task}, seed {row.seed}"
    assert json.loads((folder / "lengthwise.json").read_text())["run"] == row.key
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder)
    model = load_model(open_folder(finished), row).model.eval()
    tokens = torch.randint(0, loaded.config.vocab_size, (2, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(loaded(tokens).logits, model(tokens))
    plainly(
        here("export", "model", row.key, "--out", folder, "--results", finished),
        "model exists, and nothing is overwritten",
    )
    plainly(
        here("export", "model", "zzzz", "--out", tmp_path / "x", "--results", finished),
        "no run has a key that starts with",
    )
    plainly(
        here("export", "model", row.key, "--out", tmp_path / "none" / "x", "--results", finished), "there is no folder"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_unknown_exports_name_the_commands(here: Call) -> None:
    plainly(here("export", "score", "tiny"), "see `lengthwise export --help`")
    plainly(here("export", "scores", "tiny"), "export scores needs --out; see `lengthwise export scores --help`")
