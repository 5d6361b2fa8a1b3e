"""Weights: the order of dims in projections, T5's table, ALiBi's slopes, and the weight names of a Mamba.

Weights are only reordered, never computed with, so converting back gives the same bits for every dtype. The exception
are learned slopes, which Lengthwise stores as logarithms.
"""

import re
from collections.abc import Mapping
from typing import Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from lengthwise.config import Choice, ConfigError, choose, near_miss
from lengthwise.encodings import ALiBi
from lengthwise.encodings.alibi import slopes

Layout = Literal["interleaved", "half"]


# ---- the order of dims in the projections of queries and keys ---------------------------------------------------


def half_from_interleaved(
    weight: Shaped[Tensor, "hd *c"], *, num_heads: int, head_dim: int, rotary_dims: int | None = None
) -> Shaped[Tensor, "hd *c"]:
    """Reorder the rows of a query or key projection from pairs (2p, 2p+1) to pairs (p, p + rotary_dims/2).

    `weight` [num_heads · head_dim, d_model], or a bias [num_heads · head_dim]. `num_heads` is that of the projection:
    with grouped-query attention the keys have fewer. `rotary_dims`: how many of a head's first dims are rotated.
    Default: all. Convert both queries and keys, then the logits stay the same; values and the output projection are not
    converted.

    >>> half_from_interleaved(torch.arange(6), num_heads=1, head_dim=6, rotary_dims=4)
    tensor([0, 2, 1, 3, 4, 5])
    """
    return weight[_row_order(weight, num_heads, head_dim, rotary_dims, "half")]


def interleaved_from_half(
    weight: Shaped[Tensor, "hd *c"], *, num_heads: int, head_dim: int, rotary_dims: int | None = None
) -> Shaped[Tensor, "hd *c"]:
    """Undo `half_from_interleaved`: reorder the rows to the pairs (2p, 2p+1) of GPT-J and the paper.

    >>> interleaved_from_half(torch.tensor([0, 2, 1, 3, 4, 5]), num_heads=1, head_dim=6, rotary_dims=4)
    tensor([0, 1, 2, 3, 4, 5])
    """
    return weight[_row_order(weight, num_heads, head_dim, rotary_dims, "interleaved")]


def _row_order(weight: Tensor, num_heads: int, head_dim: int, rotary_dims: int | None, target: Layout) -> Tensor:
    dims = head_dim if rotary_dims is None else rotary_dims
    if not 0 < dims <= head_dim or dims % 2:
        raise ConfigError(f"rotary_dims must be even, and 2 to head_dim {head_dim}, got {dims}")
    if len(weight) != num_heads * head_dim:
        raise ConfigError(
            f"the weight must have {num_heads * head_dim} rows for {num_heads} heads of {head_dim} dims, got "
            f"{len(weight)}; pass the number of heads of this projection (keys may have fewer), and convert queries "
            "and keys separately"
        )
    order = torch.arange(head_dim, device=weight.device)
    pairs = order[:dims].view(-1, 2).T if target == "half" else order[:dims].view(2, -1).T
    order = torch.cat([pairs.flatten(), order[dims:]])
    return (torch.arange(num_heads, device=weight.device)[:, None] * head_dim + order).flatten()


# ---- tables and slopes ------------------------------------------------------------------------------------------


def t5_weight_from_table(table: Shaped[Tensor, "buckets heads"]) -> Shaped[Tensor, "heads buckets"]:
    """Convert T5's `relative_attention_bias.weight` to the weight of our T5, which has a row for each head.

    >>> t5_weight_from_table(torch.tensor([[1, 2], [3, 4], [5, 6]]))
    tensor([[1, 3, 5],
            [2, 4, 6]])
    """
    return table.T.contiguous()


def t5_table_from_weight(weight: Shaped[Tensor, "heads buckets"]) -> Shaped[Tensor, "buckets heads"]:
    """Convert the weight of our T5 to the table of Hugging Face's T5, which has a row for each bucket."""
    return weight.T.contiguous()


