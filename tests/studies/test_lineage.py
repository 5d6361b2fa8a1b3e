"""Runs that start from the trained weights of other runs."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise.analysis import findings
from lengthwise.config import ConfigError, EvaluationConfig, Inline, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import FIRE, T5, DynamicNTK, RoPE, YaRN
from lengthwise.evaluation import evaluate
from lengthwise.report import render
from lengthwise.store import open_store
from lengthwise.studies import Outcome, Study, continued, execute, grid
from lengthwise.tasks import Copy
from lengthwise.training import CheckpointError, Stopped, build, load_weights, train
from tests.made_answers import losses

MODEL = ModelConfig(d_model=16, num_layers=2, num_heads=2)
TRAINING = TrainingConfig(train_length=4, steps=6, batch_size=4)
EVALUATION = EvaluationConfig(lengths=(4, 8), examples=16)


def base(encoding: Any = "rope", seeds: int = 1) -> tuple[Run, ...]:
    return grid([encoding], ["copy"], seeds=seeds, model=MODEL, training=TRAINING)


def study(runs: Sequence[Run], name: str = "lineage") -> Study:
    return Study(name=name, question="Does it go on?", runs=tuple(runs), evaluation=EVALUATION)


def run(runs: Sequence[Run], results: Path, **options: Any) -> Outcome:
    return execute(study(runs, **options), results, executor=Inline())


def weights(results: Path, one: Run) -> dict[str, torch.Tensor]:
    return load_weights(results / "runs" / one.key, one).state_dict()


def test_the_key_contains_that_of_the_parent() -> None:
    (parent,) = base()
    (child,) = continued([parent], steps=0)
    assert child.key != parent.key
    other = dataclasses.replace(child, parent=dataclasses.replace(parent, seed=1))
    assert other.key != child.key
    assert Run.from_data(child.to_data()) == child
    assert Run.from_data(child.to_data()).key == child.key
    assert "parent" not in parent.to_data(), "runs without a parent keep their keys"


def test_labels_say_where_the_weights_are_from() -> None:
    (parent,) = base()
    (zero,) = continued([parent], ["yarn:factor=4"], steps=0)
    (short,) = continued([parent], ["yarn:factor=4"], steps=1)
    (long,) = continued([zero], steps=5, train_length=8)
    assert zero.label == "YaRN(factor=4.0) from RoPE"
    assert short.label == "YaRN(factor=4.0) from RoPE (1 step)"
    assert long.label == "YaRN(factor=4.0) from (YaRN(factor=4.0) from RoPE) (5 steps at 8)"
    assert long.lineage == (long, zero, parent)


def test_without_steps_the_parents_weights_are_evaluated_with_another_encoding(tmp_path: Path) -> None:
    parents = base(seeds=2)
    children = continued(parents, ["yarn:factor=2", "dynamic-ntk"], steps=0)
    outcome = run([*children, *parents], tmp_path)  # the order of the list does not matter
    assert outcome.counts["done"] == 6
    for child in children:
        assert child.parent is not None
        own, inherited = weights(tmp_path, child), weights(tmp_path, child.parent)
        assert all(torch.equal(own[name], inherited[name]) for name in inherited)
    child = children[0]
    model, task = build(child)
    model.load_state_dict(weights(tmp_path, child.parent))  # type: ignore[arg-type]
    expected = evaluate(model, task, EVALUATION)
    with open_store(tmp_path) as store:
        row = store.run(child.key)
        assert row.parent == child.parent.key  # type: ignore[union-attr]
        assert (row.train_length, row.step, row.steps, row.status) == (4, 0, 0, "done")
        assert [score.mean for score in store.scores([child.key])] == [score.mean for score in expected]
        assert losses(store, child.key) == []


def test_encodings_get_the_length_of_the_first_training() -> None:
    """Fine-tuning at length 8 does not change what YaRN and dynamic NTK scale: positions of a model trained at 4."""
    parents = base()
    for child in continued(parents, ["yarn:factor=2", "dynamic-ntk"], steps=3, train_length=8):
        model, task = build(child)
        assert model.encodings[0].train_length == task.tokens(4)
    (grandchild,) = continued(continued(parents, ["yarn:factor=2"], steps=3, train_length=8), steps=1)
    assert build(grandchild)[0].encodings[0].train_length == Copy().tokens(4)


def test_further_training_starts_from_the_parents_weights_and_a_fresh_optimizer(tmp_path: Path) -> None:
    (parent,) = base()
    (child,) = continued([parent], steps=1, learning_rate=1e-12, warmup=0.0, weight_decay=0.0)
    folder = tmp_path / "runs"
    train(parent, folder / parent.key)
    trained = train(child, folder / child.key)
    inherited = load_weights(folder / parent.key, parent).state_dict()
    for name, value in trained.model.state_dict().items():
        torch.testing.assert_close(value, inherited[name], atol=1e-9, rtol=0)
        assert (
            name.startswith("encodings") or not torch.equal(value, build(child)[0].state_dict()[name]) or value.ndim < 2
        )


def test_stopping_anywhere_changes_no_bit(tmp_path: Path) -> None:
    (parent,) = base("t5")
    (child,) = continued([parent], ["t5"], steps=5)
    for name in ("whole", "parts"):
        train(parent, tmp_path / name / parent.key)
    whole = train(child, tmp_path / "whole" / child.key)
    for stop in range(4):
        asked = iter(range(100))
        with pytest.raises(Stopped):
            train(child, tmp_path / "parts" / child.key, should_stop=lambda stop=stop, asked=asked: next(asked) == 1)
    parts = train(child, tmp_path / "parts" / child.key)
    assert [row["loss"] for row in parts.curve] == [row["loss"] for row in whole.curve]
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, parts.model.state_dict()[name])


def test_parameters_of_another_encoding_start_fresh(tmp_path: Path) -> None:
    (parent,) = base("t5")
    same, fire = continued([parent], ["t5", "fire"], steps=0)
    run([parent, same, fire], tmp_path)
    inherited = weights(tmp_path, parent)
    assert all(torch.equal(value, inherited[name]) for name, value in weights(tmp_path, same).items())
    fresh = build(fire)[0].state_dict()
    for name, value in weights(tmp_path, fire).items():
        assert torch.equal(value, fresh[name] if name.startswith("encodings.") else inherited[name]), name


def test_equal_names_in_another_class_are_not_inherited(tmp_path: Path) -> None:
    """Both KERPLEs have a parameter r1, with different meanings; FIRE-S has one module where FIRE has one per layer."""
    parents = (*base("kerple-log"), *base("fire"))
    power, shared, wider = (
        *continued(parents[:1], ["kerple-power"], steps=0),
        *continued(parents[1:], ["fire-s"], steps=0),
        *continued(parents[1:], ["fire:L=64"], steps=0),
    )
    run([*parents, power, shared, wider], tmp_path)
    names = set(weights(tmp_path, power)) & set(weights(tmp_path, parents[0]))
    assert any(name.startswith("encodings.") for name in names)
    for child in (power, shared):
        fresh = build(child)[0].state_dict()
        encodings = {name: value for name, value in weights(tmp_path, child).items() if name.startswith("encodings.")}
        assert all(torch.equal(value, fresh[name]) for name, value in encodings.items())
    inherited = weights(tmp_path, parents[1])
    assert all(torch.equal(value, inherited[name]) for name, value in weights(tmp_path, wider).items()), (
        "the same class"
    )


def test_a_child_in_a_study_of_its_own(tmp_path: Path) -> None:
    (parent,) = base()
    children = continued([parent], ["pi:factor=2"], steps=0)
    with pytest.raises(
        ConfigError, match=f"starts from run {parent.key} .RoPE, seed 0., which is not trained in .*; add"
    ):
        run(children, tmp_path)
    assert not list(tmp_path.glob("runs/*"))
    run([parent], tmp_path, name="first")
    assert run(children, tmp_path).counts["done"] == 1
    (tmp_path / "runs" / parent.key / "weights.safetensors").unlink()
    (later,) = continued([parent], ["pi:factor=4"], steps=0)
    with pytest.raises(ConfigError, match="is not trained"):
        run([later], tmp_path, name="third")


def test_a_child_of_a_failed_run_fails_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (parent,) = base()
    (child,) = continued([parent], steps=2)

    def sample(self: Copy, *_: Any) -> None:
        raise RuntimeError("the task is broken")

    monkeypatch.setattr(Copy, "training_batch", sample)
    monkeypatch.setattr("lengthwise.studies.study.check_run", lambda *_: None)
    outcome = run([child, parent], tmp_path)
    errors = dict(outcome.failed)
    assert "the task is broken" in errors[parent.key]
    assert f"run {parent.key} is not finished" in errors[child.key]
    assert outcome.counts == {"pending": 0, "running": 0, "done": 0, "failed": 2}


def test_damaged_weights_of_a_parent_are_named(tmp_path: Path) -> None:
    (parent,) = base()
    (child,) = continued([parent], steps=1)
    train(parent, tmp_path / parent.key)
    file = tmp_path / parent.key / "weights.safetensors"
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(CheckpointError, match="damaged"):
        train(child, tmp_path / child.key)
    assert file.is_file(), "the child's command does not move the parent's files"
    assert not (tmp_path / child.key / "weights.safetensors").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": choose(Copy, symbols=5)}, "has 8 input tokens, but the parent run was trained on Copy, which has 29"),
        (
            {"model": dataclasses.replace(MODEL, d_model=32, head_dim=None, d_ff=None)},
            "must have the model of its parent",
        ),
        ({"parent": None}, "steps must be at least 1 for a run without a parent, got 0"),
    ],
)
def test_runs_that_cannot_start_from_their_parent(change: dict[str, Any], message: str) -> None:
    (parent,) = base()
    (child,) = continued([parent], steps=0)
    with pytest.raises(ConfigError, match=message):
        study([parent, dataclasses.replace(child, **change)]).check()


def test_a_lineage_has_an_end() -> None:
    (one,) = base()
    with pytest.raises(ConfigError, match="at most 16 ancestors"):
        for _ in range(20):
            (one,) = continued([one], steps=1)


def test_unknown_settings_name_the_near_miss() -> None:
    with pytest.raises(ConfigError, match=r"no setting 'train_lenght'.*train_length"):
        continued(base(), steps=1, train_lenght=8)
    with pytest.raises(ConfigError, match="given 2 times"):
        continued(base(), ["rope", "rope"], steps=1)


def test_the_report_compares_children_with_their_parents(tmp_path: Path) -> None:
    parents = base(seeds=2)
    zero = continued(parents, ["yarn:factor=2"], steps=0)
    tuned = continued(parents, ["yarn:factor=2"], steps=2, train_length=8)
    run([*parents, *zero, *tuned], tmp_path)
    with open_store(tmp_path) as store:
        found = findings(store, "lineage")
        html = render(found)
    (task,) = found.tasks
    assert [series.label for series in task.series] == [
        "RoPE",
        "YaRN(factor=2.0) from RoPE",
        "YaRN(factor=2.0) from RoPE (2 steps at 8)",
    ]
    assert task.train_length == 4, "that of the first training"
    assert all(len(point.seeds) == 2 for series in task.series for point in series.points)
    assert "starts from" in html
    assert html.count("random weights") == 2
    assert all(f"<code>{run.key}</code>" in html for run in parents)


def test_classes_of_a_lineage_are_all_listed() -> None:
    (parent,) = grid([choose(T5)], ["copy"], model=MODEL, training=TRAINING)
    child = dataclasses.replace(parent, encoding=choose(FIRE), parent=parent)
    assert [choice.cls for choice in child.choices] == [FIRE, Copy, T5, Copy]
    assert {RoPE, YaRN, DynamicNTK}.isdisjoint(choice.cls for choice in child.choices)


# ---- DroPE: the position encoding is dropped, and the model recalibrated ---------------------------------------------


def test_a_share_counts_sequences_and_lengths() -> None:
    """The parent has 6 steps of 4 sequences of length 4; half of it in sequences of twice the length is 2 steps."""
    parents = base()
    assert continued(parents, ["nope"], share=0.5)[0].training.steps == 3
    assert continued(parents, ["nope"], share=0.5, train_length=8)[0].training.steps == 2
    assert continued(parents, ["nope"], share=0.001)[0].training.steps == 1
    for given, says in (
        ({}, "needs either steps or share, got steps=None and share=None"),
        ({"steps": 1, "share": 0.1}, "needs either steps or share"),
        ({"share": 0.0}, "share must be a number of more than 0 and at most 1000, got 0.0; use steps=0"),
    ):
        with pytest.raises(ConfigError, match=says):
            continued(parents, ["nope"], **given)


@pytest.mark.parametrize("qk_norm", [False, True])
def test_after_dropping_positions_do_not_matter(tmp_path: Path, qk_norm: bool) -> None:
    """Not shifted, and not scattered either; before, scattered ones mattered. A temperature follows in evaluation."""
    parents = base()
    dropped = continued(parents, ["nope"], share=0.34, model={"qk_norm": qk_norm})
    hotter = continued(dropped, ["nope(temperature=ministral(strength=0.4,step=4))"], steps=0)
    assert dropped[0].training.steps == 2
    outcome = run([*parents, *dropped, *hotter], tmp_path)
    assert outcome.counts["done"] == 3
    tokens = torch.randint(26, (2, 9), generator=torch.Generator().manual_seed(0))
    own = torch.arange(9)[None]

    def logits(one: Run, positions: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return load_weights(tmp_path / "runs" / one.key, one).eval()(tokens, positions=positions)

    for positions in (own + 7, own**2):
        assert torch.equal(logits(dropped[0], positions), logits(dropped[0], own))
    assert not torch.allclose(logits(parents[0], own**2), logits(parents[0], own), atol=1e-3)
    assert torch.equal(logits(hotter[0], own)[:, :4], logits(dropped[0], own)[:, :4])
    assert not torch.allclose(logits(hotter[0], own)[:, 4:], logits(dropped[0], own)[:, 4:], atol=1e-4)


def test_norms_of_queries_and_keys_may_be_added_and_not_removed(tmp_path: Path) -> None:
    (parent,) = base()
    (child,) = continued([parent], ["nope"], steps=0, model={"qk_norm": True})
    run([parent, child], tmp_path)
    own, inherited = weights(tmp_path, child), weights(tmp_path, parent)
    added = {name: value for name, value in own.items() if name not in inherited}
    assert set(added) == {f"blocks.{n}.{part}_norm.weight" for n in range(2) for part in "qk"}
    assert all(torch.equal(value, torch.ones(8)) for value in added.values())
    assert all(torch.equal(own[name], value) for name, value in inherited.items())
    with pytest.raises(ConfigError, match="got qk_norm False, but NoPE from RoPE has True"):
        continued([child], steps=0, model={"qk_norm": False})
    with pytest.raises(ConfigError, match="ModelConfig has no setting 'qk_nrom'; did you mean 'qk_norm'"):
        continued([parent], steps=0, model={"qk_nrom": True})
