"""Messages for arguments of attention that have another name or place here than in other libraries, or that are not needed."""

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Never

from torch import Tensor

from lengthwise.values import ArgumentError, near_miss

if TYPE_CHECKING:
    Unknown = Never  # so that a type checker rejects unknown arguments
else:
    Unknown = Any  # run-time type checks accept Never only as a return type

_ADVICE = {  # what to write instead, and the names that it is for: those of other libraries, and fields of TokenInfo and Bins
    "attention takes no mask; use causal= to hide keys after the query, tokens=TokenInfo(documents=...) for padding "
    "and packed "
    "texts, window= for a sliding window, and an encoding for numbers that are added to the logits": "attn_mask attention_mask "
    "mask key_padding_mask block_mask attn_bias bias",
    "write causal=True (the default) or causal=False": "is_causal use_causal_mask",
    "attention has no dropout; leave it out": "dropout_p dropout attention_dropout",
    "grouped-query attention needs no switch, because k and v may have fewer heads than q; leave it out": "enable_gqa",
    "write scale=": "softmax_scale sm_scale scaling",
    "write window=, the number of last keys that a query attends to": "window_size sliding_window",
    "write tokens=TokenInfo(positions=...)": "position_ids positions",
    "write tokens=TokenInfo(documents=...)": "documents",
    "write tokens=TokenInfo(documents=...), the document ID of every token": "cu_seqlens cu_seqlens_q cu_seqlens_k seq_ids",
    "write encoding=encodings.ALiBi(...), which computes its slopes itself": "alibi_slopes",
    "write tokens=TokenInfo(x=...)": "x",
    "write tokens=TokenInfo(x=...), only for an encoding that depends on content": "hidden_states",
    "write bins=Bins(edges=...)": "edges",
    "write bins=Bins(first=...)": "first",
    "write bins=Bins(last=...)": "last",
    "pass all keys and values so far as k and v, with q for the last tokens; encoding_cache=EncodingCache() speeds up "
    "the steps "
    "of one text": "past_key_values past_key_value kv_cache cache",
    "write encoding=": "position_encoding pos_encoding",
    "write backend=": "implementation",
    "weights are never stored; use attention.statistics to see where attention looks": "return_weights need_weights "
    "output_attentions",
}
INSTEAD = {name: advice for advice, names in _ADVICE.items() for name in names.split()}


def refuse_unknown(what: str, unknown: Mapping[str, object], arguments: Collection[str]) -> None:
    """Raise `ArgumentError` for the first of the unknown arguments, with what to write instead.

    `arguments`: the names of the arguments that `what` accepts.
    """
    for name in unknown:
        advice = INSTEAD.get(name, "")
        # It applies if it names only arguments of this call, apart from the fields of TokenInfo and Bins, which are in
        # parentheses.
        applies = advice and set(re.findall(r"(\w+)=", re.sub(r"\(.*?\)", "", advice))) <= set(arguments)
        near = near_miss(name, arguments) + f"; its arguments are: {', '.join(arguments)}"
        raise ArgumentError(f"{what} has no argument {name!r}" + (f": {advice}" if applies else near))


# ---- swapped axes of tokens and heads


def transposed(q: Tensor, k: Tensor) -> str | None:
    """Return which of q and k (with v) seem to be [batch, tokens, heads, head_dim]: "q", "k", "q and k" or None.

    Use it for shapes that do not fit: it returns what has to be transposed so that they do. A single one of q and k is
    returned only if it then has as many heads as the other.
    """
    sizes = {"q": tuple(q.shape), "k": tuple(k.shape)}
    for names in ("q", "k"), ("q",), ("k",):
        shapes = {name: (b, t, h, d) if name in names else (b, h, t, d) for name, (b, h, t, d) in sizes.items()}
        (_, heads, queries, _), (_, groups, keys, _) = shapes["q"], shapes["k"]
        heads_fit = heads == groups or (len(names) == 2 and groups and heads % groups == 0)
        if heads and heads_fit and 1 <= queries <= keys:
            return " and ".join(names)
    return None


def transpose_hint(name: str, x: Tensor) -> str:
    """Return the advice for tensors whose axes of tokens and heads are swapped."""
    tensors = {"q": "q", "k": "k (and v)", "q and k": "q (like k and v)"}[name]
    return (
        f"{tensors} has shape {tuple(x.shape)}; attend expects [batch, heads, tokens, head_dim]: transpose with "
        f"{name[0]}.transpose(1, 2)"
    )
