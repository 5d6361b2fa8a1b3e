"""`lengthwise claims`: on an empty, a partial and an old store, and what it prints."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.analysis.claims import CLAIMS
from lengthwise.analysis.claims.evidence import VERSIONS
from lengthwise.store import open_store
from lengthwise.studies import load
from tests.made_answers import score_answer

Call = Callable[..., Any]
SCORES = {"NoPE": (0.9, 0.92, 0.91), "T5": (0.3, 0.3, 0.31)}  # of each seed at longer lengths; all others have 0


def store_copies(folder: Path, seeds: Iterable[int]) -> Path:
    """Store the runs of the study nope/small on copying repeated symbols, and the scores of some seeds."""
    study = load("nope/small")
    rows = [row for row in study.rows() if row["task"] == "Copy(symbols=200, pattern=repeated)"]
    with open_store(folder) as store:
        store.add_study(runs=rows, **study.metadata())
        for row in rows:
            if row["seed"] in seeds:
                store.add_answers(row["key"], [score(row, asked) for asked in row["questions"]])
    return folder


def score(run: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    length = asked["length"]
    mean = 1.0 if length <= run["train_length"] else SCORES.get(run["label"], (0.0, 0.0, 0.0))[run["seed"] - 1]
    return score_answer(asked, mean, 200, None)


def verdict_of(here: Call, folder: Path, name: str) -> tuple[str, list[str]]:
    (found,) = json.loads(here("claims", name, "--results", folder, "--json").out)
    return found["verdict"], found["reasons"]


def test_an_empty_folder_is_one_clear_line(here: Call, tmp_path: Path) -> None:
    ran = here("claims", "--results", tmp_path)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.count("\n") == 1
    assert "there are no results at" in ran.err


def test_a_store_of_other_studies_tests_no_claim(here: Call, finished: Path) -> None:
    ran = here("claims", "--results", finished)
    assert ran.code == 0
    assert (
        f"{len(CLAIMS)} claims: holds here 0, contradicted at this scale 0, cannot tell 0, not tested {len(CLAIMS)}."
        in ran.out
    )
    assert ran.out.splitlines()[-1] == (
        "None has scores in this results folder; `lengthwise run nope/small` produces the first ones."
    )


def test_claims_are_judged_by_the_scores_of_a_store(here: Call, tmp_path: Path) -> None:
    folder = store_copies(tmp_path, (1, 2, 3))
    ran = here("claims", "--results", folder)
    assert ran.code == 0
    lines = {line.split()[0]: line for line in ran.out.splitlines() if line.strip()}
    assert "holds here" in lines["nope-2"]
    assert "not tested" in lines["fire-1"]
    assert lines.keys() >= {claim.name for claim in CLAIMS}
    assert "None has scores" not in ran.out
    assert {len(line) for line in ran.out.splitlines()} <= set(range(161))


def test_one_claim_is_shown_with_its_source_and_tests(here: Call, tmp_path: Path) -> None:
    ran = here("claims", "nope-2", "--results", store_copies(tmp_path, (1, 2, 3)))
    assert ran.code == 0
    for words in (
        "nope-2: holds here\n",
        "(Kazemnejad et al. 2023 (NoPE), result files of the repository)\n",
        "Tests:\n  NoPE is better than T5 over all longer lengths (on Copy(symbols=200, pattern=repeated))\n",
        "NoPE has 0.910 and T5 0.303 (exact match)",
        "Commands:\n  lengthwise run nope/small\n",
    ):
        assert words in ran.out


def test_a_partial_store_says_what_is_not_done(here: Call, tmp_path: Path) -> None:
    folder = store_copies(tmp_path, (1, 2))
    verdict, reasons = verdict_of(here, folder, "nope-2")
    assert verdict == "cannot tell"
    assert reasons == [
        "too few seeds: NoPE on Copy(symbols=200, pattern=repeated) has 2, and 3 are needed (15 runs of nope/small are "
        "not done)"
    ]
    verdict, reasons = verdict_of(here, folder, "nope-7")
    assert verdict == "not tested"
    assert reasons == ["there are no scores of NoPE on Copy(symbols=40, pattern=replaced); `lengthwise run nope/small` "
                       "produces them"]  # fmt: skip


def test_a_study_without_any_score_yet(here: Call, tmp_path: Path) -> None:
    verdict, (reason,) = verdict_of(here, store_copies(tmp_path, ()), "nope-2")
    assert verdict == "not tested"
    assert reason.startswith("NoPE has no score over all longer lengths on Copy(symbols=200, pattern=repeated); ")
    assert reason.endswith("15 runs are not done, and the command continues them")


def test_scores_of_an_older_class_are_one_clear_line(
    here: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = store_copies(tmp_path, (1, 2, 3))
    monkeypatch.setitem(VERSIONS, "Copy", 2)
    assert verdict_of(here, folder, "nope-2") == (
        "not tested",
        [
            "these scores are of version 1 of Copy, which has changed since; `lengthwise run nope/small` produces new "
            "ones"
        ],
    )


def test_the_claims_of_one_source(here: Call, finished: Path) -> None:
    shown = here("claims", "fox", "--results", finished)
    assert shown.code == 0
    assert "\nfox-1  not tested  " in shown.out
    assert "\n1 claim: holds here 0, " in shown.out
    names = [row["name"] for row in json.loads(here("claims", "cope", "--json", "--results", finished).out)]
    assert len(names) > 1 and all(name.startswith("cope-") for name in names)


def test_an_unknown_claim_is_one_clear_line(here: Call, finished: Path) -> None:
    ran = here("claims", "nope2", "--results", finished)
    assert ran.code == 2
    assert ran.err == ("lengthwise: there is no claim 'nope2'; did you mean 'nope-2'?; docs/claims.md lists them\n")
