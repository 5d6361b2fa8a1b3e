"""The pages that docs/battery.py generates, from invented rows: who has learned a task, who is named, and why."""

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lengthwise.analysis.claims import Claim, Evidence, Rows, judge
from lengthwise.analysis.claims.claim_tests import Learns

ROOT = Path(__file__).parents[1]
LENGTHS = (8, 16, 64)
STEPS = 2500
Table = Mapping[str, Sequence[Sequence[float | None]]]  # by encoding, the scores of each seed at the three lengths

SOLVED = [[1.0, 0.90, 0.60], [1.0, 0.91, 0.61], [1.0, 0.89, 0.62], [1.0, 0.92, 0.59], [1.0, 0.90, 0.58]]
UNLEARNED = 5 * [[0.5, 0.1, 0.0]]
NOTHING_LONGER = 5 * [[1.0, 0.0, 0.0]]


def shifted(by: float, noise: float = 0.0) -> list[list[float | None]]:
    """Return `SOLVED` with other scores at the longer lengths, and noise that differs between seeds."""
    signs = (1, -1, 1, -1, 0)
    return [
        [first, *(score + by + sign * noise for score in longer)]
        for sign, (first, *longer) in zip(signs, SOLVED, strict=True)
    ]


def figures(
    tasks: Mapping[str, Table],
    metric: tuple[str, str] = ("exact match", "higher"),
    stop: float | None = 0.98,
    steps: Mapping[str, Sequence[int]] = {},
) -> dict[str, Any]:
    """Return the rows of a study as benchmarks/study_rows.py stores them."""
    settings: dict[str, Any] = {"model.num_layers": 2, "model.d_model": 64, "model.num_heads": 4}
    settings |= {"training.steps": STEPS, "training.batch_size": 64}
    ends = {"training.stop.score": stop, "training.stop.times": 3, "training.stop.examples": 128}
    settings |= {} if stop is None else ends
    runs, scores, panels = [], [], []
    for task, table in tasks.items():
        keys = []
        for label, seeds in table.items():
            for seed, means in enumerate(seeds):
                key = f"{task}-{label}-{seed}"
                keys.append(key)
                own = steps[label][seed] if label in steps else 0 if " from " in label else 900
                runs.append({"key": key, "steps": own, "learning_rate": 0.003})
                scores += [
                    {"key": key, "label": label, "seed": seed, "length": length, "asked": {"length": length}}
                    | {"mean": mean, "standard_error": 0.01, "n": 128}
                    for length, mean in zip(LENGTHS, means, strict=True)
                ]
        panels.append(
            {"title": task, "task": task, "metric": metric[0], "better": metric[1], "unit": "symbols"}
            | {"train_length": 8, "shortest": 1, "trained": (1, 8), "settings": settings, "keys": keys}
            | {"baselines": [{"label": "zero", "floor": True, "scores": {8: 2.0}}] if stop == 0.4 else []}
        )
    return {"runs": runs, "scores": scores, "panels": panels}


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("battery")


@pytest.fixture
def results(pages: ModuleType) -> Any:
    return importlib.import_module("battery_results").results_from


