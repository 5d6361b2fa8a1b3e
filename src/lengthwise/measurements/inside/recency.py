"""The attention weights of the last x of prompts x_1, y_1, ..., x_n, y_n."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.measurements.inside.attention import attention_calls
from lengthwise.models import Model


@torch.no_grad()
def last_question_weights(
    model: Model, inputs: Float[Tensor, "b t w"], positions: Int[Tensor, "#b t"] | None = None
) -> list[Float[Tensor, "b h t"]]:
    """Return for each layer the weights of the last x on all tokens. Only this row of the attention matrix
    is computed.
    """
    query = inputs.shape[1] - 2
    return [call.row(query).softmax(-1) for call in attention_calls(model, inputs, positions)]


def on_labels(weights: Float[Tensor, "*b t"]) -> Float[Tensor, "*b n"]:
    """Return the weights on the y tokens that the last x sees, which are all except its own."""
    return weights[..., 1:-1:2]


def on_inputs(weights: Float[Tensor, "*b t"]) -> Float[Tensor, "*b n"]:
    """Return the weights on the x tokens, including the last one itself."""
    return weights[..., 0::2]
