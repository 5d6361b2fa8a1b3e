"""Experiments as values: strict, complete, and with a key that does not depend on how they were spelled."""

import dataclasses
import json
import re
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.config import (
    ConfigError,
    Curriculum,
    EvaluationConfig,
    ModelConfig,
    Registry,
    Run,
    TrainingConfig,
    alternate,
    choose,
    near_miss,
    settings_of,
)
from lengthwise.encodings import ENCODINGS, FIRE, T5, NoPE, RoPE
from lengthwise.positions import POSITION_SCHEMES, Consecutive, Randomized, Shift
from lengthwise.tasks import TASKS, Copy, Text
from lengthwise.values import cast, parse_value


def run(**settings) -> Run:
    return Run(
        **{"encoding": choose(FIRE), "task": choose(Copy), "training": TrainingConfig(train_length=8), **settings}
    )


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
    data = run(
        training=TrainingConfig(train_length=8, positions=choose(Shift), curriculum=Curriculum(length=2))
    ).identity()
    fixed = run(training=TrainingConfig(train_length=8, train_examples=100)).identity()  # it takes no curriculum
    assert set(data) == {f.name for f in dataclasses.fields(Run)}
    for name in ("model", "training"):
        known = {f.name for f in dataclasses.fields(getattr(run(), name))}
        assert set(data[name]) == set(fixed[name]) == known


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


def test_names_ignore_case_and_dashes():
    assert ENCODINGS.find("kerple-log") is ENCODINGS.find("KERPLELOG") is ENCODINGS.find("KerpleLog")
    assert TASKS.find("COPY") is Copy
    with pytest.raises(ConfigError, match="did you mean 'RoPE'"):
        ENCODINGS.find("rpe")


def test_a_choice_from_one_word():
    assert ENCODINGS.parse("fire:hidden_layers=1,activation=gelu,c=1") == choose(
        FIRE, hidden_layers=1, activation="gelu", c=1.0
    )
    with pytest.raises(ConfigError, match="hidden_layers"):
        ENCODINGS.parse("fire:hidden_layrs=1")
    with pytest.raises(ConfigError, match="not a setting"):
        ENCODINGS.parse("fire:gelu")


@pytest.mark.parametrize(
    ("registry", "word", "setting"),
    [
        (TASKS, "summation:scratchpad=full,scratchpad=none", "Summation.scratchpad"),
        (TASKS, "copy:symbols=5,times=2,symbols=5", "Copy.symbols"),
        (ENCODINGS, "fire:hidden_layers=1,hidden-layers=2", "FIRE.hidden_layers"),
        (ENCODINGS, "rope*3+fire:c=1,c=2", "FIRE.c"),
        (POSITION_SCHEMES, "randomized:max_length=64,max_length=128", "Randomized.max_length"),
    ],
)
def test_a_setting_given_twice_is_refused(registry, word, setting):
    with pytest.raises(ConfigError, match=f"sets {re.escape(setting)} twice; omit one of them"):
        registry.parse(word)


def test_label_names_what_differs_from_the_defaults():
    assert run().label == "FIRE"
    assert run(encoding=choose(FIRE, hidden_layers=1)).label == "FIRE(hidden_layers=1)"
    assert run(model=ModelConfig(share_encoding=True)).label == "FIRE-S"
    assert run(encoding=choose(T5), model=ModelConfig(share_encoding=False)).label == "T5-per-layer"
    moved = TrainingConfig(train_length=8, positions=choose(Randomized, max_length=64))
    assert run(training=moved).label == "FIRE with Randomized(max_length=64)"
    assert run(training=moved, model=ModelConfig(share_encoding=True)).label == "FIRE-S with Randomized(max_length=64)"
    assert run(training=TrainingConfig(train_length=8, positions=choose(Shift))).label == "FIRE with Shift"


@dataclasses.dataclass
class Point:
    """An entry point of another package."""

    name: str
    made: object

    def load(self) -> object:
        if isinstance(self.made, Exception):
            raise self.made
        return self.made


def elsewhere(monkeypatch: pytest.MonkeyPatch, *points: Point) -> Registry:
    monkeypatch.setitem(Registry.known, "encoding", Registry.known["encoding"])
    monkeypatch.setattr("lengthwise.config.choices.entry_points", lambda group: points if "encoding" in group else ())
    return Registry("encoding", (FIRE, RoPE), plural="encodings")


def test_another_package_can_add_to_a_list(monkeypatch):
    registry = elsewhere(monkeypatch, Point("Elsewhere", NoPE))
    assert registry.find("elsewhere") is NoPE
    assert registry.find(registry.parse("elsewhere").name) is NoPE  # what a stored run says


class Tilt(NoPE):
    """Another package's."""


class Rope(NoPE):
    """Called like ours, but for its case."""


@pytest.mark.parametrize(
    ("point", "words"),
    [
        (Point("rope", Tilt), "'rope' of another package has the same name as RoPE, which is already listed"),
        (Point("mine", Rope), "'mine' of another package has the same name as RoPE"),
        (Point("mine", Copy), "must be a class of kind encoding"),
        (Point("mine", NoPE()), "must be a class of kind encoding"),
        (Point("mine", ModuleNotFoundError("No module named 'nomodule'")), "cannot be loaded: ModuleNotFoundError"),
    ],
)
def test_what_is_broken_elsewhere_breaks_nothing_here(monkeypatch, point, words):
    registry = elsewhere(monkeypatch, point, Point("Good", Tilt))
    assert registry.find("rope") is RoPE
    assert registry.find("good") is Tilt
    assert registry.names() == ["FIRE", "RoPE", "Good"]
    if point.name != "rope":
        with pytest.raises(ConfigError, match=words):
            registry.find("mine")
    assert words in registry.broken[point.name]


