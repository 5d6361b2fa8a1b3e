"""Arguments that encodings, tasks and position schemes do not have, in constructors that are called from Python."""

import copy
import inspect
import pickle
import pydoc
from types import UnionType
from typing import get_origin

import pytest
import torch

from lengthwise.config import ConfigError, annotation, choose, settings_of
from lengthwise.config.class_settings import from_context
from lengthwise.encodings import ENCODINGS, FIRE, NoPE, RoPE, YaRN
from lengthwise.positions import POSITION_SCHEMES, Consecutive, Coupled, PositionScheme, Randomized
from lengthwise.tasks import TASKS, Copy, Reverse, Text
from lengthwise.values import ArgumentError


@pytest.mark.parametrize("make", [*ENCODINGS, *TASKS, *POSITION_SCHEMES], ids=lambda make: make.__name__)
def test_an_unknown_argument(make):
    with pytest.raises(ArgumentError, match=f"{make.__name__} has no setting 'unheard_of'; it"):
        make(unheard_of=3)


@pytest.mark.parametrize(
    ("make", "settings", "words"),
    [
        (RoPE, {"head_dims": 64}, "RoPE has no setting 'head_dims'; did you mean 'head_dim'"),
        (
            Copy,
            {"symbol": 3},
            "Copy has no setting 'symbol'; did you mean 'symbols'?; its settings are: symbols, pattern, times",
        ),
        (Text, {"paht": "python"}, "Text has no setting 'paht'; did you mean 'path'"),
        (Coupled, {"max_positions": 3}, "Coupled has no setting 'max_positions'; did you mean 'max_position'"),
        (Randomized, {"max_seq_len": 3}, "Randomized has no setting 'max_seq_len'; did you mean 'max_length'"),
        (Consecutive, {"start": 1}, "Consecutive has no setting 'start'; it has no settings"),
        (FIRE, {"num_heads": 2, "hiden_layers": 2}, "FIRE has no setting 'hiden_layers'; did you mean 'hidden_layers'"),
        (RoPE, {"head_dim": 8, "theta": 500.0}, "RoPE has no setting 'theta'; did you mean 'base'"),
        (FIRE, {"num_heads": 0}, "FIRE: num_heads must be a whole number of at least 1, got 0"),
        (FIRE, {"num_heads": 2, "threshold": 0}, "FIRE: threshold must be true or false, got 0"),
        (Copy, {"pattern": "rnadom"}, "Copy: pattern must be one of 'random', 'repeated', 'replaced', got 'rnadom'"),
        (Copy, {"pattern": "rnadom"}, "did you mean 'random'?"),
        (Reverse, {"answer": 1}, "Reverse: answer must be one of 'once', 'twice', 'back', got 1"),
        (
            Randomized,
            {"at_evaluation": "never"},
            "Randomized: at_evaluation must be one of 'random', 'consecutive', got 'never'",
        ),
    ],
)
def test_the_message(make, settings, words):
    with pytest.raises(ConfigError) as error:
        make(**settings)
    assert words in str(error.value)


def test_a_class_without_a_constructor_has_no_settings():
    class Everywhere(PositionScheme):
        def positions(self, inputs, documents, generator, training):
            return None

        def num_positions(self, tokens, training):
            return tokens

    assert settings_of(Everywhere) == {}
    assert Everywhere().num_positions(3, True) == 3
    with pytest.raises(ArgumentError, match="Everywhere has no setting 'x'; it has no settings"):
        Everywhere(x=1)


def test_a_class_that_lacks_a_method():
    class Bare(PositionScheme):
        pass

    with pytest.raises(TypeError, match=r"abstract class Bare .*num_positions.*positions"):
        Bare()
    with pytest.raises(
        ConfigError, match="class Bare lacks the method num_positions and the method positions; define them"
    ):
        choose(Bare)


def test_arguments_of_a_users_class_need_not_be_keyword_only():
    class Every(PositionScheme):
        def __init__(self, step: int = 2):
            self.step = step

        def positions(self, inputs, documents, generator, training):
            return None

        def num_positions(self, tokens, training):
            return self.step * tokens

    assert choose(Every, step=3).build().num_positions(2, True) == Every(3).num_positions(2, True) == 6
    with pytest.raises(ConfigError, match=r"step must be int, got 1\.5"):
        Every(step=1.5)


def test_the_signature_is_that_of_the_constructor():
    assert list(inspect.signature(FIRE).parameters)[:2] == ["num_heads", "hidden_layers"]
    yarn = inspect.signature(YaRN).parameters
    assert list(yarn)[:2] == ["head_dim", "train_length"]
    assert yarn["base"].default == 10_000.0, "of RoPE, by Unpack"
    assert not inspect.signature(NoPE).parameters
    assert "YaRN(*, head_dim: int, train_length: int, " in pydoc.plain(pydoc.render_doc(YaRN))


@pytest.mark.parametrize("instance", [Copy(symbols=5), Randomized(max_length=9)], ids=lambda x: type(x).__name__)
def test_copies_need_no_arguments(instance):
    for other in (copy.copy(instance), copy.deepcopy(instance), pickle.loads(pickle.dumps(instance))):
        assert vars(other).keys() == vars(instance).keys()


@pytest.mark.parametrize("make", [*ENCODINGS], ids=lambda make: make.__name__)
def test_copies_of_encodings_are_equal(make):
    encoding = make(**from_context(make, make.nominal({name: p.default for name, p in settings_of(make).items()})[0]))
    for other in (copy.copy(encoding), copy.deepcopy(encoding), pickle.loads(pickle.dumps(encoding))):
        assert repr(other) == repr(encoding)
        assert other.init_arguments == encoding.init_arguments
        assert all(map(torch.equal, other.state_dict().values(), encoding.state_dict().values()))


@pytest.mark.parametrize("task", [*TASKS], ids=lambda task: task.__name__)
def test_settings_of_tasks_have_their_declared_types(task: type) -> None:
    for name, parameter in settings_of(task).items():
        declared = annotation(task, parameter)
        for wrong in ("x", None, [], True, 1.5, b"x"):
            if (
                (declared is str and wrong == "x")
                or (declared is bool and wrong is True)
                or (declared is float and wrong == 1.5)
            ):
                continue
            if get_origin(declared) is UnionType and wrong in (None, 1.5):
                continue
            with pytest.raises(ConfigError, match=rf"^{task.__name__}: {name} must be "):
                task(**{name: wrong})
