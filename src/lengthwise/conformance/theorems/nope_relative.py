"""The NoPE paper's Theorem 2: once positions are in the state, attention without position encoding can be relative.

The states are (1, [t=1], t, content), as Theorem 1 computes them. The first two rows of every head are

    W_Q   [1, 0,  0, 0, ...]        W_K   [0, 0, 1, 0, ...]
          [0, 0, -1, 0, ...]              [1, 0, 0, 0, ...]

so q_t = [1, -t, ...], k_i = [i, 1, ...], and <q_t, k_i> = <content of q_t, content of k_i> - (t - i): ALiBi with slope
1. (The paper prints W_V for the second matrix, eq. 29, and uses it as W_K, eq. 32. As W_V it does not have this
effect.)

The decoder has two blocks. The first is that of Theorem 1. The second has these rows, and its other rows read only
content. It is compared on sequences of token IDs with attention on content that is taken directly from the embeddings.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.attention import attend
from lengthwise.conformance.cases import differentiable_backends, numbers
from lengthwise.conformance.theorems import nope_absolute
from lengthwise.conformance.theorems.nope_absolute import BOUND, CONTENT, HEADS, LENGTHS, ONE, PLACE, WIDTH, blocks
from lengthwise.conformance.theorems.results import EPS, Result, Theorem
from lengthwise.encodings import DistanceBias, NoPE, PositionEncoding
from lengthwise.models import Decoder
from lengthwise.models.decoder import Block


class MinusDistance(DistanceBias):
    """b(h, i, j) = -(i - j), the bias that the construction has to equal."""

    def __init__(self, *, num_heads: int):
        super().__init__()
        self.num_heads = num_heads

    def bias(self, distance: Int[Tensor, " n"]) -> Float[Tensor, "h n"]:
        return -distance.double().expand(self.num_heads, -1)


def decoder(bound: int, *, backend: str = "auto") -> Decoder:
    """Return a decoder of two blocks: that of Theorem 1, and one with relative attention."""
    model = nope_absolute.decoder(bound, num_layers=2, backend=backend)
    set_relative_weights(blocks(model)[1])
    return model


def set_relative_weights(block: Block) -> None:
    """Set the first two rows of each head's W_Q and W_K as in the proof. All other rows, and W_V, read only content."""
    for n, matrix in enumerate(nope_absolute.projections(block)):
        matrix.zero_()[:, CONTENT] = numbers(320 + n, len(matrix), WIDTH - CONTENT.start) / 4
    block.out.weight.div_(2)  # any weights will do; the allowed rounding error depends on their size
    query, key, _ = (matrix.unflatten(0, (block.heads, -1)) for matrix in nope_absolute.projections(block))
    query[:, :2] = key[:, :2] = 0.0
    query[:, 0, ONE], query[:, 1, PLACE] = 1.0, -1.0
    key[:, 0, PLACE], key[:, 1, ONE] = 1.0, 1.0


@torch.no_grad()
def compare(model: Decoder, bound: int) -> Iterator[Result]:
    """Compare the second block's logits with content - (t - i), and its attention with content under that bias."""
    block = blocks(model)[1]
    lengths = [n for n in LENGTHS if n <= bound]
    logits, out = [], []
    for length in lengths:
        outputs = nope_absolute.stages(model, nope_absolute.token_ids(length))
        q, k, _ = block.qkv_heads(outputs["0"])
        content = torch.zeros_like(outputs["embeddings"])
        content[..., CONTENT] = outputs["embeddings"][..., CONTENT]
        content_q, content_k, v = block.qkv_heads(content)
        t = torch.arange(length)
        expected = content_q @ content_k.mT - (t[:, None] - t)
        visible = (t[:, None] >= t).expand_as(expected)
        relative = attend(content_q, content_k, v, MinusDistance(num_heads=HEADS), scale=1.0, backend="reference")
        expected_out = block.out(relative.transpose(1, 2).flatten(2))
        # Both positions have the error of Theorem 1's block, up to its bound. Each of the head_dim products and
        # additions of a logit is rounded by half an EPS, on both sides.
        position_error = float((outputs["0"][..., PLACE] - t - 1).abs().max())
        position_error = min(position_error, nope_absolute.position_error_allowed(length))
        allowed = 2 * position_error + 2 * block.head_dim * EPS * float((q.abs() @ k.abs().mT)[visible].max())
        logits.append((float((q @ k.mT - expected)[visible].abs().max()), allowed))
        # A weight has the relative error 2 · allowed. Sums of weights and of values over all keys are rounded, on both
        # sides. `size` bounds the output of W_O, which rounds each of its WIDTH products and sums.
        size = float((block.out.weight.abs() @ v.abs().amax((0, 2)).flatten()).max())
        error = float((outputs["attention 1"] - expected_out).abs().max())
        out.append((error, (2 * allowed + 2 * (length + WIDTH) * EPS) * size))
    where = f"to t = {max(lengths)}, {model.backend}"
    yield Result.of(THEOREM, NoPE, f"logits content - (t - i), {where}", logits)
    yield Result.of(THEOREM, NoPE, f"attention with bias -(t - i), {where}", out)


def prove(make: type[PositionEncoding]) -> Iterator[Result]:
    for backend in differentiable_backends():
        yield from compare(decoder(BOUND, backend=backend), BOUND)


THEOREM = Theorem(
    name="NoPE attends relatively",
    statement="with positions in its state, a decoder without position encoding can attend as under the bias -(t - i)",
    source="Kazemnejad et al. 2023, theorem 2 and appendix C.2 (W_K where eq. 29 prints W_V)",
    about=lambda: (NoPE,),
    prove=prove,
)
