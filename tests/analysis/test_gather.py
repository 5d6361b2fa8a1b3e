"""From the store's rows to findings: what may be averaged, what is kept apart, what is named as missing."""

import copy
import dataclasses
import math
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.analysis import Findings, findings, from_rows
from lengthwise.analysis.differences import titles
from lengthwise.analysis.findings import StudyInfo
from lengthwise.metrics import EXACT_MATCH
from lengthwise.store import StoreError, open_store, worker_name
from tests.made_answers import score_answer

Make = Callable[..., Any]


def test_seeds_are_the_unit(make_run: Make, make_score: Make) -> None:
    runs = [make_run(seed=n) for n in range(3)]
    scores = [make_score(run, mean) for run, mean in zip(runs, (1.0, 1.2, 1.4), strict=True)]
    (task,) = from_rows([], runs, scores).tasks
    (series,) = task.series
    (point,) = series.points
    assert (point.mean, point.interval.half_width) == pytest.approx((1.2, 0.4968275))
    assert (point.n_seeds, point.n_examples, point.interval.basis) == (3, 192, "seeds")
    assert [(s.key, s.seed, s.mean) for s in point.seeds] == [
        (runs[0].key, 0, 1.0),
        (runs[1].key, 1, 1.2),
        (runs[2].key, 2, 1.4),
    ]
    assert task.lengths == (10, 20, 80)
    assert series.point_at(80) is None


def test_one_seed_says_so(make_run: Make, make_score: Make) -> None:
    run = make_run()
    point = from_rows([], [run], [make_score(run, 2.0, 0.1)]).tasks[0].series[0].points[0]
    assert point.interval.basis == "examples"
    assert point.interval.half_width == pytest.approx(0.1959964)


def test_exact_match_stays_within_its_scale(make_study: Make) -> None:
    task = make_study({"FIRE": [[1.0, 0.9, 0.0], [1.0, 0.5, 0.0], [1.0, 1.0, 0.1]]}, metric="exact match").tasks[0]
    assert task.metric == EXACT_MATCH
    for point in task.series[0].points:
        assert 0 <= point.interval.low <= point.mean <= point.interval.high <= 1


def test_in_and_out_of_distribution(make_study: Make) -> None:
    task = make_study({"FIRE": [[1.0, 2.0, 3.0]]}).tasks[0]
    assert [task.is_new(p.length) for p in task.series[0].points] == [False, True, True]
    assert [task.is_new(n) for n in (5, 10, 11)] == [False, False, True]


def changed(run: Any, part: str, **settings: Any) -> dict[str, Any]:
    config = copy.deepcopy(run.config)
    config[part].update(settings)
    return config


def test_rates_that_a_study_chose_are_one_table(make_run: Make, make_score: Make) -> None:
    """Encodings with a learning rate each are compared in one table of their study, and the note says which rates."""
    rates = {"FIRE": 0.004, "T5": 0.004, "RoPE": 0.001}
    runs = [make_run(label, seed) for label in rates for seed in range(2)]
    runs = [dataclasses.replace(r, config=changed(r, "training", learning_rate=rates[r.label])) for r in runs]
    scores = [make_score(run, 1.0) for run in runs]
    study = types.SimpleNamespace(**dict.fromkeys((f.name for f in dataclasses.fields(StudyInfo)), None))
    (task,) = from_rows([study], runs, scores).tasks
    assert [series.label for series in task.series] == list(rates)
    assert all(series.points[0].n_seeds == 2 for series in task.series)
    assert "each encoding has its own learning rate: 0.001 for RoPE; 0.004 for all others" in task.notes
    assert "training.learning_rate" not in task.settings
    # Without a study, or where one encoding has two rates, the rates are tables of their own.
    assert len(from_rows([], runs, scores).tasks) == 2
    again = dataclasses.replace(runs[0], key="again", config=changed(runs[0], "training", learning_rate=0.001))
    assert len(from_rows([study], [*runs, again], scores).tasks) == 2
    assert len(from_rows([study, study], runs, scores).tasks) == 2


def test_a_curriculum_trains_on_what_it_begins_with(make_run: Make, make_score: Make) -> None:
    run = make_run()
    run = dataclasses.replace(
        run, config=changed(run, "training", curriculum={"length": 5, "length_step": 1, "every": 10})
    )
    (task,) = from_rows([], [run], [make_score(run, 1.0)]).tasks
    assert (task.shortest, task.trained) == (5, (5, 10))  # what the page says, and what it averages


@pytest.mark.parametrize(
    ("part", "setting"), [("model", {"d_model": 96}), ("training", {"steps": 7}), ("task", {"a": 1})]
)
def test_other_protocols_are_never_averaged(
    part: str, setting: dict[str, Any], make_run: Make, make_score: Make
) -> None:
    one = make_run(seed=0)
    other = make_run(seed=1, config=changed(make_run(seed=1), part, **setting))
    tasks = from_rows([], [one, other], [make_score(one, 1.0), make_score(other, 3.0)]).tasks
    assert [t.series[0].points[0].mean for t in tasks] == [1.0, 3.0]
    assert len({t.title for t in tasks}) == 2, "the titles have to say what differs"
    assert next(iter(setting)) in tasks[1].title


