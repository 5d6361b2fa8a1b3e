"""The functions of flash-linear-attention (package fla-core) that define attention layers in PyTorch, without a GPU.

The layers call Triton kernels, which the library tests against these functions. The functions take directions and gates
that the layers compute from the content; they are computed here as in the layers' `forward`.
"""

import sys
from abc import abstractmethod
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor

from comparisons.implementation import (
    Implementation,
    Model,
    RowInputs,
    with_rest,
)
from lengthwise.config import choose
from lengthwise.conformance.answers import NotApplicable
from lengthwise.encodings import PaTH, PaTHFoX, PositionEncoding, StickBreaking, Wall


@cache
def load(name: str) -> ModuleType:
    """Return a module of fla, imported alone. The package imports Triton and all kernels, which not every system
    supports.
    """
    package = find_spec("fla")
    assert package is not None
    assert package.submodule_search_locations
    path = Path(package.submodule_search_locations[0]).joinpath(*name.split(".")).with_suffix(".py")
    spec = spec_from_file_location(f"fla.{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def load_wall() -> ModuleType:
    """Return the module of Wall's function, with a sum by torch in place of the Triton kernel that it calls."""
    sums = ModuleType("fla.ops.utils.cumsum")
    sums.chunk_global_cumsum = lambda x, cu_seqlens, scale: x.cumsum(1) * scale
    replaced = {module.__name__: module for module in (load("ops.utils.constant"), sums)}
    with patch.dict(sys.modules, replaced):
        return load("ops.wall_attn.naive")


class FlaImplementation(Implementation):
    """A function that returns the outputs of all queries. With unit vectors as values, an output is a row
    of weights.
    """

    library = "fla-core"
    needs_every_key = True

    def model(self) -> Model:
        raise NotApplicable("it is a function without a model")

    def copy_weights(self, encoding: PositionEncoding) -> None:
        """Draw weights that bfloat16 represents exactly. `content` gives them to their function.

        The biases are near 3, so that gates are near 0.95 and PaTH nearly reflects: then far keys still differ.
        """
        generator = torch.Generator().manual_seed(1)
        for name, parameter in encoding.named_parameters():
            values = torch.randn(parameter.shape, generator=generator)
            is_bias = name.split(".")[-1] == "b"
            parameter.data = (values / 4 + 3 if is_bias else values * parameter.shape[-1] ** -0.5).bfloat16().float()

    def projected(self, x: Tensor, weight: str, bias: str | None = None) -> Tensor:
        """Return the product of x [1, t, c] with a weight, plus a bias, in the dtype of x and with all heads in one
        dimension.
        """
        w = self.encoding.get_parameter(weight).to(x.dtype)
        b = None if bias is None else self.encoding.get_parameter(bias).to(x.dtype).flatten()
        return F.linear(x, w.flatten(0, -2), b)

    def log_gates(self, x: Tensor, prefix: str = "") -> Tensor:
        return F.logsigmoid(self.projected(x, f"{prefix}w", f"{prefix}b").float())

    def row(self, inputs: RowInputs) -> Tensor:
        if inputs.length > 4096:
            raise NotApplicable("it computes all rows together, which takes too much memory")
        q = F.pad(inputs.q[None, None], (0, 0, 0, 0, inputs.length - 1, 0))  # [1, t, h, d]; only the last row is used
        unit_vectors = torch.eye(inputs.length, dtype=inputs.dtype)[None, :, None].expand(-1, -1, self.heads, -1)
        out = self.call(self.layer_inputs(inputs), q, inputs.k.transpose(0, 1)[None], unit_vectors)
        return self.as_logits(out[0, -1].detach())

    @abstractmethod
    def call(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return the output of their function. x is the input of the layer [1, t, d_model]; all others are [1, t, h,
        d].
        """

    def as_logits(self, weights: Tensor) -> Tensor:
        return weights.double().log()


class Householder(FlaImplementation):
    """`naive_path_attn`, with the projections, the convolution and the norm of `PaTHAttention`."""

    def call(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        low_rank = self.projected(x, "B")
        z = self.projected(low_rank, "A")
        kernel = self.encoding.get_parameter("c").flatten(0, 1).flip(-1)[:, None]
        padded = F.pad(z.mT.float(), (kernel.shape[-1] - 1, 0))
        y = F.silu(F.conv1d(padded, kernel, groups=len(kernel))).mT.to(x.dtype)
        w = y.unflatten(-1, (self.heads, -1)).float()
        w = w * torch.rsqrt(w.square().sum(-1, keepdim=True) + 1e-6)
        beta = 2 * self.projected(x, "u", "b").float().sigmoid()
        gates = self.log_gates(x, "gate.") if isinstance(self.encoding, PaTHFoX) else torch.zeros_like(beta)
        out: Tensor = load("ops.path_attn.naive").naive_path_attn(q, k, v, w, beta, gates, self.head_dim**-0.5)
        return out


class ChannelGates(FlaImplementation):
    """`naive_wall_attn`, with the gates of `WallAttention`."""

    heads = 4  # it has a number for each pair of tokens and channel

    def call(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        gates = self.log_gates(x).unflatten(-1, (self.heads, -1))
        scalar = self.log_gates(x, "gate.") if dict(self.choice.settings).get("gate") else None
        out: Tensor = load_wall().naive_wall_attn(q, k, v, gates, scale=self.head_dim**-0.5, g_scalar=scalar)
        return out


class StickBreakingWeights(FlaImplementation):
    """`naive_stickbreaking_attn`. The share that no key takes counts as another key."""

    def call(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        current = dict(self.choice.settings).get("current", False)
        out: Tensor
        out, _ = load("ops.stickbreaking_attn.naive").naive_stickbreaking_attn(q, k, v, attend_current=current)
        return out

    def as_logits(self, weights: Tensor) -> Tensor:
        return with_rest(weights)

    def our_row(self, inputs: RowInputs, *, rounded_bias: bool = False) -> Tensor:
        return with_rest(super().our_row(inputs, rounded_bias=rounded_bias).exp())


SCALED = dict.fromkeys(
    ("value at 512", "bfloat16 at 512"),
    "the bias of the gates is multiplied by the attention scale, which FoX does not do; this is the formula of PaTHFoX "
    "with scaled_gate",
)

IMPLEMENTATIONS: tuple[Callable[[], Implementation], ...] = (
    lambda: Householder("naive_path_attn", choose(PaTH)),
    lambda: Householder("naive_path_attn, gates", choose(PaTHFoX), SCALED),
    lambda: Householder("naive_path_attn, gates as scaled", choose(PaTHFoX, scaled_gate=True)),
    lambda: ChannelGates("naive_wall_attn", choose(Wall)),
    lambda: ChannelGates("naive_wall_attn, scalar gate", choose(Wall, gate=True)),
    lambda: StickBreakingWeights("naive_stickbreaking_attn", choose(StickBreaking)),
    lambda: StickBreakingWeights("naive_stickbreaking_attn, current", choose(StickBreaking, current=True)),
)
