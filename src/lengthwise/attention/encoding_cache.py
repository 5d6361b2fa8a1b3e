"""`EncodingCache`: the forms of encodings, stored for the steps of a decoding loop so that a step only selects entries.

Tables over distances, segments, angles and gains depend on an encoding's parameters and on positions, but not on the
tokens. So they are computed once for all positions up to a power of two, and again when the text grows past it or a
parameter changes. Encodings need no support for this: the cache stores forms and slices them.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from lengthwise import forms
from lengthwise.encodings.base import PositionEncoding
from lengthwise.encodings.contract import effective_length_of, modifiers_of
from lengthwise.span import Span

_MIN_LENGTH = 16  # positions, as in the KV cache


class EncodingCache:
    """The forms of encodings for one text while it grows.

    `cache.modifiers(encoding, span)` returns the same as `encoding.modifiers(span)`, but faster. The results agree up
    to the rounding of forms that depend on the length they are computed for. For example, FIRE with a smooth activation
    uses a table if that length is below its threshold and a grid otherwise (the error is within the grid's bound; 3e-9
    of a logit was observed).

    A `KVCache` contains one. In a decoding loop of your own, create one for each text and pass it to every call,
    `attend(..., encoding_cache=cache)`. One serves all layers.

    Encodings whose scale depends on the current length (dynamic NTK, dynamic YaRN, LongRoPE) are exact for a single
    layer only: its step equals the last row of one forward pass over the tokens so far. Past the training length the
    scale changes. The keys and values of upper layers, which the loop passes to every step, were computed from inputs
    under an older scale. So steps differ from one forward pass, and `attend` warns once. (One forward pass over the
    whole text also uses the last scale in every row, unlike any step.) All tokens have to be processed again when
    `effective_length` changes, as `Decoder` does.

    Forms are stored only if they are certain to be the same at the next step: without gradients, with fewer queries
    than keys (a step, not a prompt), with positions below twice the number of tokens, and with a single axis of
    positions. Encodings that depend on the current length, biases for every pair, and logit transforms are computed at
    every call. So is everything in a graph of `torch.compile`.

    On a CPU, parameters and buffers are compared with copies of their values. On a GPU that would wait for the device.
    There a tensor counts as unchanged if its address and the version that autograd counts are the same. This misses
    writes by torch's fused optimizers and `parameter.data.mul_(2)`. After these, and after changing plain attributes,
    create a new `EncodingCache`; cached keys and values are outdated then, too.
    """

    def __init__(self) -> None:
        self._entries: dict[PositionEncoding, _Entry | None] = {}  # None: cannot be cached
        self._scales: dict[PositionEncoding, tuple[int, int]] = {}  # length and effective length of the first call
        self._warned = False

    def watch_scale(self, encoding: PositionEncoding, span: Span) -> None:
        """Warn once if the scale has changed since the first call, because keys of upper layers are then outdated."""
        if self._warned or not encoding.depends_on_length() or torch.compiler.is_compiling():
            return
        now = int(effective_length_of(encoding, torch.tensor(span.length)))
        length, before = self._scales.setdefault(encoding, (span.length, now))
        if now != before:
            self._warned = True
            warnings.warn(
                f"{type(encoding).__name__} has another scale at length {span.length} than at {length}, where this "
                "decoding loop began. In a model of several layers the keys and values of upper layers were computed "
                "under the older scale, and differ from those of one forward pass. Run all tokens again when "
                "encoding.effective_length(torch.tensor(length)) changes, as lengthwise.models.Decoder does",
                stacklevel=4,
            )

    def modifiers(self, encoding: PositionEncoding, span: Span) -> forms.AttentionModifiers:
        """Return `encoding.modifiers(span)`; its tables may cover more distances than the span has."""
        if not _applies_to(encoding, span):
            return modifiers_of(encoding, span)
        if encoding not in self._entries:
            modifiers = modifiers_of(encoding, span)
            self._entries[encoding] = _Entry.create(encoding, span) if _is_cacheable(modifiers) else None
            return modifiers
        entry = self._entries[encoding]
        if entry is not None and not entry.is_valid(encoding, span):
            self._entries[encoding] = entry = _Entry.create(encoding, span)
        return modifiers_of(encoding, span) if entry is None else _restrict(entry.modifiers, span)


def _applies_to(encoding: PositionEncoding, span: Span) -> bool:
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or encoding.depends_on_length():
        return False
    if span.num_axes > 1:  # entries belong to positions whose axes are equal
        return False
    keys = span.k.shape[1]
    return span.q.shape[1] < keys and span.length <= 2 * keys and not is_in_torch_dispatch_mode()


def _is_cacheable(modifiers: forms.AttentionModifiers) -> bool:
    """Whether there are forms, and all of them are indexed by distances or by the positions of queries and keys."""
    return bool(modifiers.forms) and all(form.cacheable for form in modifiers.forms)


@dataclass(frozen=True)
class _Entry:
    """The modifiers for positions 0 ... length-1, and the parameters and buffers that they were computed from."""

    modifiers: forms.AttentionModifiers
    length: int
    device: torch.device
    sources: list["_TensorState"]

    @classmethod
    def create(cls, encoding: PositionEncoding, span: Span) -> "_Entry | None":
        """Return the entry of an encoding, or None if it cannot be cached."""
        sources = [_TensorState.of(x) for x in _tensors(encoding)]
        if None in sources:
            return None
        length = max(_MIN_LENGTH, 1 << (span.length - 1).bit_length())
        if encoding.max_length is not None:
            length = max(span.length, min(length, encoding.max_length))
        modifiers = modifiers_of(encoding, Span.of(length, device=span.q.device))
        by_position = [x for form in modifiers.forms for x in form.along("i", "j")]
        if not all(x.shape[0] == 1 and x.shape[axis] == length for x, axis in by_position):
            return None
        if isinstance(modifiers.rotation, forms.Rotation):
            # It then selects from these cosines and sines; those of other dtypes are computed at each step.
            for side in ("q", "k"):
                modifiers.rotation.cos_sin(side, torch.float32)
        return cls(modifiers, length, span.q.device, [x for x in sources if x is not None])

    def is_valid(self, encoding: PositionEncoding, span: Span) -> bool:
        """Whether the entry covers the span and no parameter or buffer has changed."""
        tensors = _tensors(encoding)
        if span.length > self.length or span.q.device != self.device or len(tensors) != len(self.sources):
            return False
        return all(state.matches(x) for x, state in zip(tensors, self.sources, strict=True))


@dataclass(frozen=True, eq=False)
class _TensorState:
    """The state of a tensor at one time, to detect changes."""

    memory: Tensor  # on a CPU a copy; elsewhere a view, which keeps the memory from being reused by another tensor
    version: int | None  # None: values are compared

    @classmethod
    def of(cls, x: Tensor) -> "_TensorState | None":
        """Return the state of `x`, or None if changes to it could not be detected."""
        if type(x) not in (Tensor, torch.nn.Parameter):
            return None
        if x.device.type == "cpu":
            return cls(x.detach().clone(), None)
        return None if x.is_inference() else cls(x.detach(), x._version)

    def matches(self, x: Tensor) -> bool:
        """Whether `x` is unchanged."""
        if x.dtype != self.memory.dtype or x.device != self.memory.device:
            return False
        if self.version is None:
            return torch.equal(x, self.memory)
        return x._version == self.version and x.data_ptr() == self.memory.data_ptr() and x.shape == self.memory.shape


def _tensors(encoding: PositionEncoding) -> list[Tensor]:
    return [*encoding.parameters(), *encoding.buffers()]


def _restrict(modifiers: forms.AttentionModifiers, span: Span) -> forms.AttentionModifiers:
    """Select the entries of a span from modifiers for all positions."""
    keys = span.k.shape[1]
    queries = slice(keys - span.q.shape[1], keys)
    return modifiers.map_axes(
        {"i": _selector(span.q, queries, span.consecutive), "j": _selector(span.k, slice(keys), span.consecutive)}
    )


def _selector(positions: Tensor, indices: slice, consecutive: bool) -> Callable[[Tensor, int], Tensor]:
    """Return a function that selects the entries of positions along an axis of tensors with one row."""
    if consecutive:
        return lambda x, axis: x[(slice(None),) * axis + (indices,)]
    return lambda x, axis: x[0].movedim(axis - 1, 0)[positions].movedim(1, axis)