def alibi_slopes(num_heads: int) -> Float[Tensor, " heads"]:
    """Return the slopes of our ALiBi in float64, in the same order of heads as the buffers of other libraries.

    >>> alibi_slopes(3)
    tensor([0.0625, 0.0039, 0.2500], dtype=torch.float64)
    """
    return torch.tensor(slopes(num_heads), dtype=torch.float64)


def alibi_from_slopes(values: Float[Tensor, "*shape"]) -> Choice:
    """Return the choice of our ALiBi for the slopes of another library, of any shape with one number for each head.

    Raise `ConfigError` if they differ from the published slopes by more than the precision of their dtype: because they
    are learned, have another maximum, or another order of heads.
    """
    ours = alibi_slopes(values.numel())
    error = ((values.detach().cpu().flatten().to(torch.float64) - ours) / ours).abs()
    wrong = (~(error <= 2 * torch.finfo(values.dtype).eps)).nonzero()
    if len(wrong):
        first = int(wrong[0])
        raise ConfigError(
            f"slope {first} of {values.numel()} heads must be ALiBi's {float(ours[first]):.6g}, got "
            f"{float(values.flatten()[first]):.6g}; use ALiBi(learned=True) with log_slopes from "
            "alibi_log_slopes(slopes)"
        )
    return choose(ALiBi)


def alibi_log_slopes(values: Float[Tensor, "*shape"]) -> Float[Tensor, " heads"]:
    """Return `log_slopes` of our ALiBi(learned=True) in float64, for slopes of any shape with a number for each head.

    Use it for slopes that are learned or have another maximum. The parameter stores float32, so its slopes have a
    relative error of about 1e-7 · |log slope|. Raise `ConfigError` for slopes that are not above 0, which our ALiBi
    cannot represent.

    >>> alibi = ALiBi(num_heads=2, learned=True)
    >>> _ = alibi.load_state_dict({"log_slopes": alibi_log_slopes(torch.tensor([0.5, 0.125]))})
    >>> alibi.bias(torch.tensor([2]))
    tensor([[-1.0000],
            [-0.2500]], dtype=torch.float64, grad_fn=<MulBackward0>)
    """
    slopes = values.detach().flatten().to(torch.float64)
    wrong = (~((slopes > 0) & slopes.isfinite())).nonzero()
    if len(wrong):
        first = int(wrong[0])
        raise ConfigError(
            f"slope {first} of {values.numel()} heads must be finite and above 0, got {float(slopes[first]):.6g}"
        )
    return slopes.log()


# ---- Mamba ------------------------------------------------------------------------------------------------------

_MAMBA_PREFIXES = (  # transformers' prefix of a weight's name, and ours
    ("backbone.layers.", "blocks."),
    ("backbone.embeddings.", "token_embedding."),
    ("backbone.norm_f.", "norm."),
    ("lm_head.", "lm_head."),
)


def mamba_from_transformers(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert the `state_dict` of transformers' `MambaForCausalLM` to that of our `Mamba`. Only the names change.

    Tied embeddings are untied: our `lm_head` gets a weight of its own. Theirs has no projection of vectors, so our
    model takes tokens.
    """
    embeddings = "backbone.embeddings.weight"
    weights = {"lm_head.weight": state[embeddings], **state} if embeddings in state else state
    return {_renamed(name, _MAMBA_PREFIXES).replace(".mixer.", "."): value for name, value in weights.items()}


def mamba_to_transformers(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Undo `mamba_from_transformers`."""
    prefixes = tuple((ours, theirs) for theirs, ours in _MAMBA_PREFIXES)
    renamed = ((_renamed(name, prefixes), value) for name, value in state.items())
    return {re.sub(r"(layers\.\d+\.)(?!norm\.)", r"\1mixer.", name): value for name, value in renamed}


def _renamed(name: str, prefixes: tuple[tuple[str, str], ...]) -> str:
    for old, new in prefixes:
        if name.startswith(old):
            return new + name.removeprefix(old)
    raise ConfigError(
        f"there is no counterpart of {name!r}{near_miss(name, [old for old, _ in prefixes])}; a Mamba's names begin "
        "with: " + ", ".join(old for old, _ in prefixes)
    )