@pytest.fixture
def guide(pages: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module of the guide, where the costs of a training step are known for some encodings."""
    ratios = {"RoPE": 10.2, "ALiBi": 2.0, "FIRE": 3.0}
    costs = [
        {"encoding": label, "training_ratio": ratio, "memory_ratio": 1.0, "decoding_ratio": 1.0}
        for label, ratio in ratios.items()
    ]
    monkeypatch.setattr(importlib.import_module("battery_results"), "costs", lambda: costs)
    return importlib.import_module("battery_guide")


# ---- what to take ----------------------------------------------------------------------------------------------------


def test_a_cheaper_encoding_is_named_only_if_it_is_shown_to_be_equally_good(guide: Any, results: Any) -> None:
    """ALiBi's mean is worse by less than the limit, but its seeds vary so much that it may be far worse."""
    noisy = {"FIRE": SOLVED, "ALiBi": shifted(-0.01, noise=0.2)}
    (result,) = results(figures({"Copy": noisy}))
    assert result.not_worse == ["FIRE", "ALiBi"]
    assert result.as_good == ["FIRE"]
    row = guide.purpose("copying", [result])
    assert row[1] == "FIRE"
    assert row[4] == "not significantly worse than the best: ALiBi"

    (result,) = results(figures({"Copy": {"FIRE": SOLVED, "ALiBi": shifted(-0.01, noise=0.002)}}))
    assert result.as_good == ["FIRE", "ALiBi"]
    row = guide.purpose("copying", [result])
    assert row[1] == "ALiBi and FIRE"
    assert row[4] == ""


def test_comparisons_are_corrected_for_those_with_the_best_alone(results: Any) -> None:
    """RoPE is worse by t = 6.6: significant among 10 comparisons, and not among all 55 pairs. T5 is worse by t = 4.0,
    which a single comparison would find."""
    close = {f"Other{n}": shifted(-0.005 - 0.001 * n, noise=0.03 + 0.002 * n) for n in range(8)}
    worse = {"T5": shifted(-0.09, noise=0.05), "RoPE": shifted(-0.148, noise=0.05)}
    (result,) = results(figures({"Copy": {"FIRE": SOLVED, **close, **worse}}))
    comparison = importlib.import_module("battery_results").compare_all(
        {label: result.scores[label] for label in result.order}, "higher"
    )
    (pair,) = [c for c in comparison if (c.first, c.second) == ("FIRE", "RoPE")]
    assert pair.p_holm is not None
    assert pair.p_holm > 0.05
    assert result.not_worse == ["FIRE", *close, "T5"]


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_equal_differences_of_all_seeds_count_as_significant(pages: ModuleType, better: str) -> None:
    compare_with = importlib.import_module("battery_results").compare_with
    others = {"worse": {0: 0.5, 1: 0.5}, "same": {0: 1.0, 1: 1.0}, "elsewhere": {7: 1.0}}
    sign = -1 if better == "higher" else 1
    assert compare_with({0: 1.0, 1: 1.0}, others, better) == {"worse": sign, "same": 0, "elsewhere": 0}


def test_an_encoding_is_named_if_it_is_equally_good_on_most_tasks(guide: Any, results: Any) -> None:
    """Each leads on one of three tasks, so none is among the best on most of them."""
    tasks = {
        "Copy": {"FIRE": SOLVED, "ALiBi": shifted(-0.2), "RoPE": shifted(-0.3)},
        "Reverse": {"FIRE": shifted(-0.2), "ALiBi": SOLVED, "RoPE": shifted(-0.3)},
        "Sorting": {"FIRE": shifted(-0.2), "ALiBi": shifted(-0.3), "RoPE": SOLVED},
        "Parity": {"FIRE": SOLVED, "ALiBi": UNLEARNED, "RoPE": UNLEARNED},
    }
    judged = results(figures(tasks))
    row = guide.purpose("all", judged)
    assert row[1] == "FIRE"
    assert row[2].startswith("FIRE: a mean reciprocal rank of 0.67 on 3 tasks")
    assert row[4].startswith("FIRE is significantly worse than the best on reversing and sorting<br>")
    assert row[4].endswith("<br>fewer than half of the encodings learned parity")
    row = guide.purpose("all", judged[::3] + judged[:1])
    assert row[2].startswith("FIRE: the best or equally good on 2 of 2 tasks")


def test_costs_are_sorted_as_numbers_and_unknown_ones_come_last(guide: Any, results: Any) -> None:
    same = {label: shifted(-0.001 * n, noise=0.001) for n, label in enumerate(("NoPE", "RoPE", "FIRE", "ALiBi"))}
    (result,) = results(figures({"Copy": same}))
    row = guide.purpose("copying", [result])
    assert row[1] == "ALiBi, FIRE and RoPE"
    assert row[3].startswith("ALiBi: 2.00, 1.00, 1.00<br>FIRE: 3.00")


def test_the_best_of_much_faster_encodings_is_shown_beside_a_slow_one(guide: Any, results: Any) -> None:
    (result,) = results(figures({"Copy": {"RoPE": SOLVED, "FIRE": shifted(-0.2), "ALiBi": shifted(-0.1)}}))
    row = guide.purpose("copying", [result])
    assert row[1] == "RoPE"
    assert row[2].endswith("<br>cheaper: ALiBi, with mean scores of copying 0.65")
    assert row[3].endswith("<br>ALiBi: 2.00, 1.00, 1.00")
    (result,) = results(figures({"Copy": {"ALiBi": SOLVED, "FIRE": shifted(-0.2)}}))
    assert "cheaper" not in guide.purpose("copying", [result])[2]


def test_what_the_named_encoding_cannot_do_is_said(guide: Any, results: Any) -> None:
    copying, parity = results(figures({"Copy": {"FIRE": SOLVED, "RoPE": shifted(-0.2)}, "Parity": {"FIRE": UNLEARNED}}))
    assert guide.purpose("all", [copying, parity])[4].startswith("FIRE has not learned parity<br>")


def test_a_method_of_extension_must_be_better_than_rope_without_one(guide: Any, results: Any) -> None:
    tasks = {
        "Copy": {"RoPE": SOLVED, "PI(factor=8.0) from RoPE": shifted(-0.2), "YaRN(factor=8.0) from RoPE": UNLEARNED},
        "Addition": {"RoPE": SOLVED, "PI(factor=8.0) from RoPE": shifted(0.01, noise=0.1)},
    }
    row = guide.extension(results(figures(tasks)))
    assert row[1] == "none"
    assert row[4].startswith("no method is shown to be clearly better than RoPE itself on copying and addition<br>")
    tasks["Addition"] = {"RoPE": SOLVED, "PI(factor=8.0) from RoPE": shifted(0.05, noise=0.001)}
    row = guide.extension(results(figures(tasks)))
    assert row[1] == "PI (addition)"
    tasks["Addition"]["NTKAware(factor=8.0) from RoPE"] = shifted(0.04, noise=0.001)
    assert guide.extension(results(figures(tasks)))[2].endswith("; also shown to be better: NTKAware")
    assert "no method is shown to be clearly better than RoPE itself on copying<br>the methods were not" in row[4]
    tasks["Copy"]["PI(factor=8.0) from RoPE"] = UNLEARNED
    loss = "<br>PI costs scores at the training length on copying: 1.00 becomes 0.50<br>"
    assert loss in guide.extension(results(figures(tasks)))[4]
    tasks["Addition"] = {"RoPE": NOTHING_LONGER, "PI(factor=8.0) from RoPE": 5 * [[1.0, 1 / 128, 0.0]]}
    assert guide.extension(results(figures(tasks)))[1] == "none"
    assert guide.extension([])[2] == "`lengthwise run battery/others` is not stored yet"
    assert guide.extension(results(figures({"Copy": {"RoPE": UNLEARNED}})))[2] == "RoPE has learned none of the tasks"


def test_nothing_is_recommended_where_every_encoding_fails(pages: ModuleType, guide: Any, results: Any) -> None:
    failing = {"FIRE": 5 * [[1.0, 0.09, 0.0]], "ALiBi": NOTHING_LONGER}
    lost, kept = results(figures({"Addition": failing, "Sorting": {"FIRE": SOLVED, "ALiBi": shifted(-0.2)}}))
    assert pages.differences(lost) == ["addition", "none", "", "", ""]
    none = "no encoding is clearly better than guessing beyond the training length"
    assert guide.purpose("arithmetic", [lost]) == ["arithmetic", "none", f"{none} on addition", "", ""]
    row = guide.purpose("arithmetic", [lost, kept])
    assert row[1] == "FIRE"
    assert row[2].startswith("FIRE: the best or equally good on 1 of 1 task<br>sorting: ")
    assert row[4] == f"{none} on addition"
    assert pages.untold([lost]) == [f"addition: {none}."]


@pytest.mark.parametrize(("score", "is_kept"), [(0.93, True), (0.904, False), (0.6, False)], ids=str)
def test_a_floor_decides_whether_every_encoding_fails(results: Any, score: float, is_kept: bool) -> None:
    rows = figures({"BucketSort": {"FIRE": 5 * [[1.0, score, score]]}}, metric=("token accuracy", "higher"))
    rows["panels"][0]["baselines"] = [{"label": "constant", "floor": True, "scores": dict.fromkeys(LENGTHS, 0.9)}]
    assert results(rows)[0].is_kept == is_kept


def test_encodings_that_are_worse_than_a_baseline_are_said(pages: ModuleType, results: Any) -> None:
    table = {"FIRE": 5 * [[1.0, 0.99, 0.97]], "RoPE": 5 * [[1.0, 0.8, 0.6]]}
    rows = figures({"BucketSort": table}, metric=("token accuracy", "higher"))
    floors = {"label": "constant", "floor": True, "scores": dict(zip(LENGTHS, (0.6, 0.8, 0.9), strict=True))}
    best = {"label": "neighbour", "floor": False, "scores": dict(zip(LENGTHS, (0.9, 0.95, 1.0), strict=True))}
    rows["panels"][0]["baselines"] = [floors, best]
    (result,) = results(rows)
    assert pages.task_row(result)[-1] == "neighbour: 0.97"
    assert pages.untold([result])[:2] == [
        "bucket sort: worse than guessing (“constant”, 0.85 beyond the training length), so that ranks and effective "
        "lengths say little: RoPE.",
        "bucket sort: worse than the baseline “neighbour” (0.97 beyond the training length), which needs no trained "
        "model: RoPE.",
    ]


def test_equal_encodings_share_their_ranks(guide: Any, results: Any) -> None:
    perfect = 5 * [[1.0, 1.0, 1.0]]
    (result,) = results(figures({"Copy": {"NoPE": perfect, "FIRE": perfect, "RoPE": SOLVED}}))
    assert result.reciprocal_ranks == {"NoPE": 1 / 1.5, "FIRE": 1 / 1.5, "RoPE": 1 / 3}


def test_a_task_without_an_encoding_has_no_evidence_for_it(guide: Any, results: Any) -> None:
    both = {"FIRE": SOLVED, "RoPE": shifted(-0.3)}
    row = guide.purpose("copying", results(figures({"Copy": both, "Reverse": both, "Recall": {"RoPE": SOLVED}})))
    assert row[1] == "FIRE"
    assert row[2].endswith("recall: no scores")


# ---- what was learned ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("score", "is_learned"), [(0.35, True), (0.49, True), (0.55, False), (1.2, False)], ids=str)
def test_a_loss_must_reach_the_score_that_ends_trainings(results: Any, score: float, is_learned: bool) -> None:
    """5 % of the error of always answering 0, which is 2, are tolerated. Every score here is better than that floor."""
    table = {"FIRE": [[score + 0.01 * n, 0.6, 0.9] for n in (-1, 0, 1)]}
    rows = figures({"LinearRegression": table}, metric=("squared error", "lower"), stop=0.4)
    (result,) = results(rows)
    assert (result.reasons["FIRE"] is None) == is_learned
    if not is_learned:
        assert result.reasons["FIRE"].endswith("at 8 symbols, the training length, and at most 0.5 are needed")


@pytest.mark.parametrize(("metric", "needed"), [("accuracy", 0.9), ("exact match", 0.95), ("token accuracy", 0.95)])
def test_the_needed_share_depends_on_whether_the_question_determines_the_answer(
    results: Any, metric: str, needed: float
) -> None:
    table = {"Just": 3 * [[needed + 0.001, 0.5, 0.2]], "Not": 3 * [[needed - 0.001, 0.5, 0.2]]}
    (result,) = results(figures({"Conjunction": table}, metric=(metric, "higher"), stop=0.95))
    assert result.reasons["Just"] is None
    assert result.reasons["Not"].endswith(f"and {needed:g} are needed")


def test_claims_use_the_same_rule(results: Any) -> None:
    learns = Learns("FIRE", Rows("battery/core", "LinearRegression"))
    for scores, reason in (((0.3, 0.4, 0.45), "from 0.300 to 0.450"), ((0.3, 0.4, 0.7), "the seeds disagree")):
        table = {"FIRE": [[score, 0.6, 0.9] for score in scores]}
        (result,) = results(figures({"LinearRegression": table}, metric=("squared error", "lower"), stop=0.4))
        claim = Claim(name="one", text="", source="", tests=(learns,))
        (judgement,) = judge([claim], {"battery/core": Evidence(tasks=(result.task,))})
        assert reason in judgement.reasons[0]
        assert (judgement.verdict == "holds here") == (reason != "the seeds disagree")


def test_medians_of_runs_that_used_all_steps_are_lower_bounds(results: Any) -> None:
    steps = {"FIRE": [900, 1000, 1100, 2500, 2500], "RoPE": [900, 1000, 2500, 2500, 2500]}
    table = {"FIRE": SOLVED, "RoPE": SOLVED}
    (result,) = results(figures({"Copy": table}, steps=steps))
    assert [result.learning_text(label) for label in table] == ["1,100", "≥ 2,500"]
    assert result.rate_text("FIRE") == "0.003, 1,100 steps"
    text = figures({"python:docstrings": table}, steps={label: [2500] * 5 for label in table}, stop=None)
    assert results(text)[0].learning_text("FIRE") == "2,500"


# ---- whole pages -----------------------------------------------------------------------------------------------------


def test_the_page_takes_its_numbers_from_the_rows(pages: ModuleType, results: Any) -> None:
    core = results(figures({"Copy": {"FIRE": SOLVED, "RoPE": shifted(-0.3)}, "Parity": {"FIRE": SOLVED}}))
    core += results(figures({"python:source": {"FIRE": SOLVED}}, stop=None))
    others = results(figures({"Copy": {"RoPE": SOLVED[:4], "PI(factor=8.0) from RoPE": SOLVED[:4]}}))
    page = " ".join(pages.battery_page(core, others).split())
    assert "2 encodings were trained on 3 tasks with 5 seeds each, 20 runs in all" in page
    assert "3 times in a row, at least 0.98 on copying and parity." in page
    assert "There is no threshold on code: all runs have the same steps." in page
    assert "on 1 of the tasks, with 4 seeds, and RoPE" in page
    assert "| [copying](battery-scores.md#copying) | copy random symbols | 1 to 8 symbols | " in page
    interval = "0.75 [0.73, 0.77]"
    assert core[0].mean_text("FIRE") == interval
    assert f"| FIRE | {interval} | {interval} | {interval} |" in page
    assert "| copying | FIRE | | | RoPE |" in page
    assert "| exact copying and retrieval | FIRE |" in importlib.import_module("battery_guide").guide(core, others, "")


def test_the_page_of_scores_has_every_encoding_at_each_length(pages: ModuleType, results: Any) -> None:
    core = results(figures({"Copy": {"FIRE": SOLVED, "RoPE": SOLVED}}))
    others = results(figures({"Copy": {"RoPE": SOLVED[:4], "PI(factor=8.0) from RoPE": NOTHING_LONGER[:4]}}))
    page = pages.scores_page(core, others, core, "")
    assert page.count("Learning rates tried: 0.003.") == 1
    assert "Copy random symbols. `Copy`, trained on 1 to 8 symbols with batches of 64, until exact match on 128" in page
    rows = {cells[0]: cells[1:] for cells in (line[2:-2].split(" | ") for line in page.splitlines() if line[:1] == "|")}
    assert list(rows) == ["encoding", "---", "FIRE", "RoPE", "PI from RoPE"]
    assert len({*map(len, rows.values())}) == 1
    assert rows["RoPE"][:2] == ["5", "0.003, 900 steps"]
    assert rows["PI from RoPE"][:4] == ["4", "", "1.00 [0.98, 1.00]", "0.00 [0.00, 0.02]"]


def test_a_score_that_is_not_finite_is_no_score(pages: ModuleType, results: Any) -> None:
    """JSON stores null for it."""
    diverged: list[list[float | None]] = [[1.0, 0.9, None] for _ in range(5)]
    (result,) = results(figures({"Copy": {"FIRE": SOLVED, "RoPE": diverged}}))
    assert result.order == ["FIRE"]
    assert result.mean_text("RoPE") == "not finite"
    survivor: list[list[float | None]] = [[1.0, 1.0, 1.0], *diverged[1:]]  # its only mean would be the best
    (result,) = results(figures({"Copy": {"FIRE": SOLVED, "RoPE": survivor}}))
    assert result.order == ["FIRE"]
    assert pages.untold([result])[0] == "copying: in no ranking because of scores that are not finite: RoPE."


def test_the_pages_in_the_repository_are_up_to_date(pages: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert pages.main(["--check"]) == 0, capsys.readouterr().err


def test_a_task_that_few_have_learned_is_listed_with_its_best_run(pages: ModuleType, results: Any) -> None:
    table = {"FIRE": SOLVED, "RoPE": UNLEARNED, "ALiBi": [[1.0, 0.96, 0.62], *UNLEARNED[1:]]}
    core = results(figures({"Copy": {"FIRE": SOLVED}, "Parity": table}))
    page = pages.battery_page(core, core[:1])
    assert "| parity | FIRE | ALiBi, seed 0, 900 steps | 1.00 | 0.79 |" in page
    assert "| parity |" not in page.partition("## Effective lengths")[2]
    assert "| encoding | copying |" in page.partition("## Effective lengths")[2]
