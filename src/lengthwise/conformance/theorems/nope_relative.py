"""The NoPE paper's Theorem 2: once positions are in the state, attention without position encoding can be relative.

Given states (1, [t=1], t, content), which Theorem 1 leaves behind, the first two rows of every head are

    W_Q   [1, 0,  0, 0, ...]        W_K   [0, 0, 1, 0, ...]
          [0, 0, -1, 0, ...]              [1, 0, 0, 0, ...]

so q_t = [1, -t, ...], k_i = [i, 1, ...], and <q_t, k_i> = <content of q_t, content of k_i> - (t - i): ALiBi with slope 1.
(The paper prints W_V for the second matrix, eq. 29, and uses it as W_K, eq. 32. Written to W_V it does nothing of the kind.)

The decoder has two blocks: the first is that of Theorem 1, the second has these rows and reads content alone with all
others. It is compared on real sequences, token ids in, with content that comes straight from the embeddings.
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
    """b(h, i, j) = -(i - j): what the construction is to amount to."""

    def __init__(self, num_heads: int):
        super().__init__()
        self.num_heads = num_heads

    def bias(self, distance: Int[Tensor, " n"]) -> Float[Tensor, "h n"]:
        return -distance.double().expand(self.num_heads, -1)


def decoder(bound: int, *, backend: str = "auto") -> Decoder:
    """Two blocks: that of Theorem 1, and one whose attention is relative."""
    model = nope_absolute.decoder(bound, num_layers=2, backend=backend)
    be_relative(blocks(model)[1])
    return model


def be_relative(block: Block) -> None:
    """The rows of the proof at the head of each head's W_Q and W_K; all others, and W_V, read content alone."""
    for n, matrix in enumerate(nope_absolute.projections(block)):
        matrix.zero_()[:, CONTENT] = numbers(320 + n, len(matrix), WIDTH - CONTENT.start) / 4
    block.out.weight.div_(2)  # any will do; rounding is judged by its size
    query, key, _ = (matrix.unflatten(0, (block.heads, -1)) for matrix in nope_absolute.projections(block))
    query[:, :2] = key[:, :2] = 0.0
    query[:, 0, ONE], query[:, 1, PLACE] = 1.0, -1.0
    key[:, 0, PLACE], key[:, 1, ONE] = 1.0, 1.0


@torch.no_grad()
def compare(model: Decoder, bound: int) -> Iterator[Result]:
    """Logits of the second block against content - (t - i), and its attention against content under the bias -(t - i)."""
    block = blocks(model)[1]
    lengths = [n for n in LENGTHS if n <= bound]
    logits, out = [], []
    for length in lengths:
        seen = nope_absolute.stages(model, nope_absolute.texts(length))
        q, k, _ = block.qkv_heads(seen["0"])
        content = torch.zeros_like(seen["embeddings"])
        content[..., CONTENT] = seen["embeddings"][..., CONTENT]
        content_q, content_k, v = block.qkv_heads(content)
        t = torch.arange(length)
        wanted = content_q @ content_k.mT - (t[:, None] - t)
        visible = (t[:, None] >= t).expand_as(wanted)
        relative = attend(content_q, content_k, v, MinusDistance(HEADS), scale=1.0, backend="reference")
        added = block.out(relative.transpose(1, 2).flatten(2))
        # Both positions are off by what Theorem 1 left here, and not by more than it may leave. Of the products of a logit
        # and their sum, head_dim each, every one is rounded by half an EPS of what is added up, on both sides.
        places = min(float((seen["0"][..., PLACE] - t - 1).abs().max()), nope_absolute.places_allowed(length))
        allowed = 2 * places + 2 * block.head_dim * EPS * float((q.abs() @ k.abs().mT)[visible].max())
        logits.append((float((q @ k.mT - wanted)[visible].abs().max()), allowed))
        # A weight is off by a factor of 1 ± 2 · allowed, and sums over all keys are rounded for weights and values, on both
        # sides. W_O adds up no more than the largest values times its own, and rounds each of WIDTH products and sums.
        size = float((block.out.weight.abs() @ v.abs().amax((0, 2)).flatten()).max())
        out.append(
            (float((seen["attention 1"] - added).abs().max()), (2 * allowed + 2 * (length + WIDTH) * EPS) * size)
        )
    where = f"to t = {max(lengths)}, {model.backend}"
    yield Result.of(THEOREM, NoPE, f"logits content - (t - i), {where}", logits)
    yield Result.of(THEOREM, NoPE, f"attention with bias -(t - i), {where}", out)


def prove(make: type[PositionEncoding]) -> Iterator[Result]:
    for backend in differentiable_backends():
        yield from compare(decoder(BOUND, backend=backend), BOUND)


THEOREM = Theorem(
    name="NoPE attends relatively",
    says="with positions in its state, a decoder without position encoding can attend as under the bias -(t - i)",
    source="Kazemnejad et al. 2023, theorem 2 and appendix C.2 (W_K where eq. 29 prints W_V)",
    about=lambda: (NoPE,),
    prove=prove,
)
