"""A new form is one class with its definition. The backends without kernels of their own need nothing else."""

from dataclasses import dataclass

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise import attend
from lengthwise.attention import BACKENDS, Mask, TokenInfo, plan, statistics
from lengthwise.attention.backends.blocked.blocks import BLOCK_QUERIES
from lengthwise.config import ConfigError
from lengthwise.conformance import float64_reference
from lengthwise.encodings import PositionEncoding
from lengthwise.forms import AttentionModifiers, Term
from lengthwise.forms.plain import PairIndex, number
from lengthwise.span import Span

B, H, T, D = 2, 3, 40, 8


@dataclass(frozen=True)
class OuterBias(Term):
    """`+ query_number[h, i] · key_number[b, h, j] / (1 + max(0, distance))`."""

    query_number: Float[Tensor, "#b #h i"]
    key_number: Float[Tensor, "#b #h j"]

    def dense(self, q: Tensor, k: Tensor, span: Span, scale: float) -> Tensor:
        near = 1 / (1 + span.distance().clamp(min=0).to(self.key_number.dtype))
        return self.query_number[..., None] * self.key_number[..., None, :] * near[:, None]

    def plain_value(self, index: PairIndex, q: list[float], k: list[float], distance: int, scale: float) -> float:
        b, h, i, j = index
        return number(self.query_number, b, h, i) * number(self.key_number, b, h, j) / (1 + max(0, distance))


@dataclass(frozen=True)
class LargestProduct(Term):
    """`+ weight[h] · scale · max_n(q_in k_jn)`: a term that reads q and k."""

    weight: Float[Tensor, " h"]

    reads_q = reads_k = True

    def dense(self, q: Tensor, k: Tensor, span: Span, scale: float) -> Tensor:
        return self.weight[:, None, None] * scale * (q[..., None, :] * k[..., None, :, :]).amax(-1)


class Mine(PositionEncoding):
    """An encoding with both forms."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = torch.nn.Parameter(torch.randn(2, H, T, dtype=torch.float64))
        self.weight = torch.nn.Parameter(torch.randn(H, dtype=torch.float64))

    def modifiers(self, span: Span) -> AttentionModifiers:
        query_number, key_number = self.numbers[:1][..., span.q[0] % T], self.numbers[1:][..., span.k[0] % T]
        return AttentionModifiers(terms=(OuterBias(query_number, key_number), LargestProduct(self.weight)))


def tensors() -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(B, heads, T, D, dtype=torch.float64, requires_grad=True) for heads in (H, 1, 1)]


def by_hand(encoding: Mine, q: Tensor, k: Tensor, v: Tensor, position: Tensor, visible: Tensor) -> Tensor:
    distance = (position[:, None] - position).clamp(min=0)
    outer = encoding.numbers[0][:, position, None] * encoding.numbers[1][:, None, position] / (1 + distance)
    largest = encoding.weight[:, None, None] * (q[..., None, :] * k[..., None, :, :]).amax(-1)
    logits = (q @ k.mT + largest) * D**-0.5 + outer
    return logits.masked_fill(~visible, -torch.inf).softmax(-1) @ v


@pytest.mark.parametrize("backend", ["reference", "blocked", "sdpa"])
@pytest.mark.parametrize("packed", [False, True])
def test_backends_without_kernels_need_only_the_definition(
    backend: str, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BLOCK_QUERIES, "cpu", 7)
    encoding, (q, k, v) = Mine(), tensors()
    documents = torch.arange(T) // 25 if packed else torch.zeros(T, dtype=torch.long)
    position = torch.arange(T) - 25 * documents
    visible = torch.ones(T, T, dtype=torch.bool).tril() & (documents[:, None] == documents)
    tokens = TokenInfo(documents=documents[None]) if packed else None
    sources = [q, k, v, *encoding.parameters()]
    results = [attend(q, k, v, encoding, tokens=tokens, backend=backend), by_hand(encoding, q, k, v, position, visible)]
    weight = torch.randn_like(results[0])
    gradients = [torch.autograd.grad((result * weight).sum(), sources) for result in results]
    for result, expected in zip((results[0], *gradients[0]), (results[1], *gradients[1]), strict=True):
        torch.testing.assert_close(result, expected, rtol=0, atol=1e-12)


def test_auto_takes_a_backend_that_supports_it_and_others_say_why() -> None:
    encoding, (q, k, v) = Mine(), tensors()
    span = Span.of(T)
    assert plan(encoding.modifiers(span), span, Mask(T, T), q).backend == "blocked"
    with pytest.raises(ConfigError, match="no kernel for OuterBias"):
        attend(q, k, v, encoding, backend="fused")
    with pytest.raises(ConfigError, match="no score_mod for LargestProduct, which reads q and k"):
        attend(q, k, v, encoding, backend="flex")


@pytest.mark.medium
def test_flex_reads_the_values_of_all_pairs() -> None:
    encoding, (q, k, v) = Mine(), tensors()
    span, mask = Span.of(T), Mask(T, T)
    modifiers = AttentionModifiers(terms=encoding.modifiers(span).terms[:1])
    with torch.no_grad():
        out, expected = (plan(modifiers, span, mask, q, backend=name)(q, k, v) for name in ("flex", "reference"))
    torch.testing.assert_close(out, expected)


def test_statistics_are_those_of_its_weights() -> None:
    encoding, (q, k, _) = Mine(), tensors()
    identity = torch.eye(T, dtype=torch.float64).expand(B, 1, T, T)
    with torch.no_grad():
        visible = torch.ones(T, T, dtype=torch.bool).tril()
        weights = by_hand(encoding, q, k, identity, torch.arange(T), visible)
    torch.testing.assert_close(statistics(q, k, encoding).query_entropy, torch.special.entr(weights).sum(-1))


def test_its_check_follows_from_the_annotations() -> None:
    encoding, span = Mine(), Span.of(T)
    terms = encoding.modifiers(span).terms
    assert [term.heads for term in terms] == [H, H]
    message = r"^OuterBias\.query_number has shape \[1, 3, 40\]; it must be \[1 or 2 batch, 1 or 4 heads, 40 queries\]$"
    with pytest.raises(ConfigError, match=message):
        plan(AttentionModifiers(terms=terms), span, Mask(T, T), torch.zeros(B, 4, T, D))
    assert (
        BACKENDS["blocked"].unsupported_reason(AttentionModifiers(terms=terms), span, Mask(T, T), tensors()[0]) is None
    )


def test_check_compares_its_definition_with_its_plain_values() -> None:
    encoding, (q, k, v) = Mine(), (x[:, :, :4].detach() for x in tensors())
    positions, visible = torch.arange(4).expand(B, -1), torch.ones(B, 4, 4, dtype=torch.bool).tril()
    call = q, k, v, positions, torch.full((B, 4), 4), visible, D**-0.5, q[:, 0]
    with pytest.raises(ConfigError, match="LargestProduct has no plain_value"):
        float64_reference.output(encoding, *call)
    modifiers = encoding.modifiers
    encoding.modifiers = lambda span: AttentionModifiers(terms=modifiers(span).terms[:1])  # type: ignore[method-assign]
    expected = attend(q, k, v, encoding, backend="reference")
    torch.testing.assert_close(float64_reference.output(encoding, *call), expected.detach(), rtol=0, atol=1e-12)