@given(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.none()))
def test_a_value_typed_in_is_the_value(value):
    wanted = type(value)
    assert parse_value(json.dumps(value), wanted, "x") == value


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (True, int),
        (1, bool),
        ("1", int),
        (1.0, int),
        (None, int),
        (float("inf"), float),
        pytest.param(10**400, float, id="huge"),
    ],
)
def test_nothing_bends_in_silence(value, wanted):
    with pytest.raises(ConfigError):
        cast(value, wanted, "x")


def test_near_miss_is_silent_when_nothing_is_near():
    assert near_miss("qqqq", ["alibi", "rope"]) == ""
    assert settings_of(NoPE) == {}


# ---- patterns over layers ---------------------------------------------------------------------------------------


def test_a_pattern_over_layers_is_one_choice_however_it_is_spelled() -> None:
    rope, nope = choose(RoPE), choose(NoPE)
    irope = alternate(rope, rope, rope, nope)
    assert irope.label == "RoPE*3+NoPE"
    for spelled in ("rope*3+nope", "ROPE+rope*2+nope", "rope*3+nope+rope*3+nope", "rope:base=1e+4*3+nope"):
        assert ENCODINGS.parse(spelled) == irope, spelled
    assert alternate(rope, rope) == rope == alternate(rope)
    assert ENCODINGS.parse("rope*6") == rope
    assert [choice.name for choice in irope.layers] == ["RoPE", "RoPE", "RoPE", "NoPE"]
    gemma = ENCODINGS.parse("rope*5+rope:base=1e6")
    assert gemma.label == "RoPE*5+RoPE(base=1000000.0)"


def test_a_pattern_goes_through_json_and_has_a_key_of_its_own() -> None:
    training = TrainingConfig(train_length=16)
    runs = [
        Run(encoding=ENCODINGS.parse(word), task=choose(Copy), training=training) for word in ("rope*3+nope", "rope")
    ]
    again = Run.from_data(json.loads(json.dumps(runs[0].to_data())))
    assert again == runs[0]
    assert again.key == runs[0].key != runs[1].key
    assert (
        "remaining_layers" not in runs[1].to_data()["encoding"]
    )  # keys from before there were patterns stay what they were
    assert runs[0].model.share_encoding is None  # each as its source has it
    assert runs[1].model.share_encoding is True


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("rope+nop", "did you mean 'NoPE'"),
        ("rope*0+nope", "each encoding at least 1"),
        ("rope*2000+nope", "at most 1,000"),
        ("rope+sinusoidal", "Sinusoidal changes embeddings"),
        ("rope+", "a layer of the pattern has no name"),
        ("rope++nope", "a layer of the pattern has no name"),
        ("rope+fire-s", "there is no encoding 'fire-s'"),
    ],
)
def test_a_pattern_that_cannot_be(word: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ENCODINGS.parse(word)


def test_a_pattern_longer_than_the_model_is_refused_where_a_layer_would_be_lost() -> None:
    choice, training = ENCODINGS.parse("rope*4+nope"), TrainingConfig(train_length=16)
    with pytest.raises(ConfigError, match="num_layers must be at least 5 for the pattern RoPE\\*4\\+NoPE, got 4"):
        Run(encoding=choice, task=choose(Copy), training=training)
    Run(encoding=choice, task=choose(Copy), training=training, model=ModelConfig(num_layers=5))


@pytest.mark.parametrize("remaining_layers", [None, [], "NoPE", {"is": "NoPE"}])
def test_a_pattern_that_is_no_list_is_refused(remaining_layers: object) -> None:
    data = Run(encoding=choose(RoPE), task=choose(Copy), training=TrainingConfig(train_length=16)).to_data()
    data["encoding"]["remaining_layers"] = remaining_layers
    with pytest.raises(ConfigError, match="must be a list of the other choices"):
        Run.from_data(data)


@pytest.mark.parametrize("given", [RoPE, "rope", RoPE(head_dim=8), None])
def test_what_is_no_choice_gets_a_plain_answer(given: object) -> None:
    with pytest.raises(ConfigError, match=r"alternate\(\) takes choices, got .*; write choose\(RoPE\)"):
        alternate(given)  # type: ignore[arg-type]


def test_sizes_that_no_tensor_can_have_are_refused() -> None:
    for make, settings in ((T5, {"num_buckets": 2**40}), (FIRE, {"width": 2**31})):
        with pytest.raises(ConfigError, match=r"at most|cannot be created"):
            choose(make, **settings)


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (int | None, "must be int or None"),
        (int | tuple[int, ...] | None, "must be int or tuple of int or None"),
        (Literal["a", "b"] | None, "must be 'a' or 'b' or None"),
        (tuple[int, str], r"must be tuple \(int, str\)"),
        (dict[str, int], "must be dict of int"),
    ],
)
def test_a_type_is_said_as_it_is_written(wanted, says):
    with pytest.raises(ConfigError, match=rf"^X\.y {says}, got 1\.5 \(float\)$"):
        cast(1.5, wanted, "X.y")
