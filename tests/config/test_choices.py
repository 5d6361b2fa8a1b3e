"""Choices: names with settings, patterns over layers, and classes of other packages."""

import dataclasses
import json
import re

import pytest

from lengthwise.config import (
    ConfigError,
    ModelConfig,
    Registry,
    Run,
    TrainingConfig,
    alternate,
    choose,
)
from lengthwise.encodings import ENCODINGS, FIRE, T5, NoPE, RoPE
from lengthwise.positions import POSITION_SCHEMES, Randomized, Shift
from lengthwise.tasks import TASKS, Copy
from lengthwise.values import without_secrets
from tests.config.example_run import run


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
    monkeypatch.setitem(Registry.by_kind, "encoding", Registry.by_kind["encoding"])
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


@pytest.mark.timeout(30)
def test_a_pattern_with_far_too_many_layers_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="a pattern must have at most 1,000 layers") as refused:
        ENCODINGS.parse("+".join(["fire"] * 20_001))
    message = str(refused.value)
    assert without_secrets(message) == message and len(message) < 200
    assert without_secrets("a+" * 50_000) == "a+" * 50_000  # of another message that repeats such a text


def test_equal_layers_of_a_pattern_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    parse_layer = type(ENCODINGS).parse_layer
    monkeypatch.setattr(
        type(ENCODINGS), "parse_layer", lambda self, text: parsed.append(text) or parse_layer(self, text)
    )
    choice = ENCODINGS.parse("+".join(["rope", "nope", "rope*2"] * 10 + ["nope"]))
    assert parsed == ["rope", "nope"]
    assert len(choice.layers) == 41


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
