"""A class that gives other results than its version did has to get a new version: stored runs are found by it."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise.encodings import T5, ALiBi
from lengthwise.positions import Shift
from lengthwise.tasks import Addition, Copy, LinearRegression

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


def test_changed_scores_losses_examples_and_parameters_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    score, loss, draw, randn = Copy.score, Addition.loss, LinearRegression.draw, torch.randn
    monkeypatch.setattr(Copy, "score", lambda self, logits, batch: score(self, logits, batch) / 2)
    monkeypatch.setattr(Addition, "loss", lambda self, logits, batch: loss(self, logits, batch) * (1 + 1e-5))
    monkeypatch.setattr(LinearRegression, "draw", lambda *given: [part * (1 + 3e-5) for part in draw(*given)])
    for make, what in ((Copy, "scores"), (Addition, "scores"), (LinearRegression, "examples")):
        assert f"length 2, {what}; " in (complaint(make) or "")
    monkeypatch.setattr(torch, "randn", lambda *shape, **options: randn(*shape, **options) * (1 + 1e-8))
    said = complaint(T5)
    assert said is not None
    assert "gives other results" in said


def test_rounding_of_another_machine_is_no_change() -> None:
    values = torch.arange(300.0)
    record = versions.summary(values, versions.FLOAT32_NUMBERS)
    for factor, same in ((1, True), (1 + 5e-6, True), (1 + 1e-5, False), (1 - 1e-5, False)):
        assert versions.alike(versions.summary(values * factor, versions.FLOAT32_NUMBERS), record.values) == same
    assert not versions.alike(versions.summary(values.double() * (1 + 1e-8)), record.values)
    one_token = values + (values == 7)
    assert not versions.alike(versions.summary(one_token), record.values)
    assert not versions.alike(versions.Record(["3f"]), ["40"])
    assert not versions.alike(versions.Record([41, 20]), [40, 20])


def test_the_script_keeps_numbers_that_differ_only_by_rounding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "versions.json"
    file.write_text(versions.FILE.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(versions, "FILE", file)
    monkeypatch.setattr(versions, "classes", lambda: [(Addition, versions.of_task)])
    loss = Addition.loss
    monkeypatch.setattr(Addition, "loss", lambda self, logits, batch: loss(self, logits, batch) * (1 + 1e-7))
    assert versions.main() == 0
    assert versions.known()["task Addition"] == KNOWN["task Addition"]


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
