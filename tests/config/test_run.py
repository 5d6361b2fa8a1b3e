"""Experiments as values: strict, complete, and with a key that does not depend on how they were spelled."""

import dataclasses
import json

import pytest

from lengthwise.config import (
    ConfigError,
    Curriculum,
    EvaluationConfig,
    ModelConfig,
    Run,
    StopWhenLearned,
    TrainingConfig,
    alternate,
    choose,
)
from lengthwise.encodings import ENCODINGS, FIRE, T5, NoPE, RoPE
from lengthwise.positions import POSITION_SCHEMES, Consecutive, Shift
from lengthwise.tasks import Copy, Text
from tests.config.example_run import run


def test_key_does_not_depend_on_the_spelling():
    spelled = run(
        encoding=choose(FIRE, L=512, hidden_layers=2, c=0.1),
        model=ModelConfig(num_kv_heads=4, head_dim=32, d_ff=512, share_encoding=False, dropout=0),
        training=TrainingConfig(batch_size=32, train_length=8, min_length=8, clip=1),
    )
    assert spelled.key == run().key
    assert spelled == run()
    minus, plus = (run(training=TrainingConfig(train_length=8, warmup=zero)) for zero in (-0.0, 0))
    assert minus.key == plus.key


def test_a_default_is_the_value_that_it_would_be_if_given():
    class Elsewhere(NoPE):
        def __init__(self, *, base: float = 10_000):
            super().__init__()

    assert repr(choose(Elsewhere).to_data()) == repr(choose(Elsewhere, base=10_000).to_data())


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"encoding": choose(FIRE, L=256.0)},
        {"encoding": choose(NoPE)},
        {"task": choose(Copy, symbols=10)},
        {"model": ModelConfig(share_encoding=True)},
        {"model": ModelConfig(d_ff=100)},
        {"training": TrainingConfig(train_length=8, min_length=1)},
        {"training": TrainingConfig(train_length=8, steps=999)},
        {"training": TrainingConfig(train_length=8, positions=choose(Shift))},
    ],
)
def test_whatever_changes_the_training_changes_the_key(change):
    assert run(**change).key != run().key


def test_every_field_of_a_run_is_in_its_identity():
    """A new field that were left out of the key would make two different trainings one."""
    normed = ModelConfig(qk_norm=True)
    data = run(
        model=normed,
        training=TrainingConfig(
            train_length=8,
            positions=choose(Shift),
            curriculum=Curriculum(length=2),
            precision="bfloat16",
            data_seed=0,
            stop=StopWhenLearned(score=0.9),
        ),
    ).identity()
    other = TrainingConfig(
        train_length=8, train_examples=100, precision="float32", data_seed=1, stop=StopWhenLearned(score=0.5)
    )  # it takes no curriculum
    fixed = run(model=normed, training=other).identity()
    assert set(run(parent=run()).identity()) == {f.name for f in dataclasses.fields(Run)} == set(data) | {"parent"}
    for name in ("model", "training"):
        known = {f.name for f in dataclasses.fields(getattr(run(), name))}
        assert set(data[name]) == set(fixed[name]) == known
    assert "qk_norm" not in run().identity()["model"], "runs without it keep their keys"
    assert "data_seed" not in run().identity()["training"]


def test_a_mamba_has_its_own_settings_and_no_others():
    def mamba(**settings):
        return run(encoding=choose(NoPE), model=ModelConfig.mamba(d_model=64, **settings))

    one = mamba(num_layers=3)
    assert one.identity()["model"] == {
        "mixer": "mamba", "d_model": 64, "num_layers": 3, "state_size": 16, "dropout": 0.0
    }  # fmt: skip
    assert one.label == "Mamba"
    assert Run.from_data(json.loads(json.dumps(one.to_data()))) == one
    assert mamba(num_layers=3, state_size=16, num_heads=4).key == one.key
    keys = {mamba(**s).key for s in ({}, {"num_layers": 3}, {"state_size": 8}, {"dropout": 0.1})}
    assert len(keys | {run(encoding=choose(NoPE), model=ModelConfig(d_model=64)).key}) == 5


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: ModelConfig.mamba(num_heads=8),
            "num_heads does not apply to Mamba, got 8; its settings are: mixer, d_model",
        ),
        (lambda: ModelConfig.mamba(share_encoding=True), "share_encoding does not apply to Mamba, got True"),
        (lambda: ModelConfig.mamba(state_size=0), "state_size must be at least 1, got 0"),
        (lambda: ModelConfig(state_size=16), "state_size applies only to mixer='mamba'"),
        (lambda: ModelConfig(mixer="mamba2"), "mixer"),
        (lambda: run(model=ModelConfig.mamba()), "Mamba has no attention, so its encoding must be NoPE, got FIRE"),
        (lambda: run(encoding=alternate(choose(NoPE), choose(RoPE)), model=ModelConfig.mamba()), "has no attention"),
        (
            lambda: run(
                encoding=choose(NoPE),
                model=ModelConfig.mamba(),
                training=TrainingConfig(train_length=8, positions=choose(Shift)),
            ),
            "Mamba does not use positions, got the position scheme Shift",
        ),
    ],
)
def test_what_a_mamba_has_not_is_refused(make, words):
    with pytest.raises(ConfigError, match=words) as error:
        make()
    assert "\n" not in str(error.value)


def test_consecutive_positions_have_one_spelling():
    said = run(training=TrainingConfig(train_length=8, positions=choose(Consecutive)))
    assert said == run()
    assert said.key == run().key
    assert said.identity()["training"]["positions"] is None
    data = run().to_data()
    for scheme in (None, {"is": "Consecutive"}, {"is": "consecutive"}):
        data["training"]["positions"] = scheme
        assert Run.from_data(data) == run()


