"""Arguments of calls of attention that other libraries have under another name, or that are not needed here."""

import re
from collections.abc import Collection, Mapping

from torch import Tensor

from lengthwise.values import ArgumentError, near_miss

_MASK = (
    "there is no mask to give: causal= says whether queries see keys after them, documents= has padding and packed texts, "
    "window= is a sliding window; numbers to add to the logits are an encoding's"
)
_CAUSAL = "write causal=True (the default) or causal=False"
_DROPOUT = "attention drops no weights; leave it out"
_SCALE = "write scale="
_WINDOW = "write window=, the number of last keys that a query sees"
_DOCUMENTS = "write documents=, for every token the number of its document"
_KEPT = (
    "give all keys and values so far as k and v, with q of the last tokens, and encoding_cache=EncodingCache() for the steps of "
    "one text"
)

INSTEAD = {
    "attn_mask": _MASK,
    "attention_mask": _MASK,
    "mask": _MASK,
    "key_padding_mask": _MASK,
    "block_mask": _MASK,
    "attn_bias": _MASK,
    "bias": _MASK,
    "is_causal": _CAUSAL,
    "use_causal_mask": _CAUSAL,
    "dropout_p": _DROPOUT,
    "dropout": _DROPOUT,
    "attention_dropout": _DROPOUT,
    "enable_gqa": "grouped queries need no switch: k and v may have fewer heads than q; leave it out",
    "softmax_scale": _SCALE,
    "sm_scale": _SCALE,
    "scaling": _SCALE,
    "window_size": _WINDOW,
    "sliding_window": _WINDOW,
    "position_ids": "write positions=",
    "cu_seqlens": _DOCUMENTS,
    "cu_seqlens_q": _DOCUMENTS,
    "cu_seqlens_k": _DOCUMENTS,
    "seq_ids": _DOCUMENTS,
    "alibi_slopes": "write encoding=, with an encodings.ALiBi, which makes its slopes itself",
    "hidden_states": "write x=, and only for an encoding that reads content",
    "past_key_values": _KEPT,
    "past_key_value": _KEPT,
    "kv_cache": _KEPT,
    "cache": _KEPT,
    "position_encoding": "write encoding=",
    "pos_encoding": "write encoding=",
    "implementation": "write backend=",
    "return_weights": "weights are never stored; attention.statistics says what attention looks at",
    "need_weights": "weights are never stored; attention.statistics says what attention looks at",
    "output_attentions": "weights are never stored; attention.statistics says what attention looks at",
}


def refuse_unknown(what: str, given: Mapping[str, object], known: Collection[str]) -> None:
    """Raise `ArgumentError` for the first argument given, with what to write instead. `known`: those that there are."""
    for name in given:
        instead = INSTEAD.get(name, "")
        serves = instead and set(re.findall(r"(\w+)=", instead)) <= set(known)  # what it names is there in this call
        near = near_miss(name, known) + f"; its arguments are: {', '.join(known)}"
        raise ArgumentError(f"{what} has no argument {name!r}" + (f": {instead}" if serves else near))


# ---- tokens before heads


def transposed(q: Tensor, k: Tensor) -> str | None:
    """Which of q and k (with v) are [batch, tokens, heads, head_dim], where shapes do not fit as they are and would so. One
    of them alone only if it has the other's heads then."""
    sizes = {"q": tuple(q.shape), "k": tuple(k.shape)}
    for names in ("q", "k"), ("q",), ("k",):
        turned = {name: (b, t, h, d) if name in names else (b, h, t, d) for name, (b, h, t, d) in sizes.items()}
        (_, heads, queries, _), (_, groups, keys, _) = turned["q"], turned["k"]
        alike = heads == groups or (len(names) == 2 and groups and heads % groups == 0)
        if heads and alike and 1 <= queries <= keys:
            return " and ".join(names)
    return None


def transpose_hint(name: str, x: Tensor) -> str:
    """What to do with tensors that have tokens before heads."""
    which = {"q": "q", "k": "k (and v)", "q and k": "q (like k and v)"}[name]
    one = name[0]
    return (
        f"{which} has shape {tuple(x.shape)}; attend expects [batch, heads, tokens, head_dim]: transpose with "
        f"{one}.transpose(1, 2)"
    )
