"""What the methods of a user's encoding return: checked where it is received, with one line that names the method."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import lengthwise
from lengthwise.attention import EncodingCache, TokenInfo
from lengthwise.config import ConfigError, ModelConfig, choose
from lengthwise.encodings import DistanceBias, NoPE, PositionEncoding, RotaryEncoding, Temperature
from lengthwise.forms import AttentionModifiers, LogitTransform, QueryGain, Rotation, ToeplitzBias
from lengthwise.inspection import inspect
from lengthwise.models import Decoder
from tests.unchecked import with_fields

HEADS, TOKENS, DIMS = 2, 6, 8
ANGLES = torch.ones(1, 1, TOKENS, 2)
TABLE = ToeplitzBias(torch.zeros(1, TOKENS))


WRONG_FIELDS: list[dict[str, Any]] = [
    *({"terms": None}, {"terms": [TABLE]}, {"terms": TABLE}, {"terms": (torch.zeros(3),)}),
    *({"values": (TABLE,)}, {"rotation": ANGLES}, {"gain": 2.0}, {"logit_transform": torch.relu}),
]
NO_MODIFIERS: list[Any] = [
    *(None, torch.zeros(3), AttentionModifiers),
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


@pytest.mark.parametrize("result", [None, torch.zeros(3), torch.zeros(TOKENS, 1, 3)], ids=range(3))
def test_features(result: Any) -> None:
    one_line("features", lambda: attend(made(Reads, result=result), tokens=TokenInfo(x=torch.zeros(1, TOKENS, 5))))


@pytest.mark.parametrize("terms", [None, TABLE, [TABLE], (3,)], ids=range(4))
def test_content(terms: Any) -> None:
    encoding = made(Reads, result=torch.zeros(1, TOKENS, 1), terms=terms)
    one_line("content", lambda: attend(encoding, tokens=TokenInfo(x=torch.zeros(1, TOKENS, 5))))


@pytest.mark.parametrize("result", [None, 3.0, [1.0], torch.ones(()), torch.ones(3, 4)], ids=range(5))
def test_frequencies(result: Any) -> None:
    one_line("frequencies", lambda: attend(made(Turns, result=result)))


@pytest.mark.parametrize("factor", [{}, "2", torch.ones(()), torch.ones(TOKENS, 1)], ids=range(4))
def test_gain(factor: Any) -> None:
    one_line("gain", lambda: attend(made(Turns, factor=factor)))


@pytest.mark.parametrize("factor", [None, 2.0, torch.ones(TOKENS), torch.ones(1, 1, TOKENS + 1)], ids=range(4))
def test_the_factor_of_a_temperature(factor: Any) -> None:
    class Warm(Temperature):
        def factor(self, position: Any) -> Any:
            return factor

    one_line("factor", lambda: attend(Warm()))


@pytest.mark.parametrize("length", [None, 3, torch.tensor(1.5), torch.ones(2).long()], ids=range(4))
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


@pytest.mark.parametrize("result", [None, 1.5, torch.zeros(TOKENS), torch.zeros(HEADS, TOKENS + 1)], ids=range(4))
def test_a_bias_of_another_shape(result: Any) -> None:
    class Wrong(DistanceBias):
        def bias(self, distance: Any) -> Any:
            return result

    one_line("bias", lambda: attend(Wrong()))


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
