"""What the methods of a user's encoding return: checked where it is received, with one line that names the method."""

import copy
import inspect as python
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import lengthwise
from lengthwise.attention import EncodingCache, TokenInfo
from lengthwise.config import ConfigError, ModelConfig, choose
from lengthwise.encodings import FIRE, ALiBi, DistanceBias, NoPE, PositionEncoding, RoPE, RotaryEncoding, YaRN
from lengthwise.forms import AttentionModifiers, LogitTransform, QueryGain, Rotation, ToeplitzBias
from lengthwise.inspection import inspect
from lengthwise.models import Decoder
from lengthwise.values import ArgumentError
from tests.unchecked import with_fields

HEADS, TOKENS, DIMS = 2, 6, 8
ANGLES = torch.ones(1, 1, TOKENS, 2)
TABLE = ToeplitzBias(torch.zeros(1, TOKENS))


WRONG_FIELDS: list[dict[str, Any]] = [
    {"terms": None}, {"terms": [TABLE]}, {"terms": TABLE}, {"terms": (None,)}, {"values": (TABLE,)}, {"rotation": {}},
    {"gain": 2.0}, {"logit_transform": torch.relu}, {"rotation": with_fields(Rotation(), layout="neox")},
]  # fmt: skip
NO_MODIFIERS: list[Any] = [
    *(None, {}, (), torch.zeros(3), AttentionModifiers),
    *(with_fields(AttentionModifiers(), **fields) for fields in WRONG_FIELDS),
]


def attend(encoding: PositionEncoding, **arguments: Any) -> torch.Tensor:
    q, k, v = torch.randn(3, 1, HEADS, TOKENS, DIMS, generator=torch.Generator().manual_seed(0))
    return lengthwise.attend(q, k, v, encoding, **arguments)


class Returns(PositionEncoding):
    """Its methods return what the test says."""

    result: Any = None

    def modifiers(self, span: Any) -> Any:
        return self.result


class Reads(NoPE):
    result: Any = None
    terms: Any = ()

    def features(self, x: Any) -> Any:
        return self.result

    def content(self, features: Any, span: Any, documents: Any) -> Any:
        return self.terms


class Turns(RotaryEncoding):
    result: Any = torch.ones(DIMS // 2)
    factor: Any = None

    def frequencies(self, length: Any) -> Any:
        return self.result

    def gain(self, length: Any) -> Any:
        return self.factor


class Biased(DistanceBias):
    dtype: Any = torch.float64

    def bias(self, distance: Any) -> Any:
        return (-distance[None].clamp(max=1)).to(self.dtype)


def made(make: Callable[[], Any], **values: Any) -> Any:
    encoding = make()
    for name, value in values.items():
        setattr(encoding, name, value)
    return encoding


def one_line(method: str, call: Callable[[], Any]) -> None:
    with pytest.raises(
        ConfigError, match=rf"test_encoding_contract\.py, line \d+: \w+\.{method} must return .*, got "
    ) as error:
        call()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("result", NO_MODIFIERS, ids=range(len(NO_MODIFIERS)))
def test_modifiers(result: Any) -> None:
    encoding = made(Returns, result=result)
    one_line("modifiers", lambda: attend(encoding))
    with torch.no_grad():
        q = torch.zeros(1, HEADS, 1, DIMS)
        k = torch.zeros(1, HEADS, TOKENS, DIMS)
        one_line("modifiers", lambda: lengthwise.attend(q, k, k, encoding, encoding_cache=EncodingCache()))


class Constant(PositionEncoding):
    def modifiers(self, span: Any) -> Any:
        return {}

    def embed(self, x: Any, positions: Any) -> Any:
        return None


def test_inspection_and_models() -> None:
    one_line("modifiers", lambda: inspect(choose(Constant), length=4))
    config = ModelConfig(d_model=8, num_layers=1, num_heads=2)
    model = Decoder(config, choose(Constant), vocab_size=8, output_size=8, train_length=4)
    one_line("embed", lambda: model(torch.zeros(1, 2).long()))


@pytest.mark.parametrize(
    "result", [None, {}, 3, torch.zeros(3), torch.zeros(TOKENS, 1, 3), torch.zeros(1, TOKENS, 3).long()], ids=range(6)
)
def test_features(result: Any) -> None:
    one_line("features", lambda: attend(made(Reads, result=result), tokens=TokenInfo(x=torch.zeros(1, TOKENS, 5))))


@pytest.mark.parametrize("terms", [None, {}, TABLE, [TABLE], (3,), (None,)], ids=range(6))
def test_content(terms: Any) -> None:
    encoding = made(Reads, result=torch.zeros(1, TOKENS, 1), terms=terms)
    one_line("content", lambda: attend(encoding, tokens=TokenInfo(x=torch.zeros(1, TOKENS, 5))))


@pytest.mark.parametrize(
    "result",
    [
        None,
        {},
        3.0,
        [1.0],
        torch.ones(()),
        torch.ones(3, 4),
        torch.ones(4, dtype=torch.complex64),
        torch.ones(4).bool(),
    ],
    ids=range(8),
)
def test_frequencies(result: Any) -> None:
    one_line("frequencies", lambda: attend(made(Turns, result=result)))


@pytest.mark.parametrize(
    "factor", [{}, "2", True, 1j, torch.ones(()), torch.ones(3), torch.ones(1).bool()], ids=range(7)
)
def test_gain(factor: Any) -> None:
    one_line("gain", lambda: attend(made(Turns, factor=factor)))


@pytest.mark.parametrize("length", [None, {}, 3, torch.tensor(1.5), torch.ones(2).long()], ids=range(5))
def test_effective_length(length: Any) -> None:
    class Scaled(Turns):
        def effective_length(self, current: Any) -> Any:
            return length

    one_line("effective_length", lambda: attend(Scaled(), encoding_cache=EncodingCache()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64, torch.int8])
@pytest.mark.parametrize("backend", ["auto", "reference", "blocked", "sdpa", "fused"])
def test_a_bias_of_real_numbers_is_converted_exactly(dtype: torch.dtype, backend: str) -> None:
    same = attend(Biased(), backend=backend)
    assert torch.equal(attend(made(Biased, dtype=dtype), backend=backend), same)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.bool])
