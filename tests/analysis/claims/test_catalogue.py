"""The claims themselves: their studies, tasks, encodings and lengths exist, and the page is up to date."""

import importlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lengthwise.analysis import TaskFindings, findings
from lengthwise.analysis.claims import CLAIMS, STORED_NAMES, Claim, Rows
from lengthwise.analysis.claims.claim_tests import Better, Falls, Keeps, SameAs
from lengthwise.analysis.claims.evidence import VERSIONS
from lengthwise.config import Run
from lengthwise.encodings import ENCODINGS
from lengthwise.store import open_store
from lengthwise.studies import Study, load
from lengthwise.tasks import TASKS

ROOT = Path(__file__).parents[3]


def test_names_are_unique_and_claims_are_complete() -> None:
    names = [claim.name for claim in CLAIMS]
    assert len(set(names)) == len(names)
    assert sum(bool(claim.tests) for claim in CLAIMS) >= 40
    for claim in CLAIMS:
        assert bool(claim.tests) != bool(claim.needs), claim.name
        assert claim.text.endswith("."), claim.name
        assert claim.source, claim.name
        assert not claim.needs.endswith("."), claim.name
        assert {rows.study for test in claim.tests for rows in test.all_rows} <= STORED_NAMES.keys(), claim.name


def test_published_ablations_are_those_of_the_study(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers at four times the training length, of the variant that a claim is about and of the one that it is
    compared with."""
    monkeypatch.syspath_prepend(str(ROOT / "studies" / "fire"))
    published = importlib.import_module("ablations").LONGER
    checked = 0
    for claim in CLAIMS:
        for test in claim.tests:
            if isinstance(test, (Better, SameAs)) and test.rows.study == "fire/ablations" and test.at == 4:
                for label in test.labels:
                    number = published[label][1]
                    assert any(f"{number:.{digits}f}" in claim.text for digits in (2, 3)), (claim.name, label)
                    checked += 1
    assert checked == 14


def test_every_test_states_what_it_tests() -> None:
    statements = [test.statement for claim in CLAIMS for test in claim.tests]
    assert all(re.fullmatch(r"\S.*[^.]", statement) for statement in statements)


def test_versions_are_those_of_the_classes() -> None:
    changed = {make.__name__: make.version for make in (*ENCODINGS, *TASKS) if make.version != 1}
    assert changed == VERSIONS


def studies(name: str) -> Study:
    """Return a study as its rows are stored, with the comparison that follows the choice of learning rates."""
    command, *options = name.split(" --set ")
    study = load(command, dict(option.split("=") for option in options))
    while study.then is not None:
        study = study.then(EqualScores({run.key: run for run in study.runs}))  # type: ignore[arg-type]
    return study


class EqualScores:
    """A store in which all runs have the same score at their training length."""

    def __init__(self, runs: dict[str, Run]):
        self.runs = runs

    def scores(self, keys: list[str]) -> list[SimpleNamespace]:
        return [SimpleNamespace(length=self.runs[key].training.train_length, mean=0.5, question={}) for key in keys]

    def answer(self, *_: Any) -> None:
        return None

    def runs_of(self, keys: list[str]) -> dict[str, SimpleNamespace]:
        return {key: SimpleNamespace(better="higher", step=9) for key in keys}


@pytest.mark.medium
@pytest.mark.parametrize("name", STORED_NAMES)
def test_claims_are_about_runs_that_the_study_has(name: str, tmp_path: Path) -> None:
    study = studies(name)
    assert study.name == STORED_NAMES[name]
    with open_store(tmp_path) as store:
        store.add_study(runs=study.rows(), **study.metadata())
        found = findings(store, study.name)
    checked = 0
    for claim, rows, labels, at in named(name):
        matching = [task for task in rows.select(found.tasks) if has_labels(task, labels)]
        assert len(matching) == 1, claim.name
        (task,) = matching
        lengths = longer_lengths(task) if at is None else {round(at * task.train_length)}
        assert lengths, claim.name
        assert lengths <= set(task.lengths), claim.name
        assert task.reference_length == task.train_length, claim.name
        checked += 1
    assert checked, "no claim is decided by this study, so it need not be listed"


def named(study: str) -> Iterator[tuple[Claim, Rows, list[str], float | None]]:
    """Yield the scores that claims name in a study: the rows, the labels and the length in training lengths."""
    for claim in CLAIMS:
        for test in claim.tests:
            at = test.at if isinstance(test, (Better, Falls, Keeps, SameAs)) else 1
            for rows in test.all_rows:
                if rows.study != study:
                    continue
                others = isinstance(test, Better) and test.than_rows is not None
                labels = [test.labels[0 if rows is test.all_rows[0] else 1]] if others else list(test.labels)
                yield claim, rows, labels, at if rows is test.all_rows[0] or not others else 1


def has_labels(task: TaskFindings, labels: Iterable[str]) -> bool:
    return set(labels) <= {series.label for series in task.series}


def longer_lengths(task: TaskFindings) -> set[int]:
    return set(task.of_kind("longer"))


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("claims")


def test_the_page_is_up_to_date(page: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert page.main(["--check"]) == 0, capsys.readouterr().err


@pytest.mark.medium
def test_an_outdated_page_is_noticed(
    page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(page, "PAGE", tmp_path / "claims.md")
    assert page.main(["--check"]) == 1
    assert capsys.readouterr().err == "docs/claims.md is out of date; run python docs/claims.py\n"
    assert page.main([]) == 0
    assert page.main(["--check"]) == 0


def test_the_page_has_every_claim_with_its_verdict(page: ModuleType) -> None:
    text = page.page()
    sections = re.split(r"^### ", text, flags=re.M)[1:]
    assert [section.partition("\n")[0] for section in sections] == [claim.name for claim in CLAIMS]
    verdict = re.compile(r"\*\*(Holds here|Contradicted at this scale|Cannot tell|Not tested)\.\*\*")
    assert all(len(verdict.findall(section)) == 1 for section in sections)


def test_stored_scores_of_an_older_class_are_noticed(page: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "version 1 of FIRE" not in page.page()
    monkeypatch.setitem(VERSIONS, "FIRE", 2)
    assert "version 1 of FIRE" in " ".join(page.page().split())