@pytest.mark.parametrize("make", [*POSITION_SCHEMES])
def test_a_run_with_a_position_scheme_in_json_both_ways(make):
    there = run(training=TrainingConfig(train_length=8, positions=choose(make)))
    back = Run.from_data(json.loads(json.dumps(there.to_data())))
    assert back == there
    assert back.key == there.key


def test_the_key_is_the_same_on_every_machine():
    """A key that changes orphans every stored result: change this number only together with CHANGELOG.md."""
    assert run().key == "7349a6223ce787bc"


def test_a_text_is_identified_by_its_bytes_not_by_its_path(tmp_path):
    keys = set()
    for place in ("a", "b"):
        folder = tmp_path / place
        folder.mkdir()
        for n in range(4):
            (folder / f"{n}.txt").write_text(f"document {n} " * 400)
        keys.add(run(task=choose(Text, path=str(folder))).key)
    (tmp_path / "b" / "0.txt").write_text("another text " * 400)
    assert len(keys) == 1
    assert run(task=choose(Text, path=str(tmp_path / "b"))).key not in keys


@pytest.mark.parametrize("make", [*ENCODINGS, Copy])
def test_json_both_ways(make):
    kind = "encoding" if make.kind == "encoding" else "task"
    there = run(**{kind: choose(make)})
    back = Run.from_data(json.loads(json.dumps(there.to_data())))
    assert back == there
    assert back.key == there.key


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda d: d["encoding"].update(hiden_layers=2), "hidden_layers"),
        (lambda d: d["model"].update(d_modle=2), "d_model"),
        (lambda d: d["training"].update(step=2), "steps"),
        (lambda d: d.update(sed=1), "seed"),
        (lambda d: d["encoding"].update({"is": "FIER"}), "FIRE"),
        (lambda d: d["training"].update(steps="many"), "steps"),
        (lambda d: d["training"].update(steps=1.5), "steps"),
        (lambda d: d["model"].update(bias=1), "bias"),
        (lambda d: d["model"].update(norm="layr"), "did you mean 'layer'"),
        (lambda d: d.update(task="copy"), "is"),
        (lambda d: d.pop("training"), "training"),
        (lambda d: d["training"].update(positions={"is": "Randomised"}), "did you mean 'Randomized'"),
        (lambda d: d["training"].update(positions={"is": "Shift", "max_shfit": 3}), "max_shift"),
        (lambda d: d["training"].update(positions="shift"), "is"),
        (lambda d: d.update(encoding=None), "is"),
    ],
)
def test_wrong_json_names_what_is_meant(spoil, words):
    data = run().to_data()
    spoil(data)
    with pytest.raises(ConfigError, match=words) as error:
        Run.from_data(data)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: choose(FIRE, hidden_layer=1),
        lambda: choose(FIRE, hidden_layers=9),
        lambda: choose(FIRE, num_heads=4),
        lambda: choose(FIRE, c=0),
        lambda: choose(T5, num_buckets=1),
        lambda: choose(T5, max_distance=16),
        lambda: choose(RoPE, rotary_fraction=1.5),
        lambda: choose(RoPE, layout="half-half"),
        lambda: choose(Copy, symbols=1),
        lambda: choose(dict),
        lambda: TrainingConfig(train_length=0),
        lambda: TrainingConfig(train_length=8, min_length=9),
        lambda: TrainingConfig(train_length=8, batch_size=10, accumulation=3),
        lambda: TrainingConfig(train_length=8, learning_rate=float("nan")),
        lambda: TrainingConfig(train_length=8, learning_rate=0.0),
        lambda: TrainingConfig(train_length=8, beta2=1.0),
        lambda: StopWhenLearned(score=0.9, every=0),
        lambda: ModelConfig(num_heads=3),
        lambda: ModelConfig(num_heads=0),
        lambda: ModelConfig(num_heads=4, num_kv_heads=3),
        lambda: ModelConfig(dropout=1.0),
        lambda: EvaluationConfig(lengths=()),
        lambda: EvaluationConfig(lengths=(0,)),
        lambda: EvaluationConfig(lengths=(8, 8)),
        lambda: run(task=choose(NoPE)),
        lambda: run(encoding=None),
        lambda: TrainingConfig(train_length=8, positions=choose(NoPE)),
        lambda: TrainingConfig(train_length=8, positions=Shift),
        lambda: TrainingConfig(train_length=8, positions="shift"),
    ],
)
def test_what_cannot_be_is_refused_at_once(make):
    with pytest.raises(ConfigError) as error:
        make()
    assert "\n" not in str(error.value)


def test_an_unknown_setting_names_what_is_meant() -> None:
    for make, words in (
        (
            lambda: TrainingConfig(train_lenght=8),
            "TrainingConfig has no setting 'train_lenght'; did you mean 'train_length'?",
        ),
        (lambda: EvaluationConfig(lenghts=(8,)), "did you mean 'lengths'?"),
        (lambda: ModelConfig(n_layers=2), "did you mean 'num_layers'?"),
    ):
        with pytest.raises(ConfigError) as error:
            make()
        assert words in str(error.value)


def test_sizes_that_no_tensor_can_have_are_refused() -> None:
    for make, settings in ((T5, {"num_buckets": 2**40}), (FIRE, {"width": 2**31})):
        with pytest.raises(ConfigError, match=r"at most|cannot be created"):
            choose(make, **settings)


def test_a_class_in_place_of_a_choice_is_refused():
    for field, value in (("encoding", FIRE), ("task", "copy")):
        with pytest.raises(ConfigError, match=rf"Run\.{field} must be a choice of the kind .*; write choose\(CLASS"):
            run(**{field: value})