def test_a_bias_that_is_no_real_number(dtype: torch.dtype) -> None:
    one_line("bias", lambda: attend(made(Biased, dtype=dtype)))


def test_frequencies_in_half_precision_are_refused() -> None:
    """They have rounded distant angles already, and their product with a position would be rounded once more."""
    half = made(Turns, result=torch.ones(DIMS // 2, dtype=torch.float16))
    with pytest.raises(ConfigError, match=r"Rotation.angle_q of \w+ must be a tensor of float32, float64, got float16"):
        attend(half)


@pytest.mark.parametrize(
    ("name", "form", "problem"),
    [
        ("rotation", with_fields(Rotation(), angle_q=ANGLES.half(), angle_k=ANGLES), "Rotation.angle_q .*float16"),
        ("rotation", with_fields(Rotation(), angle_q=ANGLES.long(), angle_k=ANGLES), "Rotation.angle_q .*int64"),
        (
            "rotation",
            with_fields(Rotation(), angle_q=ANGLES, angle_k=ANGLES, gain_k=ANGLES.bool()),
            "Rotation.gain_k .*bool",
        ),
        (
            "terms",
            (with_fields(ToeplitzBias(torch.zeros(1, 1)), table=torch.zeros(1, TOKENS, dtype=torch.complex64)),),
            "ToeplitzBias.table .*complex64",
        ),
        (
            "gain",
            with_fields(QueryGain(ANGLES[..., 0]), gain=torch.ones(1, 1, TOKENS).long()),
            "QueryGain.gain .*int64",
        ),
    ],
    ids=range(5),
)
def test_the_dtypes_of_forms(name: str, form: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        attend(made(Returns, result=AttentionModifiers(**{name: form})))


def test_correct_results_pass() -> None:
    transform = LogitTransform(lambda logits, q, visible, scale, span: 0 * logits)
    assert attend(made(Returns, result=AttentionModifiers(logit_transform=transform))).isfinite().all()
    assert torch.equal(attend(made(Turns, factor=torch.ones(1))), attend(Turns()))


@pytest.mark.parametrize(
    ("call", "fix"),
    [(lambda: RoPE(64), r"RoPE\(head_dim=64\)"), (lambda: ALiBi(8), r"ALiBi\(num_heads=8\)"), (lambda: NoPE(8), r"NoPE\(\)")],
)  # fmt: skip
def test_arguments_by_position(call: Callable[[], Any], fix: str) -> None:
    with pytest.raises(ConfigError, match=f"takes its arguments by name; write {fix}"):
        call()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: FIRE(), "FIRE needs num_heads (the number of attention heads); write, for example, FIRE(num_heads=8)"),
        (
            lambda: YaRN(head_dim=16),
            "YaRN needs train_length (the length that the model was trained at); write, for example, "
            "YaRN(head_dim=16, train_length=512)",
        ),
    ],
)
def test_missing_arguments_are_explained(call: Callable[[], Any], says: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{re.escape(says)}$"):
        call()


def test_encodings_can_be_copied_and_pickled_and_have_the_signature_of_their_constructor() -> None:
    fire = FIRE(num_heads=2, hidden_layers=1)
    for other in (copy.deepcopy(fire), pickle.loads(pickle.dumps(fire))):
        assert repr(other) == repr(fire)
        assert torch.equal(other.c, fire.c)
    assert list(python.signature(YaRN).parameters)[:2] == ["head_dim", "train_length"]


def test_a_misspelled_class_is_suggested() -> None:
    with pytest.raises(AttributeError, match=r"'lengthwise\.encodings' has no attribute 'Rope'; did you mean 'RoPE'\?"):
        _ = lengthwise.encodings.Rope
