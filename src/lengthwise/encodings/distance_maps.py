"""Encodings that replace large distances by smaller ones and rotate as RoPE does.

SelfExtend: exact distances near the query, and positions in groups of tokens further away.
ReRoPE: distances grow no further, or more slowly, outside a window.
DCA: dual chunk attention, with positions that restart in every chunk of a long text.
STRING: the largest distances of training are dropped, and well-trained ones take their place.
"""

from abc import abstractmethod
from typing import Any, ClassVar, Unpack

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.encodings.arguments import MAX_COUNT, require_positive_int
from lengthwise.encodings.rope import RoPE, RoPEArguments, require_factor
from lengthwise.forms import AttentionModifiers, PiecewiseRotation, Rotation, table_dtype
from lengthwise.span import Span
from lengthwise.values import require_integer, shown


class DistanceMap(RoPE):
    """Base class of maps of distances: each pair of query and key belongs to a region with positions of its own.

    A subclass defines `mapped(positions)`, the positions of queries and of keys in each region, and `near`, the
    distance from which on a pair is in region 1, or `region(q, k)`. In region 0 both are the position IDs themselves,
    so pairs of region 0 have the product of RoPE, to the last bit.
    """

    near: int

    @abstractmethod
    def mapped(self, positions: Num[Tensor, "b t"]) -> tuple[tuple[Tensor, Tensor], ...]:
        """Return the positions of queries and those of keys in each region, for tokens at `positions`."""

    def region(self, q: Num[Tensor, "b i"], k: Num[Tensor, "b j"]) -> Int[Tensor, "b i j"]:
        """Return the region of each pair."""
        return (q[:, :, None] - k[:, None] >= self.near).long()

    def modifiers(self, span: Span) -> AttentionModifiers:
        frequencies = self.frequencies(torch.tensor(span.length, device=span.q.device))
        q, k = (self.mapped(positions.to(table_dtype(positions.device))) for positions in (span.q, span.k))
        rotations = (
            Rotation(_angle(of_q[0], frequencies), _angle(of_k[1], frequencies), layout=self.layout)
            for of_q, of_k in zip(q, k, strict=True)
        )
        return AttentionModifiers(product=PiecewiseRotation(tuple(rotations), self.region))

    @classmethod
    def nominal(cls, settings: dict[str, Any]) -> tuple[dict[str, int], dict[str, Any]]:
        sizes, settings = super().nominal(settings)
        return {**sizes, "train_length": MAX_COUNT}, settings  # which lengths are valid depends on that of the training


def _angle(positions: Num[Tensor, "b t"], frequencies: Float[Tensor, " pairs"]) -> Float[Tensor, "b 1 t pairs"]:
    return positions[:, None, :, None] * frequencies


def require_within(what: str, train_length: int, **lengths: object) -> None:
    """Raise `ConfigError` unless lengths are whole numbers from 1 to the training length. `what` starts the message."""
    require_positive_int(what, **lengths)
    for name, length in lengths.items():
        if length > train_length:  # type: ignore[operator]
            raise ConfigError(
                f"{what}: {name} must be at most the training length, {train_length}, because larger distances were "
                f"never trained, got {length}"
            )


