"""The NoPE paper's Theorem 1: without position encoding, the first layer of a causal decoder can compute positions.

An ordinary `Decoder` is built, and its first block gets the weights of the proof. As in the paper, positions t = 1, 2,
... and dimensions are counted from 1. The first token is `<bos>`:

    embeddings   dim 1 is 1 for every token; dim 2 is 1 for <bos> and 0 for all others; dim 3 is 0; the rest is content
    W_K          every row [1, 0, 0, ...]: all keys are equal, for any queries (W_Q is random here)
    W_V          row 1 is [0, 1, 0, ...]: the value of <bos> is 1, of all others 0
    W_O          the entry (3, 1) is 1

Attention is uniform, so dim 3 becomes 1/t. The paper does not give the weights of the MLP. Here 1/t -> t is a sum of
relus with kinks at 1/s,

    t = 1 + Σ_{s=1}^{bound-1} 2s · relu(1/s - 1/t)        for t <= bound

because those with s < t give 2s (1/s - 1/t) = 2 - 2s/t, and their sum is 2 (t - 1) - (t - 1).

Norms are removed from the model, as the proof assumes. No bias is needed, because dim 1 is always 1.
Everything else (embedding, blocks, residual stream, fused attention, causal mask) is the code that is used in training.
"""

from collections.abc import Iterator
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.config import ModelConfig, choose
from lengthwise.conformance.cases import differentiable_backends
from lengthwise.conformance.theorems.results import EPS, Result, Theorem
from lengthwise.encodings import NoPE, PositionEncoding
from lengthwise.models import Decoder
from lengthwise.models.decoder import Block

BOUND = 512
LENGTHS = (1, 2, 3, 6, 64, 511, BOUND)
WIDTH, HEADS, VOCABULARY = 16, 2, 29
ONE, FIRST, PLACE, CONTENT = 0, 1, 2, slice(3, None)  # the dims 1, 2, 3 and the rest, as Python counts


def decoder(bound: int, *, num_layers: int = 1, backend: str = "auto", seed: int = 0) -> Decoder:
    """Return a decoder without position encoding and norms, in float64, with the proof's embeddings and first block."""
    config = ModelConfig(
        d_model=WIDTH, num_layers=num_layers, num_heads=HEADS, d_ff=bound + 1, mlp="relu", bias=False, t5_scaling=True
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        sizes = {"vocab_size": VOCABULARY, "output_size": VOCABULARY, "train_length": bound}
        model = Decoder(config, choose(NoPE), **sizes, backend=backend)
    model = model.double().eval().requires_grad_(False)
    model.norm = nn.Identity()
    for block in blocks(model):
        block.attention_norm = block.mlp_norm = nn.Identity()
    table = cast(nn.Embedding, model.token_embedding).weight
    table[:, ONE], table[:, FIRST], table[:, PLACE] = 1.0, 0.0, 0.0
    table[0, FIRST] = 1.0  # token 0 is <bos>
    set_position_weights(blocks(model)[0], bound)
    return model


def set_position_weights(block: Block, bound: int) -> None:
    """Set the proof's weights: attention puts 1/t into dim 3, and the MLP replaces it with t."""
    _, key, value = projections(block)
    key.zero_()[:, ONE] = 1.0
    value.zero_()[0, FIRST] = 1.0
    block.out.weight.zero_()[PLACE, 0] = 1.0
    s = torch.arange(1, bound, dtype=torch.float64)
    up, down = block.up.weight.zero_(), block.down.weight.zero_()
    up[: bound - 1, ONE], up[: bound - 1, PLACE], down[PLACE, : bound - 1] = 1 / s, -1.0, 2 * s
    up[-2, ONE], down[PLACE, -2] = 1.0, 1.0  # + 1
    up[-1, PLACE], down[PLACE, -1] = 1.0, -1.0  # - 1/t, which the residual stream adds


def projections(block: Block) -> tuple[Tensor, Tensor, Tensor]:
    """Return W_Q, W_K and W_V of all heads, [h · d, c] each, as views that can be written to."""
    query, key, value = block.qkv.weight.chunk(3)
    return query, key, value


def blocks(model: Decoder) -> list[Block]:
    return cast(list[Block], list(model.blocks))


def token_ids(length: int) -> Int[Tensor, "b t"]:
    """Return sequences of <bos> followed by random tokens."""
    ids = torch.randint(1, VOCABULARY, (3, length), generator=torch.Generator().manual_seed(length))
    ids[:, 0] = 0
    return ids


@torch.no_grad()
def stages(model: Decoder, ids: Int[Tensor, "b t"]) -> dict[str, Float[Tensor, "b t c"]]:
    """Return the embeddings, and the output of each block ("0") and of its attention ("attention 0"), by name."""
    outputs: dict[str, Tensor] = {}

    def record(name: str) -> Any:
        return lambda module, arguments, output: outputs.__setitem__(name, output.clone())

    hooks = [cast(nn.Embedding, model.token_embedding).register_forward_hook(record("embeddings"))]
    for n, block in enumerate(blocks(model)):
        hooks.append(block.out.register_forward_hook(record(f"attention {n}")))
        hooks.append(block.register_forward_hook(record(f"{n}")))
    try:
        model(ids)
    finally:
        for hook in hooks:
            hook.remove()
    return outputs


def compare(model: Decoder, bound: int) -> Iterator[Result]:
    """Compare dim 3 after the first attention with 1/t, and the first block's output with (1, [t=1], t, content)."""
    inverse, state = [], []
    lengths = [n for n in LENGTHS if n <= bound]
    for length in lengths:
        outputs = stages(model, token_ids(length))
        t = torch.arange(1, length + 1, dtype=torch.float64)
        expected = outputs["embeddings"].clone()
        expected[..., PLACE] = t
        inverse.append((float((outputs["attention 0"][..., PLACE] - 1 / t).abs().max()), 4 * EPS))
        state.append((float((outputs["0"] - expected).abs().max()), position_error_allowed(length)))
    where = f"to t = {max(lengths)}, {model.backend}"
    yield Result.of(THEOREM, NoPE, f"1/t after attention, {where}", inverse)
    yield Result.of(THEOREM, NoPE, f"state (1, [t=1], t, content), {where}", state)


def position_error_allowed(t: int) -> float:
    """Return the bound on the rounding error of t, which is far below the 1/2 that would change it to another number.

    t is the sum of t numbers other than 0, and each addition is rounded by half an EPS. Computing these numbers, and
    subtracting and adding 1/t, adds a few EPS of t.
    """
    return (t / 2 + 4) * t * EPS


def prove(make: type[PositionEncoding]) -> Iterator[Result]:
    for backend in differentiable_backends():
        yield from compare(decoder(BOUND, backend=backend), BOUND)


THEOREM = Theorem(
    name="NoPE finds positions",
    statement="a causal decoder without position encoding can have the absolute position in its state after one layer",
    source="Kazemnejad et al. 2023, theorem 1 and appendix C.1",
    about=lambda: (NoPE,),
    prove=prove,
)
