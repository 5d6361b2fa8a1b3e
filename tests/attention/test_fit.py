"""Forms whose tensors do not have the sizes of the attention call are refused before a backend reads them."""

import re
from typing import Any

import pytest
import torch

from lengthwise import attend, native
from lengthwise.attention import BACKENDS, Mask, plan
from lengthwise.attention.fused import operator
from lengthwise.attention.fused.arguments import Arguments
from lengthwise.config import ConfigError, ModelConfig, choose
from lengthwise.encodings import DistanceBias, PositionEncoding, RotaryEncoding
from lengthwise.forms import (
    AttentionModifiers,
    ContentBias,
    CumulativeBias,
    DenseBias,
    KeyBias,
    PiecewiseLinearBias,
    QueryGain,
    RelativeKeyBias,
    RelativeValues,
    Rotation,
    ToeplitzBias,
)
from lengthwise.models import Decoder
from lengthwise.span import Span

HEADS, TOKENS, DIM = 4, 6, 8
Z = torch.zeros


def with_field(form: Any, name: str, value: torch.Tensor) -> Any:
    """Change a field without the checks of shapes that run when a form is made in a test."""
    object.__setattr__(form, name, value)
    return form


SEGMENTS = {
    "slope": Z(4, 3),
    "intercept": Z(4, 3),
    "knots": Z(2),
    "distance_feature": Z(TOKENS),
    "query_scale": Z(1, TOKENS),
}
WRONG = {
    "table of too few heads": (ToeplitzBias(Z(2, TOKENS)), "ToeplitzBias.table", "[1 or 4 heads, n >= 1]"),
    "table of too many heads": (ToeplitzBias(Z(8, TOKENS)), "ToeplitzBias.table", "[1 or 4 heads, n >= 1]"),
    "fewer distances than columns": (
        with_field(ToeplitzBias(Z(4, TOKENS)), "distances", torch.arange(3)), "ToeplitzBias.distances", "[n >= 1]",
    ),
    "an empty table": (ToeplitzBias(Z(4, 0)), "ToeplitzBias.table", "[1 or 4 heads, n >= 1]"),
    "an empty distance feature": (
        with_field(PiecewiseLinearBias(**SEGMENTS), "distance_feature", Z(0)), "PiecewiseLinearBias.distance_feature",
        "[n >= 1]",
    ),
    "slopes of two heads": (
        with_field(PiecewiseLinearBias(**SEGMENTS), "slope", Z(2, 3)), "PiecewiseLinearBias.slope",
        "[1 or 4 heads, s >= 1]",
    ),
    "too many knots": (
        with_field(PiecewiseLinearBias(**SEGMENTS), "knots", Z(3)), "PiecewiseLinearBias.knots", "[s-1]",
    ),
    "intercepts unlike slopes": (
        with_field(PiecewiseLinearBias(**SEGMENTS), "intercept", Z(4, 2)), "PiecewiseLinearBias.intercept",
        "[1 or 4 heads, s >= 1]",
    ),
    "vectors of another width": (RelativeKeyBias(Z(4, TOKENS, 7)), "RelativeKeyBias.table",
                                 "[1 or 4 heads, n >= 1, 8 head dim]"),
    "a vector for two heads": (KeyBias(Z(2, DIM)), "KeyBias.vector", "[4 heads, 8 head dim]"),
    "content of other queries": (
        ContentBias(Z(2, 4, 5, 3), Z(4, TOKENS, 3)), "ContentBias.content", "[2 batch, 4 heads, 6 queries, r >= 1]",
    ),
    "totals of other keys": (CumulativeBias(Z(2, 4, 5)), "CumulativeBias.prefix_sum",
                             "[1 or 2 batch, 1 or 4 heads, 6 keys]"),
    "a matrix of another batch": (
        DenseBias(Z(3, 4, TOKENS, TOKENS)), "DenseBias.bias", "[1 or 2 batch, 1 or 4 heads, 6 queries, 6 keys]",
    ),
}  # fmt: skip


