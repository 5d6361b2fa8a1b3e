"""A class that gives other results than its version did has to get a new version: stored runs are found by it."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from lengthwise.encodings import ALiBi
from lengthwise.positions import Shift
from lengthwise.tasks import Copy

_spec = importlib.util.spec_from_file_location("versions", Path(__file__).with_name("versions.py"))
assert _spec
assert _spec.loader
versions = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(versions)

KNOWN = versions.known()
CLASSES = versions.classes()


@pytest.mark.parametrize(("make", "of"), CLASSES, ids=[versions.name_of(make) for make, _ in CLASSES])
def test_results_are_those_of_the_version(make: Any, of: Any) -> None:
    said = versions.complaint(make, of(make), KNOWN.get(versions.name_of(make)))
    assert said is None, said


def test_the_file_names_no_class_that_is_gone() -> None:
    assert set(KNOWN) == {versions.name_of(make) for make, _ in CLASSES}


def complaint(make: Any) -> str | None:
    of = dict(CLASSES)[make]
    return versions.complaint(make, of(make), KNOWN[versions.name_of(make)])


def test_changed_results_ask_for_a_new_version(monkeypatch: pytest.MonkeyPatch) -> None:
    bias, write, positions = ALiBi.bias, Copy.make_pairs, Shift.draw
    monkeypatch.setattr(ALiBi, "bias", lambda self, distance: bias(self, distance) * (1 + 1e-6))
    monkeypatch.setattr(Copy, "make_pairs", lambda self, symbols, length: write(self, symbols.flip(1), length))
    monkeypatch.setattr(Shift, "draw", lambda self, rows, tokens, g: positions(self, rows, tokens, g) + 1)
    for make, file in ((ALiBi, "encodings/alibi"), (Copy, "tasks/copy"), (Shift, "positions/shift")):
        said = complaint(make)
        assert said is not None
        assert said.startswith(
            f"{make.__name__} (src/lengthwise/{file}.py) gives other results than version {make.version} did"
        )
        assert f"raise the class attribute `version` to {make.version + 1}" in said
        assert "run `python tests/versions.py`" in said
        monkeypatch.setattr(make, "version", make.version + 1, raising=False)
        assert "has version" in (complaint(make) or "")


def test_changed_scores_and_parameters_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    score = Copy.score
    monkeypatch.setattr(Copy, "score", lambda self, logits, batch: score(self, logits, batch) / 2)
    assert "scores" in (complaint(Copy) or "")


def test_the_script_refuses_to_write_changed_results_under_an_old_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "versions.json"
    file.write_text(versions.FILE.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(versions, "FILE", file)
    monkeypatch.setattr(versions, "classes", lambda: [(ALiBi, versions.of_encoding)])
    bias = ALiBi.bias
    monkeypatch.setattr(ALiBi, "bias", lambda self, distance: bias(self, distance) * 2)
    before = file.read_text(encoding="utf-8")
    assert versions.main() == 1
    assert "ALiBi" in capsys.readouterr().err
    assert file.read_text(encoding="utf-8") == before
    monkeypatch.setattr(ALiBi, "version", 2, raising=False)
    assert versions.main() == 0
    assert versions.known()["encoding ALiBi"]["version"] == 2
