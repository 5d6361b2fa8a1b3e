"""The protocol of attention backends."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.attention.masks import Mask
from lengthwise.forms import AttentionModifiers
from lengthwise.positions import consecutive
from lengthwise.span import Span

Attend = Callable[..., Tensor]  # (q, k, v, *, scale) -> output


class Backend(ABC):
    """A way to compute attention with forms. It knows no encoding by name, and has no state.

    A subclass is one file and one line in the list of `backends/__init__.py`. It must say why it does not support a
    call, and must never use another backend silently. The pages of the encodings quote the sentence of its docstring
    that begins with "Memory:".
    """

    supports_transforms: ClassVar[bool] = False  # of torch.func (vmap, grad, jvp), and forward-mode derivatives

    @property
    @abstractmethod
    def name(self) -> str:
        """The value of `backend=` that selects this backend."""

    @abstractmethod
    def unsupported_reason(self, modifiers: AttentionModifiers, span: Span, mask: Mask, q: Tensor) -> str | None:
        """Return why this backend does not support queries like `q` (its device, dtype and head dim), or None."""

    @abstractmethod
    def prepare(self, modifiers: AttentionModifiers, span: Span, mask: Mask) -> Attend:
        """Return attention for fixed modifiers, span and mask. All layers that share them call it.

        Return a `functools.partial` rather than an inner function, whose annotations with shapes would be evaluated in
        every call.
        """

    def is_worthwhile(self, modifiers: AttentionModifiers, mask: Mask, device: torch.device) -> bool:
        """Whether `backend="auto"` should take this backend where it is the first that supports the call.

        It is asked only about calls that the backend supports.
        """
        return True

    def gradients_unsupported_reason(self, device: torch.device | str) -> str | None:
        """Return why this backend computes no gradients on a device, or None.

        If there is a reason, a call that needs gradients raises `ConfigError`.
        """
        return None

    def statistics_unsupported_reason(
        self, modifiers: AttentionModifiers, span: Span, mask: Mask, q: Tensor
    ) -> str | None:
        """Return why `statistics` does not support the call, or None."""
        return "it computes no statistics"

    def statistics(
        self, measurement: "Measurement", q: Float[Tensor, "b h i d"], k: Float[Tensor, "b g j d"]
    ) -> Float[Tensor, "b h i m"]:
        """Return for every query the mass in each bin, the entropy, and the mass on the first and on the last keys.

        `attention.statistics` calls the first backend of the list without a `statistics_unsupported_reason`.
        """
        raise NotImplementedError(f"backend {self.name!r} computes no statistics")


def rows_unsupported_reason(modifiers: AttentionModifiers, kernel: str) -> str | None:
    """Return why a kernel that never has whole rows of logits or weights cannot compute the modifiers, or None."""
    if modifiers.logit_transform:
        return f"LogitTransform needs whole rows of logits, which {kernel} never has"
    if modifiers.product:
        return modifiers.product.unsupported_reason(kernel)
    if modifiers.values:
        return f"RelativeValues needs the weights, which {kernel} never has"
    return None


def in_compute_dtype(
    attend: Attend,
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b g j d"],
    v: Float[Tensor, "b g j d"],
    *,
    scale: float,
) -> Float[Tensor, "b h i d"]:
    """Call `attend` with at least float32, and with as many heads of keys as of queries."""
    compute, groups = torch.promote_types(q.dtype, torch.float32), q.shape[1] // k.shape[1]
    with torch.autocast(q.device.type, enabled=False):  # autocast would compute the products in half precision
        k, v = (x.to(compute).repeat_interleave(groups, 1) for x in (k, v))
        return attend(q.to(compute), k, v, scale=scale).to(q.dtype)


@dataclass(frozen=True)
class Measurement:
    """The arguments of one call of `attention.statistics` other than q and k; `Statistics` defines what it measures.

    `edges`: the edges of the bins of distances, ascending. `first`, `last`: how many keys count as such.
    """

    modifiers: AttentionModifiers
    span: Span
    mask: Mask
    scale: float
    edges: tuple[int, ...]
    first: int
    last: int

    def rank(self, device: torch.device) -> Int[Tensor, "#b j"]:
        """Return how many keys of its own document come before each key."""
        if self.mask.documents is None:
            return torch.arange(self.mask.keys, device=device)[None]
        return consecutive(self.mask.documents.to(device))