class Rows(DistanceBias):
    """As many rows as `rows` says, whatever the model has."""

    def __init__(self, *, num_heads: int, rows: int = 2, learns: bool = True):
        super().__init__()
        self.slopes = torch.nn.Parameter(torch.full((rows,), 0.1), requires_grad=learns)

    def bias(self, distance: torch.Tensor) -> torch.Tensor:
        return -self.slopes.double()[:, None] * distance


class Wide(RotaryEncoding):
    """More frequencies than a head has pairs."""

    def __init__(self, *, head_dim: int):
        super().__init__()
        self.head_dim = head_dim

    def frequencies(self, length: torch.Tensor) -> torch.Tensor:
        return torch.ones(self.head_dim, dtype=torch.float64)


def decoder(encoding: type[PositionEncoding], backend: str = "auto", **settings: Any) -> Decoder:
    config = ModelConfig(d_model=16, num_layers=1, num_heads=4)
    return Decoder(config, choose(encoding, **settings), vocab_size=5, output_size=5, train_length=4, backend=backend)


@pytest.mark.parametrize(("form", "name", "shape"), WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_a_form_of_another_size_is_refused(form: Any, name: str, shape: str, backend: str) -> None:
    modifiers = AttentionModifiers(terms=(form,), encoding="Mine")
    with pytest.raises(ConfigError, match=rf"^{re.escape(name)} of Mine has shape .*; it must be {re.escape(shape)}$"):
        plan(modifiers, Span.of(TOKENS), Mask(TOKENS, TOKENS), Z(2, HEADS, TOKENS, DIM), backend=backend)


@pytest.mark.parametrize(
    "modifiers",
    [
        AttentionModifiers(values=(RelativeValues(Z(4, TOKENS, 7)),)),
        AttentionModifiers(gain=QueryGain(Z(2, 4, 5))),
        AttentionModifiers(rotation=Rotation(Z(1, 1, TOKENS, 5), Z(1, 1, TOKENS, 5))),
        AttentionModifiers(rotation=Rotation(Z(1, 1, 5, 2), Z(1, 1, TOKENS, 2))),
        AttentionModifiers(rotation=Rotation(None, Z(3, 1, TOKENS, 2))),
        AttentionModifiers(rotation=Rotation(Z(1, 3, TOKENS, 2), None)),
        AttentionModifiers(rotation=with_field(Rotation(), "angle_q", Z(1, TOKENS, 2))),
    ],
    ids=["values", "gain", "pairs", "queries", "batch", "heads", "no axis for heads"],
)
def test_so_are_values_gains_and_rotations(modifiers: AttentionModifiers) -> None:
    with pytest.raises(ConfigError, match=r"has shape .*; it must be "):
        plan(modifiers, Span.of(TOKENS), Mask(TOKENS, TOKENS), Z(2, HEADS, TOKENS, DIM))


@pytest.mark.parametrize("backend", ["auto", *BACKENDS])
@pytest.mark.parametrize("rows", [2, 8])
@pytest.mark.parametrize("learns", [True, False])
def test_a_model_refuses_an_encoding_with_another_number_of_heads(backend: str, rows: int, learns: bool) -> None:
    """The compiled kernel read and wrote beyond such a table."""
    model = decoder(Rows, backend, rows=rows, learns=learns)
    with pytest.raises(
        ConfigError,
        match=rf"^ToeplitzBias\.table of Rows has shape \[{rows}, 6\]; it must be \[1 or 4 heads, n >= 1\]$",
    ):
        model(torch.zeros(2, 6, dtype=torch.long))


def test_one_row_serves_all_heads() -> None:
    model = decoder(Rows, rows=1)
    assert model(torch.zeros(2, 6, dtype=torch.long)).isfinite().all()


def test_a_model_refuses_too_many_frequencies() -> None:
    with pytest.raises(
        ConfigError, match=r"^Rotation\.angle_q of Wide has shape \[1, 1, 6, 4\]; it must be .* at most 2 pairs"
    ):
        decoder(Wide)(torch.zeros(2, 6, dtype=torch.long))


class Cliff(DistanceBias):
    """0 nats up to `distance_bound` tokens, and then -w: a setting may have any name."""

    def __init__(self, *, num_heads: int, reach: int = 4, constant: int | None = None):
        super().__init__()
        self.num_heads, self.reach, self.constant_beyond = num_heads, reach, constant

    def bias(self, distance: torch.Tensor) -> torch.Tensor:
        return (-3.0 * (distance > self.reach).double())[None].repeat(self.num_heads, 1)


def test_a_bias_is_applied_at_every_distance() -> None:
    q, k, v = torch.randn(3, 1, 2, 16, 8).unbind(0)
    distance = torch.arange(16)[:, None] - torch.arange(16)
    logits = q @ k.mT / 8**0.5 - 3.0 * (distance > 4)
    expected = logits.masked_fill(distance < 0, -torch.inf).softmax(-1) @ v
    torch.testing.assert_close(attend(q, k, v, Cliff(num_heads=2)), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(attend(q, k, v, Cliff(num_heads=2, constant=5)), expected, rtol=1e-5, atol=1e-5)


def test_a_table_on_another_device_is_refused() -> None:
    """The kernel took the address 0 of a tensor on the meta device for no table."""
    for form, name in (
        (ToeplitzBias(torch.empty(4, TOKENS, device="meta")), r"ToeplitzBias\.table"),
        (DenseBias(torch.empty(1, 1, TOKENS, TOKENS, device="meta")), r"DenseBias\.bias"),
    ):
        with pytest.raises(ConfigError, match=rf"^{name} must be on the device of q, cpu, got meta$"):
            plan(AttentionModifiers(terms=(form,)), Span.of(TOKENS), Mask(TOKENS, TOKENS), Z(2, HEADS, TOKENS, DIM))
    rotation = Rotation(torch.empty(1, 1, TOKENS, 2, device="meta"), None)
    with pytest.raises(ConfigError, match=r"^Rotation\.angle_q must be on the device of q, cpu, got meta$"):
        plan(AttentionModifiers(rotation=rotation), Span.of(TOKENS), Mask(TOKENS, TOKENS), Z(2, HEADS, TOKENS, DIM))


def test_a_list_is_no_table() -> None:
    form = with_field(ToeplitzBias(Z(4, TOKENS)), "table", [[0.0] * TOKENS])
    with pytest.raises(ConfigError, match=r"^ToeplitzBias\.table must be a tensor, got list$"):
        plan(AttentionModifiers(terms=(form,)), Span.of(TOKENS), Mask(TOKENS, TOKENS), Z(2, HEADS, TOKENS, DIM))


@pytest.mark.skipif(native.unsupported_reason() is not None, reason="there is no compiled kernel here")
def test_the_kernel_checks_sizes_itself() -> None:
    """A compiled graph reaches it without the checks above."""
    q = Z(1, 2, 3, 4)
    wrong = [("table", Z(3, 5)), ("table", Z(2, 0)), ("cos_sin_q", Z(1, 4, 2, 2)), ("prefix_sum", Z(1, 2, 4).double())]
    for name, x in wrong:
        with pytest.raises(ConfigError, match=rf"^{name} has shape .*, which does not fit q of shape \[1, 2, 3, 4\]$"):
            operator.attend(q, q, q, Arguments(**{name: x}))


class NoInit(DistanceBias):
    """A class needs no `__init__`: it has no settings then."""

    def bias(self, distance: torch.Tensor) -> torch.Tensor:
        return -distance.double()[None]


def test_an_encoding_without_init_is_fine() -> None:
    q, k, v = torch.randn(3, 1, 2, 5, 4).unbind(0)
    assert attend(q, k, v, NoInit()).shape == q.shape
    assert decoder(NoInit)(torch.zeros(1, 4, dtype=torch.long)).isfinite().all()
