"""What encodings said, kept for the steps of a decoding loop: a step looks up what it needs of it, and makes nothing.

Tables over distances, straight pieces, angles and gains follow from an encoding's parameters and from positions, and not from
which tokens there are. So they are made once for all positions up to a power of two, and made anew when the text grows past
it, or when a parameter is not what it was. No encoding knows of it: it is forms that are kept and cut.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from lengthwise.encodings.base import PositionEncoding
from lengthwise.forms import (
    AttentionModifiers,
    KeyBias,
    PiecewiseLinearBias,
    QueryGain,
    RelativeKeyBias,
    Rotation,
    Term,
    ToeplitzBias,
)
from lengthwise.span import Span

_FEWEST = 16  # positions, as in the KV cache


class EncodingCache:
    """The modifiers of encodings for one text while it grows: `cache.modifiers(encoding, span)` is
    `encoding.modifiers(span)`, sooner.

    It is so up to the rounding of forms that are made for one length or another: FIRE with a smooth activation is a table
    where the length it is made for is below its threshold, and a grid above (its own bound; 3e-9 of a logit was seen).

    A `KVCache` has one. In a loop of your own make one where you begin a text, and give it to every call,
    `attend(..., encoding_cache=cache)`: one for all layers.

    Encodings whose scale depends on the current length (dynamic NTK, dynamic YaRN, LongRoPE) are right for one layer alone:
    its step equals the last row of one forward over the tokens so far. Past the trained length the scale changes, and keys
    and values of upper layers, which the loop gives to every step, were computed from inputs under an older scale; so steps
    differ from one forward, and `attend` warns once. (One forward over the whole text also has the last scale in every row,
    which no step has.) `effective_length` says when all tokens have to be read again: `Decoder` does it.

    It keeps only what is sure to be the same: where no gradients are asked for, queries are fewer than keys (a step, not a
    prompt), and positions reach no further than twice as many tokens as there are. Encodings that depend on the current
    length, biases for every pair, and rewrites are asked at every call, as all are in a graph of `torch.compile`.

    Parameters and buffers are compared with what they were, number by number. On a GPU that would wait for it: there a tensor
    is unchanged if it lies where it lay and autograd counted no writing to it, which leaves out torch's fused optimisers and
    `parameter.data.mul_(2)`. Those, and plain attributes that are changed, take a new `EncodingCache`; a cache's keys and values
    are outdated by them too.
    """

    def __init__(self) -> None:
        self._held: dict[PositionEncoding, _Held | None] = {}  # None: not to be kept
        self._scales: dict[PositionEncoding, tuple[int, int]] = {}  # length and stretch of the first call
        self._warned = False

    def watch_scale(self, encoding: PositionEncoding, span: Span) -> None:
        """Warn, once, where an encoding's scale is another than at the first call: keys of upper layers are outdated then."""
        if self._warned or not encoding.depends_on_length() or torch.compiler.is_compiling():
            return
        now = int(encoding.effective_length(torch.tensor(span.length)))
        length, before = self._scales.setdefault(encoding, (span.length, now))
        if now != before:
            self._warned = True
            warnings.warn(
                f"{type(encoding).__name__} has another scale at length {span.length} than at {length}, where this decoding loop "
                "began. In a model of several layers the keys and values of upper layers were computed under the older one, and "
                "differ from those of one forward pass. Read all tokens again where "
                "encoding.effective_length(torch.tensor(length)) changes, as our Decoder does",
                stacklevel=4,
            )

    def modifiers(self, encoding: PositionEncoding, span: Span) -> AttentionModifiers:
        """`encoding.modifiers(span)`, whose tables may reach further than the span does."""
        if not _may_keep(encoding, span):
            return encoding.modifiers(span)
        if encoding not in self._held:
            modifiers = encoding.modifiers(span)
            self._held[encoding] = _Held.of(encoding, span) if _can_be_kept(modifiers) else None
            return modifiers
        held = self._held[encoding]
        if held is None:
            return encoding.modifiers(span)
        if not held.serves(encoding, span):
            self._held[encoding] = held = _Held.of(encoding, span)
            if held is None:
                return encoding.modifiers(span)
        return _cut(held.modifiers, span)


def _may_keep(encoding: PositionEncoding, span: Span) -> bool:
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or encoding.depends_on_length():
        return False
    keys = span.k.shape[1]
    return span.q.shape[1] < keys and span.length <= 2 * keys and not is_in_torch_dispatch_mode()


def _can_be_kept(modifiers: AttentionModifiers) -> bool:
    """Whether every form speaks of distances, or of queries and keys by their positions; there is something to keep."""
    of_positions = all(
        isinstance(x, (ToeplitzBias, PiecewiseLinearBias, RelativeKeyBias, KeyBias)) for x in modifiers.terms
    )
    something = modifiers.rotation or modifiers.terms or modifiers.values or modifiers.gain
    return of_positions and modifiers.rewrite is None and something is not None and something != ()