def test_a_width_names_the_sizes_that_follow_from_it() -> None:
    settings = [{"d_ff": 4 * width, "d_model": width, "head_dim": width // 4} for width in (32, 64)]
    assert titles(["Copy"] * 2, settings, [(0.0, 0.0)] * 2) == ["Copy (d_model 32)", "Copy (d_model 64)"]


def test_position_schemes_are_compared_and_never_averaged(make_run: Make, make_score: Make) -> None:
    plain = make_run(seed=0)
    schemes = [{"is": "Randomized", "max_length": n} for n in (64, 128)]
    moved = [make_run(label="FIRE with Randomized", config=changed(plain, "training", positions=x)) for x in schemes]
    moved = [dataclasses.replace(run, key=f"moved-{n}") for n, run in enumerate(moved)]
    scores = [make_score(run, mean) for run, mean in zip([plain, *moved], (1.0, 2.0, 3.0), strict=True)]
    (task,) = from_rows([], [plain, *moved], scores).tasks
    assert [(s.label, s.points[0].mean) for s in task.series] == [
        ("FIRE", 1.0),
        ("FIRE with Randomized (max_length 64)", 2.0),
        ("FIRE with Randomized (max_length 128)", 3.0),
    ]
    assert not any("positions" in name for name in task.settings)


def test_a_model_of_another_kind_stands_beside_every_model(make_run: Make, make_score: Make) -> None:
    small = [make_run(seed=seed) for seed in (0, 1)]
    large = [make_run(seed=0, key="large", config=changed(small[0], "model", d_model=128))]
    sizes = {"mixer": "mamba", "dropout": 0.0, "d_model": 64, "num_layers": 4, "state_size": 16}
    config = {**small[0].config, "encoding": {"is": "NoPE"}, "model": sizes}
    mambas = [make_run("Mamba", seed, config={**config, "seed": seed}) for seed in (0, 1)]
    other = make_run("Mamba", 5, config=changed(mambas[0], "training", steps=9))
    runs = [mambas[0], *small, *large, mambas[1], other]
    found = from_rows([], runs, [make_score(run, 1.0) for run in runs])
    assert [[s.label for s in task.series] for task in found.tasks] == [["FIRE", "Mamba"], ["FIRE", "Mamba"], ["Mamba"]]
    assert [len(task.series[-1].points[0].seeds) for task in found.tasks] == [2, 2, 1]
    assert found.tasks[0].notes == ("Mamba has d_model 64, num_layers 4, state_size 16",)
    assert found.tasks[2].notes == ()
    wider = make_run("Mamba", 0, key="wider", config=changed(mambas[0], "model", d_model=96))
    (task,) = from_rows([], [*small, mambas[0], wider], []).tasks
    assert [s.label for s in task.series] == ["FIRE", "Mamba (d_model 64)", "Mamba (d_model 96)"]


def test_another_question_is_another_panel(make_run: Make, make_score: Make) -> None:
    run = make_run(questions=[{"length": 10, "examples": 64, "seed": 0}, {"length": 10, "examples": 8, "seed": 0}])
    scores = [make_score(run, 1.0, question=run.questions[0]), make_score(run, 2.0, question=run.questions[1])]
    tasks = from_rows([], [run], scores).tasks
    assert [(t.title, t.series[0].points[0].mean) for t in tasks] == [
        ("Text (examples 64)", 1.0),
        ("Text (examples 8)", 2.0),
    ]


def test_scores_that_the_study_did_not_ask_for_stay_out(make_run: Make, make_score: Make) -> None:
    run = make_run(lengths=[10])
    scores = [make_score(run, 1.0), make_score(run, 9.0, question={"length": 640, "examples": 64, "seed": 0})]
    task = from_rows([], [run], scores).tasks[0]
    assert [p.length for p in task.series[0].points] == [10]


def test_where_a_text_lay_does_not_matter_but_what_it_was_does(make_run: Make) -> None:
    def run(seed: int, **task: Any) -> Any:
        return make_run(seed=seed, config=changed(make_run(seed=seed), "task", **task))

    same = [run(0, path="/a/x", glob="*", sha256="1"), run(1, path="/b/x", glob="**", sha256="1")]
    assert len(from_rows([], same, []).tasks) == 1
    assert len(from_rows([], [same[0], run(1, path="/a/x", glob="*", sha256="2")], []).tasks) == 2
    two = [run(0, path="/a/prose", glob="*", sha256="1"), run(0, path="/b/code", glob="*", sha256="2")]
    two[1] = dataclasses.replace(two[1], key="f" * 16)
    assert [task.title.partition(" ")[2] for task in from_rows([], two, []).tasks] == ["(path prose)", "(path code)"]


def test_sharing_belongs_to_the_encoding(make_run: Make) -> None:
    assert len(from_rows([], [make_run("T5"), make_run("FIRE")], []).tasks) == 1


def test_one_label_with_two_meanings_is_two_encodings(make_run: Make, make_score: Make) -> None:
    one = make_run(seed=0, config=changed(make_run(seed=0), "encoding", width=32))
    two = make_run(seed=1, config=changed(make_run(seed=1), "encoding", width=64))
    (task,) = from_rows([], [one, two], [make_score(one, 1.0), make_score(two, 3.0)]).tasks
    assert [(s.label, s.points[0].mean) for s in task.series] == [("FIRE (width 32)", 1.0), ("FIRE (width 64)", 3.0)]


def test_what_is_missing_is_named(make_run: Make, make_score: Make) -> None:
    runs = [make_run(seed=0), make_run(seed=1, status="failed", error="no"), make_run(seed=2, status="running", step=3)]
    found = from_rows([], runs, [make_score(runs[0], 1.0)])
    assert [(r.key, r.error) for r in found.failed] == [(runs[1].key, "no")]
    assert [(r.key, r.step) for r in found.unfinished] == [(runs[2].key, 3)]
    assert found.tasks[0].series[0].points[0].n_seeds == 1


def test_a_score_that_is_no_number_is_not_dropped(make_study: Make) -> None:
    task = make_study(
        {"RoPE": [[1.0, 1.0, math.nan], [1.0, 1.0, 2.0]], "FIRE": [[1.0, 1.0, 5.0], [1.0, 1.0, 5.0]]}
    ).tasks[0]
    point = task.series[0].point_at(80)
    assert point is not None
    assert math.isnan(point.mean)
    assert point.n_seeds == 2
    best = task.best(80)
    assert best is not None
    assert best.mean == 5.0
    assert [s.label for s in task.ranked(80)] == ["FIRE", "RoPE"]


def test_facts_are_flat(make_run: Make) -> None:
    found = from_rows([], [make_run(facts={"device": "cpu", "versions": {"torch": "2.13.0"}})], [])
    assert found.runs[0].facts == {"device": "cpu", "versions.torch": "2.13.0"}


def test_nothing() -> None:
    empty = from_rows([], [], [])
    assert empty == Findings()
    assert (empty.title, empty.labels, empty.finished) == ("No results yet", (), None)


# ---- with a real store ------------------------------------------------------------------------------------------


def store_run(row: Any) -> dict[str, Any]:
    names = (
        "key",
        "label",
        "encoding",
        "task",
        "metric",
        "better",
        "unit",
        "seed",
        "train_length",
        "config",
        "questions",
    )
    return {name: getattr(row, name) for name in names}


def test_from_the_store(tmp_path: Path, make_run: Make, make_score: Make) -> None:
    rows = [make_run(seed=n, lengths=[10, 80]) for n in range(2)]
    with open_store(tmp_path) as store:
        store.add_study("one", question="why?", evaluation={}, runs=[store_run(r) for r in rows])
        store.add_study("two", evaluation={}, runs=[store_run(make_run("RoPE", lengths=[10]))])
        worker = worker_name()
        for row, mean in zip(rows, (1.0, 2.0), strict=True):
            assert store.claim("one", worker) is not None
            answers = [score_answer(asked, mean + n) for n, asked in enumerate(row.questions)]
            store.add_answers(row.key, answers, worker=worker)
            store.finish(row.key, worker, {"device": "cpu"})
        found = findings(store, "one")
        assert (found.title, found.studies[0].question) == ("one", "why?")
        assert [p.mean for p in found.tasks[0].series[0].points] == [1.5, 2.5]
        assert {r.status for r in found.runs} == {"done"}
        everything = findings(store)
        assert everything.title == "2 studies"
        assert [r.label for r in everything.unfinished] == ["RoPE"]
        with pytest.raises(StoreError, match="there is no study 'tow'; did you mean 'two'"):
            findings(store, "tow")


def test_an_empty_store(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        assert findings(store) == Findings()


@pytest.mark.parametrize("newest", [0, 1])
def test_labels_say_which_code_was_trained_last(newest: int, make_run: Make, make_score: Make) -> None:
    """A class of somebody's own file was changed between two studies of one folder."""
    codes = ("a14a5b" + "0" * 10, "cb3678" + "0" * 10)
    runs = [
        make_run(
            key=f"run-{n}", finished=9.0 if n == newest else 5.0,
            config={**make_run().config, "encoding": {"is": "FIRE", "code": code}},
        )
        for n, code in enumerate(codes)
    ]  # fmt: skip
    (task,) = from_rows([], runs, [make_score(run, 1.0) for run in runs]).tasks
    words = ["last used" if n == newest else "earlier" for n in (0, 1)]
    assert [s.label for s in task.series] == [f"FIRE ({words[0]} code a14a5b00)", f"FIRE ({words[1]} code cb367800)"]
    restored = from_rows([], runs, [make_score(run, 1.0) for run in runs], listed={"run-0": 20.0, "run-1": 10.0}).tasks[
        0
    ]
    assert [s.label for s in restored.series] == ["FIRE (last used code a14a5b00)", "FIRE (earlier code cb367800)"]
    assert "".join(s.label for s in from_rows([], runs[:1], []).tasks[0].series) == "FIRE"
