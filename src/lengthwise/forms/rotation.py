"""`Rotation`: what rotary encodings do to queries and keys, and the base class that it shares with `MatrixRotation`."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from lengthwise.forms.base import AxisFunctions, CallSizes, Form, along_axes, require_tensor
from lengthwise.values import ConfigError


class TokenRotation(Form, ABC):
    """Base class of rotations: every query and every key is multiplied by a matrix that belongs to its token and head.

    Its tensors have an axis of the queries or one of the keys.
    """

    bidirectional = cacheable = True
    polar: bool = False  # whether rotated vectors have twice as many dims

    @property
    def heads(self) -> int:
        return max([1, *(x.shape[1] for x in self.tensors.values())])

    @property
    @abstractmethod
    def key_groups(self) -> int:
        """The number of groups of heads that rotate keys differently."""

    @abstractmethod
    def rotate_query(self, q: Float[Tensor, "b h i d"]) -> Float[Tensor, "b h i width"]:
        """Return the rotated queries."""

    @abstractmethod
    def rotate_key(self, k: Float[Tensor, "b h j d"]) -> Float[Tensor, "b h j width"]:
        """Return the rotated keys."""

    def key_heads(self, *tensors: Float[Tensor, "b g j d"]) -> tuple[Float[Tensor, "b h j d"], ...]:
        """Return keys or values, repeated if more groups of heads rotate keys differently than there are heads of keys.

        With grouped-query attention, query heads share a key, which each of them sees rotated by its own rotation.
        """
        heads, groups = tensors[0].shape[1], self.key_groups
        return tensors if groups <= heads else tuple(x.repeat_interleave(groups // heads, 1) for x in tensors)

    def keys_from(self, start: int) -> "TokenRotation":
        """Return the rotation of the keys from index `start` on, without queries. A cache applies it to new keys."""
        return self.map_axes({"i": None, "j": lambda x, axis: x.narrow(axis, start, x.shape[axis] - start)})

    def queries_only(self) -> "TokenRotation":
        """Return the rotation of the queries only, for keys that are already rotated."""
        return self.map_axes({"j": None})


def rotated_product(
    rotation: TokenRotation | None, q: Float[Tensor, "b h i d"], k: Float[Tensor, "b h j d"]
) -> Float[Tensor, "b h i j"]:
    """Return the product of every rotated query and key, in float32 or higher.

    Rotated q and k are rounded to their own dtype, as in a cache of rotated keys.
    """
    compute = torch.promote_types(q.dtype, torch.float32)
    if rotation is not None:
        q, k = rotation.rotate_query(q), rotation.rotate_key(k)
    return q.to(compute) @ k.to(compute).mT


@dataclass(frozen=True)
class Rotation(TokenRotation):
    """Rotate pairs of the first `2 · angle.shape[-1]` dims of q and k, then multiply them by a gain.

    Angles are in radians, [b|1, groups, i|j, pairs]; None leaves q or k unrotated. The number of groups divides the
    number of heads, and consecutive heads form a group with the same angles. A gain is a number or broadcasts to the
    angle. `layout`: "interleaved" pairs dims (2p, 2p+1), "half" pairs (p, p + pairs).

    `polar`: every dim x of q and k is first replaced by the pair (softplus(x), 0), so there are as many pairs as dims,
    and the rotated vectors have twice as many dims. They begin with the first number of each pair.
    """

    angle_q: Float[Tensor, "#b hq i pairs_q"] | None = None
    angle_k: Float[Tensor, "#b hk j pairs_k"] | None = None
    gain_q: Float[Tensor, "..."] | float | None = None
    gain_k: Float[Tensor, "..."] | float | None = None
    layout: Literal["interleaved", "half"] = "interleaved"
    bidirectional: bool = True  # False: gains that grow without bound for keys after the query
    polar: bool = False
    # What `cos_sin` returns for each side and dtype, computed once for all layers that share this rotation.
    # (A `cached_property` has a lock in Python 3.11, and torch.compile does not go through locks.)
    _cos_sin_cache: dict[tuple[str, torch.dtype], Tensor] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    cost = ("a cosine and a sine for each position and pair: O(n d)", "O(n h d)")

    def rotate_query(self, q: Float[Tensor, "b h i d"]) -> Float[Tensor, "b h i width"]:
        _require_float16_range(q, self.gain_q)
        return self._rotate("q", q)

    def rotate_key(self, k: Float[Tensor, "b h j d"]) -> Float[Tensor, "b h j width"]:
        _require_float16_range(k, self.gain_k)
        return self._rotate("k", k)

    @property
    def key_groups(self) -> int:
        return 1 if self.angle_k is None else self.angle_k.shape[1]

    def dims(self, angle: Tensor) -> int:
        """Return the number of dims of q or k that its angle rotates."""
        return angle.shape[-1] * (1 if self.polar else 2)

    @property
    def same_for_keys(self) -> bool:
        """Whether queries and keys are known to have the same angles and gains, because they are the same tokens."""
        return self.angle_q is self.angle_k and self.gain_q is self.gain_k

    def cos_sin(self, side: Literal["q", "k"], dtype: torch.dtype) -> Float[Tensor, "b h t 2 pairs"] | None:
        """Return cosines and sines of the queries or keys, times their gains. None if that side is not rotated."""
        angle, gain = (self.angle_q, self.gain_q) if side == "q" else (self.angle_k, self.gain_k)
        if angle is None:
            return None
        if angle.requires_grad or (isinstance(gain, Tensor) and gain.requires_grad):
            return compute_cos_sin(angle, gain, dtype)  # not cached, because the graph belongs to a single call
        key = "both" if self.same_for_keys else side, dtype
        if key not in self._cos_sin_cache:
            self._cos_sin_cache[key] = compute_cos_sin(angle, gain, dtype)
        return self._cos_sin_cache[key]

    def _rotate(self, side: Literal["q", "k"], x: Tensor) -> Tensor:
        """Return the queries or keys, rotated in float32 or higher, in their own dtype."""
        compute = torch.promote_types(x.dtype, torch.float32)
        cos_sin = self.cos_sin(side, compute)
        if cos_sin is None:
            return x
        cos, sin = cos_sin.unbind(3)
        if self.polar or cos.shape[1] > 1:
            cos, sin = (_for_each_head(table, x.shape[1]) for table in (cos, sin))
        if self.polar:
            magnitude = softplus(x.to(compute))
            return torch.cat([magnitude * cos, magnitude * sin], -1).to(x.dtype)
        dims = 2 * cos.shape[-1]
        rotary = (x if dims == x.shape[-1] else x[..., :dims]).to(compute)
        out = _product(rotary, cos, sin, self.layout).to(x.dtype)
        return out if dims == x.shape[-1] else torch.cat([out, x[..., dims:]], -1)

    def map_axes(self, functions: AxisFunctions) -> "Rotation":
        """Return the rotation with functions applied along axes, also to the cosines and sines computed so far."""
        tensors: dict[str, Any] = {}
        for side in ("q", "k"):
            angle, gain = getattr(self, f"angle_{side}"), getattr(self, f"gain_{side}")
            if angle is not None:
                axes = self.axes[f"angle_{side}"]
                tensors[f"angle_{side}"] = along_axes(angle, axes, functions)
                if isinstance(gain, Tensor):
                    tensors[f"gain_{side}"] = along_axes(gain.expand_as(angle), axes, functions)
        rotation = replace(self, **tensors)
        for (sides, dtype), x in self._cos_sin_cache.items():
            for side, tokens in (("q", "i"), ("k", "j")):
                if sides in ("both", side) and getattr(rotation, f"angle_{side}") is not None:
                    axes = ("b", "h", tokens, "2", "pairs")
                    rotation._cos_sin_cache[side, dtype] = along_axes(x, axes, functions)
        return rotation

    def check(self, sizes: CallSizes) -> None:
        for side, tokens in (("q", sizes.i), ("k", sizes.j)):
            angle, gain = getattr(self, f"angle_{side}"), getattr(self, f"gain_{side}")
            for what, value in (("angle", angle), ("gain", gain if isinstance(gain, Tensor) else None)):
                if value is not None:  # lower precision or whole numbers would round the angle of a distant position
                    require_tensor(f"Rotation.{what}_{side}{sizes.owner}", value, sizes.device, ("float32", "float64"))
            if angle is None:
                continue
            fits = angle.ndim == 4 and len(angle) in (1, sizes.b) and angle.shape[2] == tokens
            fits = fits and not sizes.h % angle.shape[1]
            if not fits or (angle.shape[3] != sizes.d if self.polar else 2 * angle.shape[3] > sizes.d):
                width = f"{sizes.d} dimensions" if self.polar else f"at most {sizes.d // 2} pairs of dimensions"
                raise ConfigError(
                    f"Rotation.angle_{side}{sizes.owner} has shape {list(angle.shape)}; it must be [1 or {sizes.b} "
                    f"batch, a divisor of the {sizes.h} heads, {tokens} tokens, {width}]"
                )


def compute_cos_sin(angle: Tensor, gain: Tensor | float | None, dtype: torch.dtype) -> Float[Tensor, "b h t 2 pairs"]:
    cos, sin = angle.cos(), angle.sin()
    if gain is not None:
        cos, sin = cos * gain, sin * gain
    return torch.stack([cos.to(dtype), sin.to(dtype)], 3)


def _require_float16_range(x: Tensor, gain: Tensor | float | None) -> None:
    """Raise `ConfigError` if rotated numbers would overflow or underflow in float16.

    For float16 inputs with a gain this waits for the device.
    """
    if x.dtype != torch.float16 or not isinstance(gain, Tensor) or not gain.numel():
        return
    low, high = (float(g) for g in torch.aminmax(gain))
    if high > 2.0**8 or low < 2.0**-8:  # the rest of float16's range is left for the numbers themselves
        raise ConfigError(
            f"gains must be 2^-8 to 2^8 in float16, got {low:.1e} to {high:.1e}; use bfloat16 or float32, or an "
            "encoding with smaller gains (XPos: a smaller max_length, or a larger scale_base)"
        )


def _for_each_head(x: Tensor, heads: int) -> Tensor:
    groups = x.shape[1]
    return x if heads == groups else x.repeat_interleave(heads // groups, 1)


def _product(
    x: Float[Tensor, "b h t dims"], cos: Float[Tensor, "#b #h t p"], sin: Float[Tensor, "#b #h t p"], layout: str
) -> Float[Tensor, "b h t dims"]:
    """Return `x` with all of its dims rotated."""
    if layout == "interleaved":
        # One complex product replaces five passes over the tensor. (torch.compile does not change it; on a CPU that is
        # faster than the code that it generates for the five passes.)
        z = torch.view_as_complex(_align_pairs(x.contiguous().unflatten(-1, (-1, 2))))
        return torch.view_as_real(z * torch.complex(cos, sin)).flatten(-2)
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def _align_pairs(x: Float[Tensor, "b h t pairs 2"]) -> Float[Tensor, "b h t pairs 2"]:
    """Return `x`, or a copy if its strides or storage offset are odd, which `view_as_complex` does not accept.

    A contiguous tensor may have odd strides, in axes with a single entry.
    """
    odd = any(stride % 2 for stride in x.stride()[:-1])
    if not odd and not torch.compiler.is_compiling():  # a graph does not know the storage offset
        odd = x.storage_offset() % 2 == 1
    return x.clone(memory_format=torch.contiguous_format) if odd else x