@dataclass(frozen=True)
class _Held:
    """The modifiers for positions 0 ... length-1, and what it was made of."""

    modifiers: AttentionModifiers
    length: int
    device: torch.device
    made_of: list["_Was"]

    @classmethod
    def of(cls, encoding: PositionEncoding, span: Span) -> "_Held | None":
        """None where it cannot be kept."""
        made_of = [_Was.now(x) for x in _tensors(encoding)]
        if None in made_of:
            return None
        length = max(_FEWEST, 1 << (span.length - 1).bit_length())
        if encoding.max_length is not None:
            length = max(span.length, min(length, encoding.max_length))
        modifiers = encoding.modifiers(Span.of(length, device=span.q.device))
        if not all(x.shape[0] == 1 and x.shape[axis] == length for x, axis in _by_position(modifiers)):
            return None
        return cls(modifiers, length, span.q.device, [x for x in made_of if x is not None])

    def serves(self, encoding: PositionEncoding, span: Span) -> bool:
        tensors = _tensors(encoding)
        if span.length > self.length or span.q.device != self.device or len(tensors) != len(self.made_of):
            return False
        return all(was.still(x) for x, was in zip(tensors, self.made_of, strict=True))


@dataclass(frozen=True, eq=False)
class _Was:
    """A tensor as it was."""

    memory: Tensor  # on a CPU a copy; else what it lay in, which is not given to another as long as it is held
    version: int | None  # None: numbers are compared

    @classmethod
    def now(cls, x: Tensor) -> "_Was | None":
        """None where there is no telling whether it will have changed."""
        if type(x) not in (Tensor, torch.nn.Parameter):
            return None
        if x.device.type == "cpu":
            return cls(x.detach().clone(), None)
        return None if x.is_inference() else cls(x.detach(), x._version)

    def still(self, x: Tensor) -> bool:
        if x.dtype != self.memory.dtype or x.device != self.memory.device:
            return False
        if self.version is None:
            return torch.equal(x, self.memory)
        return x._version == self.version and x.data_ptr() == self.memory.data_ptr() and x.shape == self.memory.shape


def _tensors(encoding: PositionEncoding) -> list[Tensor]:
    return [*encoding.parameters(), *encoding.buffers()]


def _by_position(modifiers: AttentionModifiers) -> list[tuple[Tensor, int]]:
    """The tensors with an entry for each query or key, and their axis."""
    r, found = modifiers.rotation, []
    if r is not None:
        found += [(x, 1) for x in (r.angle_q, r.angle_k, r.gain_q, r.gain_k) if isinstance(x, Tensor)]
    found += [(term.w, 1) for term in modifiers.terms if isinstance(term, PiecewiseLinearBias)]
    return found if modifiers.gain is None else [*found, (modifiers.gain.gain, 2)]


def _cut(whole: AttentionModifiers, span: Span) -> AttentionModifiers:
    """What the modifiers for all positions say of a span's."""
    keys = span.k.shape[1]
    of_q = _cutter(span.q, slice(keys - span.q.shape[1], keys), span.consecutive)
    of_k = _cutter(span.k, slice(keys), span.consecutive)

    def of_term(term: Term) -> Term:
        return replace(term, w=of_q(term.w)) if isinstance(term, PiecewiseLinearBias) else term

    rotation, gain = whole.rotation, whole.gain
    if rotation is not None:
        rotation = _turned(rotation, of_q, of_k)
    if gain is not None:
        gain = QueryGain(of_q(gain.gain.transpose(1, 2)).transpose(1, 2), gain.bidirectional)
    return replace(whole, rotation=rotation, terms=tuple(map(of_term, whole.terms)), gain=gain)


_Cutter = Callable[[Tensor], Tensor]


def _cutter(positions: Tensor, run: slice, consecutive: bool) -> _Cutter:
    """[1, length, ...] -> [b|1, those positions, ...]"""
    if consecutive:
        return lambda x: x[:, run]
    return lambda x: x[0][positions]


def _turned(rotation: Rotation, of_q: _Cutter, of_k: _Cutter) -> Rotation:
    def cut(x: Tensor | float | None, cutter: _Cutter) -> Any:
        return cutter(x) if isinstance(x, Tensor) else x

    r = rotation
    of_queries = replace(r, angle_q=cut(r.angle_q, of_q), gain_q=cut(r.gain_q, of_q))
    return replace(of_queries, angle_k=cut(r.angle_k, of_k), gain_k=cut(r.gain_k, of_k))
