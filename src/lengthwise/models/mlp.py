"""The norm and the MLP of a block, which Transformers and most mixers have in common."""

from collections.abc import Callable

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from lengthwise.config import ModelConfig
from lengthwise.models.linear import Linear, swiglu


def norm(config: ModelConfig) -> nn.Module:
    """Return a norm layer of the kind that the config names."""
    if config.norm == "rms":
        return nn.RMSNorm(config.d_model, eps=1e-6)
    return nn.LayerNorm(config.d_model, bias=config.bias)


class WithMLP(nn.Module):
    """Base class of blocks that end with an MLP. A subclass sets `mlp_norm`, and calls `add_mlp` in its constructor."""

    mlp_norm: nn.Module

    def add_mlp(self, config: ModelConfig) -> None:
        """Create the layers of the MLP."""
        self.up = Linear(config.d_model, config.hidden * (2 if config.mlp == "swiglu" else 1), bias=config.bias)
        self.down = Linear(config.hidden, config.d_model, bias=config.bias)
        activations: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "relu": F.relu, "swiglu": swiglu}
        self.activation = activations[config.mlp]

    def mlp(self, x: Float[Tensor, "b t c"]) -> Float[Tensor, "b t c"]:
        """Return the output of the MLP, including its norm, without the residual connection."""
        return self.down(self.activation(self.up(self.mlp_norm(x))))
