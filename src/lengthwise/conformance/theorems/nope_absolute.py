"""The NoPE paper's Theorem 1: without any position encoding, the first layer of a causal decoder can find out positions.

A decoder as any other of ours is made, and its first block gets the weights of the proof. Positions t = 1, 2, ... (the
paper counts from 1), the first token is `<bos>`; dims are counted from 1 as well:

    embeddings   dim 1 is 1 for every token; dim 2 is 1 for <bos> and 0 for all others; dim 3 is 0; the rest is content
    W_K          every row [1, 0, 0, ...]: all keys are equal, whatever the queries (drawn at random here)
    W_V          row 1 is [0, 1, 0, ...]: the value of <bos> is 1, of all others 0
    W_O          the entry (3, 1) is 1

Attention is uniform, so dim 3 becomes 1/t. The paper leaves the weights of the MLP open; 1/t -> t is made of kinks at 1/s,

    t = 1 + Σ_{s=1}^{bound-1} 2s · relu(1/s - 1/t)        for t <= bound

since those with s < t give 2s (1/s - 1/t) = 2 - 2s/t, which is 2 (t - 1) - (t - 1) in sum.

Norms are bypassed, as the proof assumes: each is taken out of the model. No bias is needed, the 1 of dim 1 serves as one.
Everything else (embedding, blocks, residual stream, fused attention, causal mask) is the code that trains.
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
    """A decoder without position encoding and norms, in float64: embeddings and first block as in the proof."""
    config = ModelConfig(
        d_model=WIDTH, num_layers=num_layers, num_heads=HEADS, d_ff=bound + 1, mlp="relu", bias=False, t5_scaling=True
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Decoder(
            config,
            choose(NoPE),
            vocab_size=VOCABULARY,
            output_size=VOCABULARY,
            train_length=bound,
            backend=backend,
        )
    model = model.double().eval().requires_grad_(False)
    model.norm = nn.Identity()
    for block in blocks(model):
        block.attention_norm = block.mlp_norm = nn.Identity()
    table = cast(nn.Embedding, model.read).weight
    table[:, ONE], table[:, FIRST], table[:, PLACE] = 1.0, 0.0, 0.0
    table[0, FIRST] = 1.0  # token 0 is <bos>
    find_places(blocks(model)[0], bound)
    return model


def find_places(block: Block, bound: int) -> None:
    """The proof's weights: attention puts 1/t into dim 3, and the MLP makes it t."""
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
    """W_Q, W_K, W_V of all heads, [h · d, c] each: views, to write to."""
    rows = block.heads * block.head_dim
    query, key, value = block.qkv.weight.split(rows)
    return query, key, value


def blocks(model: Decoder) -> list[Block]:
    return cast(list[Block], list(model.blocks))


def texts(length: int, seed: int = 0) -> Int[Tensor, "b t"]:
    """<bos> and random tokens."""
    generator = torch.Generator().manual_seed(seed + length)
    ids = torch.randint(1, VOCABULARY, (3, length), generator=generator)
    ids[:, 0] = 0
    return ids


@torch.no_grad()
def stages(model: Decoder, ids: Int[Tensor, "b t"]) -> dict[str, Float[Tensor, "b t c"]]:
    """What passes through the blocks while the model reads: what attention adds, and what leaves, block by block."""
    seen: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        return lambda module, given, made: seen.__setitem__(name, made.clone())

    hooks = [model.read.register_forward_hook(keep("embeddings"))]
    for n, block in enumerate(blocks(model)):
        hooks += [block.out.register_forward_hook(keep(f"attention {n}")), block.register_forward_hook(keep(f"{n}"))]
    try:
        model(ids)
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def compare(model: Decoder, bound: int) -> Iterator[Result]:
    """Dim 3 after the first attention against 1/t, the whole state after the first block against (1, [t=1], t, content)."""
    inverse, state = [], []
    lengths = [n for n in LENGTHS if n <= bound]
    for length in lengths:
        seen = stages(model, texts(length))
        t = torch.arange(1, length + 1, dtype=torch.float64)
        wanted = seen["embeddings"].clone()
        wanted[..., PLACE] = t
        inverse.append((float((seen["attention 0"][..., PLACE] - 1 / t).abs().max()), 4 * EPS))
        state.append((float((seen["0"] - wanted).abs().max()), places_allowed(length)))
    where = f"to t = {max(lengths)}, {model.backend}"
    yield Result.of(THEOREM, NoPE, f"1/t after attention, {where}", inverse)
    yield Result.of(THEOREM, NoPE, f"state (1, [t=1], t, content), {where}", state)


def places_allowed(t: int) -> float:
    """What t may lose: a sum of t numbers other than 0 that comes to t, each step rounded by half an EPS; 1/s, 1/t, their
    differences and products before, and 1/t taken off and added again, a few EPS of t. Far below the 1/2 that would make t
    another number."""
    return (t / 2 + 4) * t * EPS


def prove(make: type[PositionEncoding]) -> Iterator[Result]:
    for backend in differentiable_backends():
        yield from compare(decoder(BOUND, backend=backend), BOUND)


THEOREM = Theorem(
    name="NoPE finds positions",
    says="a causal decoder without position encoding can have the absolute position in its state after one layer",
    source="Kazemnejad et al. 2023, theorem 1 and appendix C.1",
    about=lambda: (NoPE,),
    prove=prove,
)