class SelfExtend(DistanceMap):
    """RoPE at the distance i - j below `window`, and at floor(i / G) - floor(j / G) + W - floor(W / G) from there on.

    i and j are the positions of query and key, G is `group` and W is `window` (default: a quarter of the training
    length L). Tokens beyond the window share positions in groups of G; it hides no key (`layer_window` does). It needs
    no training. Within the window it is RoPE to the last bit. It depends on the positions themselves, because groups
    begin at multiples of G.

    Beyond the training length: up to G · (L - W + floor(W / G)) tokens, no distance is larger than in training.

    Source: Jin et al. 2024, "LLM Maybe LongLM: Self-Extend LLM Context Window Without Tuning".
    Code: datamllab/LongLM, self_extend_patch/Llama.py (G = 8 and W = 1024).
    Differs: the code divides W / G without rounding, which gives fractions where G does not divide W. It omits W - W /
    G if the longest text of the batch has at most W tokens, so a result depends on the other texts; here it depends on
    no length.

    >>> extend = SelfExtend(head_dim=2, train_length=64, group=4, window=8)
    >>> i, j = torch.tensor([[40]]), torch.tensor([[33, 32, 31, 28, 0]])         # distances 7, 8, 9, 12 and 40
    >>> positions = extend.mapped(i)[1][0] - extend.mapped(j)[1][1]
    >>> torch.where(extend.region(i, j)[0] == 0, i - j, positions)
    tensor([[ 7,  8,  9,  9, 16]])
    """

    shift_invariant: ClassVar[bool] = False
    alternatives: ClassVar[dict[str, tuple[int, ...]]] = {"group": (3,), "window": (2, 6)}

    def __init__(self, *, train_length: int, group: int = 8, window: int | None = None, **rope: Unpack[RoPEArguments]):
        super().__init__(**rope)
        window = max(1, train_length // 4) if window is None else window
        require_positive_int("SelfExtend", group=group)
        require_within("SelfExtend", train_length, window=window)
        self.group, self.window, self.near = group, window, window

    def mapped(self, positions: Num[Tensor, "b t"]) -> tuple[tuple[Tensor, Tensor], ...]:
        grouped = positions // self.group
        return (positions, positions), (grouped + (self.window - self.window // self.group), grouped)


class ReRoPE(DistanceMap):
    """RoPE at the distance i - j below `window`, and at W from there on; with a `factor`, at W + (i - j - W) / factor.

    i and j are the positions of query and key, and W is `window` (default: an eighth of the training length L). With a
    `factor` it is called Leaky ReRoPE. It needs no training. Within the window it is RoPE to the last bit. This window
    hides no key (`layer_window` does).

    Beyond the training length: without a `factor` no distance is larger than W. With one, distances reach L after
    W + (L - W) · factor tokens.

    Source: Su 2023, "Rectified Rotary Position Embeddings" (in Chinese), kexue.fm/archives/9708.
    Code: bojone/rerope, rerope_patch.py and leaky_rerope_patch.py (W = 512, L = 4096, factor 16).
    Differs: the code also multiplies queries by ln(i + 1) / ln L past the training length (`LogN`), which is not
    included here.

    >>> leaky = ReRoPE(head_dim=2, train_length=64, window=8, factor=4.0)
    >>> i, j = torch.tensor([[40.0]]), torch.tensor([[33.0, 32.0, 28.0, 0.0]])         # distances 7, 8, 12 and 40
    >>> positions = leaky.mapped(i)[1][0] - leaky.mapped(j)[1][1]
    >>> torch.where(leaky.region(i, j)[0] == 0, i - j, positions)
    tensor([[ 7.,  8.,  9., 16.]])
    """

    alternatives: ClassVar[dict[str, tuple[float, ...]]] = {"window": (1, 6), "factor": (4.0,)}

    def __init__(
        self,
        *,
        train_length: int,
        window: int | None = None,
        factor: float | None = None,
        **rope: Unpack[RoPEArguments],
    ):
        super().__init__(**rope)
        window = max(1, train_length // 8) if window is None else window
        require_within("ReRoPE", train_length, window=window)
        if factor is not None:
            require_factor("ReRoPE", factor)
        self.window, self.factor, self.near = window, factor, window

    def mapped(self, positions: Num[Tensor, "b t"]) -> tuple[tuple[Tensor, Tensor], ...]:
        if self.factor is None:
            return (positions, positions), (torch.full_like(positions, self.window), torch.zeros_like(positions))
        offset = self.window * (1 - 1 / self.factor)
        return (positions, positions), (positions / self.factor + offset, positions / self.factor)


class DCA(DistanceMap):
    """RoPE at the distance i' - j mod s, in chunks of s = c - w tokens, with c = `chunk` and w = `window`.

    i and j are the positions of query and key. i' is i mod s for keys of the query's chunk, min(i mod s + s, c) for
    those of the chunk before it, and c for older ones. So distances are exact within a chunk, and for the first w
    tokens of a chunk also to the chunk before it. By default c is 3/4 of the training length L, and w is a sixth of c.
    w hides no key (`layer_window` does). It needs no training. Within a chunk it is RoPE to the last bit. It depends on
    the positions themselves, because chunks begin at multiples of s.

    Beyond the training length: no distance is larger than c, at any length. Distances to keys in older chunks say where
    in its chunk a key is, but not in which chunk.

    Source: An et al. 2024, "Training-Free Long-Context Scaling of Large Language Models".
    Code: HKUNLP/ChunkLlama; vllm, dual_chunk_flash_attn.py.
    Differs: for older chunks, i' in the code is min(2s - 1, c), which is less than c if w is at least c/2, and in the
    paper c - 1. For the chunk before, the paper has c - 1 as the largest i'. Its c is L; c = 3/4 L comes from the code.
    The code multiplies q and k by 0.05 ln(scale) + 1, a function of the longest text so far, so cached keys keep an
    older factor; here there is none. It computes a softmax for each chunk and adds them up with weights in bfloat16;
    here there is one softmax.

    >>> dca = DCA(head_dim=2, train_length=16)         # c = 12, window 2, s = 10
    >>> i, j = torch.tensor([[25]]), torch.tensor([[24, 19, 12, 3]])
    >>> positions = torch.stack([q[0] - k[1] for q, k in zip(dca.mapped(i), dca.mapped(j))])
    >>> positions.gather(0, dca.region(i, j))
    tensor([[[ 1,  3, 10,  9]]])
    """

    shift_invariant: ClassVar[bool] = False
    alternatives: ClassVar[dict[str, tuple[int, ...]]] = {"chunk": (6, 9), "window": (1, 5)}

    def __init__(
        self,
        *,
        train_length: int,
        chunk: int | None = None,
        window: int | None = None,
        **rope: Unpack[RoPEArguments],
    ):
        super().__init__(**rope)
        chunk = max(2, 3 * train_length // 4) if chunk is None else chunk
        require_within("DCA", train_length, chunk=chunk)
        window = max(1, chunk // 6) if window is None else window
        require_within("DCA", train_length, window=window)
        if window >= chunk:
            raise ConfigError(
                "DCA: window must be smaller than chunk, because positions restart every chunk - window tokens, got "
                f"{window} and {chunk}"
            )
        self.chunk, self.stride = chunk, chunk - window

    def mapped(self, positions: Num[Tensor, "b t"]) -> tuple[tuple[Tensor, Tensor], ...]:
        in_chunk = positions % self.stride
        previous = (in_chunk + self.stride).clamp(max=self.chunk)
        return (positions, positions), (previous, in_chunk), (torch.full_like(positions, self.chunk), in_chunk)

    def region(self, q: Num[Tensor, "b i"], k: Num[Tensor, "b j"]) -> Int[Tensor, "b i j"]:
        chunks = q[:, :, None] // self.stride - k[:, None] // self.stride
        return chunks.clamp(0, 2).long()


class STRING(DistanceMap):
    """RoPE at the distance i - j below S, and at i - j - S + W from there on, S = `shift`, W = `local`.

    i and j are the positions of query and key. S is by default 0.33 of the training length L, rounded down, and W is
    128, but at most S / 2. It needs no training. In training, few pairs of tokens are nearly L apart, so the largest
    distances are hardly trained. Up to L tokens, those from L - S + W to L - 1 are not used. Pairs closer than S have
    the product of RoPE to the last bit.

    Beyond the training length: up to L + S - W tokens, no distance is larger than in training.

    Source: An et al. 2024, "Why Does the Effective Context Length of LLMs Fall Short?".
    Code: HKUNLP/STRING, string_for_llama.py (`shifted_offset` and `small_local_value`).
    Differs: where the code reads a whole text, it adds up two softmaxes that both contain the key at distance S, so
    this key counts twice; when it decodes, the key counts once, as here. It also multiplies q and k by 0.1 ln 2 + 1, at
    any length; here there is no factor.

    >>> string = STRING(head_dim=2, train_length=12, shift=4, local=2)
    >>> i, j = torch.tensor([[11]]), torch.tensor([[8, 7, 6, 0]])         # distances 3, 4, 5 and 11
    >>> positions = string.mapped(i)[1][0] - string.mapped(j)[1][1]
    >>> torch.where(string.region(i, j)[0] == 0, i - j, positions)
    tensor([[3, 2, 3, 9]])
    """

    alternatives: ClassVar[dict[str, tuple[int, ...]]] = {"shift": (2, 8), "local": (0, 1)}

    def __init__(
        self,
        *,
        train_length: int,
        shift: int | None = None,
        local: int | None = None,
        **rope: Unpack[RoPEArguments],
    ):
        super().__init__(**rope)
        shift = max(1, train_length * 33 // 100) if shift is None else shift
        require_within("STRING", train_length, shift=shift)
        local = min(128, shift // 2) if local is None else local
        require_integer("STRING", 0, local=local)
        if local > shift:
            raise ConfigError(f"STRING: local must be at most shift, {shift}, got {shown(local)}")
        self.shift, self.local, self.near = shift, local, shift

    def mapped(self, positions: Num[Tensor, "b t"]) -> tuple[tuple[Tensor, Tensor], ...]:
        return (positions, positions), (positions + (self.local - self.shift), positions)
