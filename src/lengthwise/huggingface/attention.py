"""The attention function and the mask function that transformers calls in a model with one of our encodings.

transformers calls the mask function once per forward pass and kind of layer. Whatever it returns reaches the attention
function of every layer as `attention_mask`, also when gradient checkpointing computes a layer again. So it returns a
`Tokens`: what the tokens of this call are, and what all layers with the same encoding share.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NoReturn

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from lengthwise.attention import EncodingCache, Mask, Plan, plan, with_content
from lengthwise.config import ConfigError
from lengthwise.encodings.base import PositionEncoding
from lengthwise.encodings.contract import features_of
from lengthwise.forms import AttentionModifiers, SinkLogit, TokenRotation
from lengthwise.span import Span, document_lengths, lowest_and_highest

NAME = "lengthwise"  # of both functions and the `attn_implementation`; names with "flash" have a special meaning
NO_STATIC_CACHE = "a model with an encoding of lengthwise supports no static cache; use a DynamicCache"
NO_POSITION_IDS = ("bloom", "mpt")
"""Types of models that take no position IDs. There, the tokens that are no padding are counted."""
UNSUPPORTED = {"softcap": "a soft cap of the logits", "position_bias": "a position bias"}


class NotATensor(ConfigError, AttributeError):
    """A model uses `Tokens` as a mask of its own. It is an `AttributeError` too, so that `hasattr` works."""


@dataclass
class Tokens:
    """The tokens of one forward pass: `queries` new ones, which are the last of `keys` tokens.

    `first_key`: the number of earlier tokens that a cache of a sliding window has dropped. `visible` [b, all tokens]:
    False for padding; None without padding. `packed`: the position IDs begin anew at each document. `shows(query,
    key)`: whether transformers shows a key to a query, apart from padding, [b, number of queries]. `counts_padding`:
    whether position IDs that are not given count padding too.

    A hook before an attention layer adds what belongs to this call of the layer, so that nothing of a call is stored in
    the model, which several threads may use: `rotated`, what is rotated already ("keys" by the
    cache, or "both" by the model, which does all that the encoding does); and for an encoding that reads content `x`,
    the layer's input, and `past`, the layer of the cache that keeps what it computes from it.
    """

    queries: int
    keys: int
    first_key: int
    visible: Tensor | None
    packed: bool
    shows: Callable[..., Tensor] | None = None
    counts_padding: bool = True
    rotated: Literal["", "keys", "both"] = ""
    x: Tensor | None = None
    past: Any = None
    _spans: dict[bool, tuple[Span, Tensor | None]] = field(default_factory=dict)
    _modifiers: dict[tuple[PositionEncoding, str], AttentionModifiers] = field(default_factory=dict)
    _new_keys: dict[PositionEncoding, TokenRotation] = field(default_factory=dict)
    _plans: dict[tuple[PositionEncoding, str, int | None, bool], Plan] = field(default_factory=dict)
    _windows: dict[int, bool] = field(default_factory=dict)
    _rotated: "Tokens | None" = field(default=None, init=False)

    def to(self, *_: Any, **__: Any) -> "Tokens":
        """Return itself. MPT converts its mask to another type."""
        return self

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse static caches, and layers that compute something with the mask themselves, as those of Doge do."""
        if name in ("contiguous", "ndim"):  # read only if there is a static cache
            raise ConfigError(NO_STATIC_CACHE)
        if hasattr(Tensor, name):
            raise NotATensor(
                f"the attention layers of this model read the mask themselves (its {name}), so they do more than call "
                "an attention function; the encodings of lengthwise support models such as Llama, whose layers do not"
            )
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def without_results(self) -> "Tokens":
        """Return the same tokens without what layers have computed for them."""
        return replace(self, _spans={}, _modifiers={}, _new_keys={}, _plans={})

    def with_rotated(self, rotated: Literal["keys", "both"]) -> "Tokens":
        """Return the same tokens with keys, or queries and keys, rotated already. All layers of a call share them."""
        if self._rotated is None or self._rotated.rotated != rotated:
            self._rotated = replace(self, rotated=rotated)
        return self._rotated

    def features(self, encoding: PositionEncoding) -> Tensor:
        """Return what an encoding computes from the content of each key."""
        if self.x is None:
            raise ConfigError(
                f"{type(encoding).__name__} reads the input of attention layers, which this model calls in a way that "
                "lengthwise does not know; take an encoding that does not read content"
            )
        if self.first_key and not encoding.content_is_local:
            raise ConfigError(
                f"{type(encoding).__name__} reads tokens before those that a layer with a sliding window sees, which "
                "the caches of transformers do not keep; take another encoding for such layers"
            )
        features = features_of(encoding, self.x)
        return (
            features if self.past is None else self.past.extend(features, self.first_key + self.keys)[:, -self.keys :]
        )

    def modifiers(
        self, encoding: PositionEncoding, position_ids: Tensor | None, device: torch.device, forms: EncodingCache
    ) -> AttentionModifiers:
        """Return what an encoding does to the attention of all layers that share it.

        `forms`: stores forms of encodings from one decoding step to the next.
        """
        key = encoding, self.rotated
        if key not in self._modifiers:
            span, _ = self.span(encoding.depends_on_length(), position_ids, device)
            modifiers = AttentionModifiers() if self.rotated == "both" else forms.modifiers(encoding, span)
            if self.rotated == "keys" and modifiers.rotation:
                self._new_keys[encoding] = modifiers.rotation.keys_from(self.keys - self.queries)
                modifiers = replace(modifiers, rotation=modifiers.rotation.queries_only())
            self._modifiers[key] = modifiers
        return self._modifiers[key]

    def new_keys(
        self, encoding: PositionEncoding, position_ids: Tensor | None, device: torch.device, forms: EncodingCache
    ) -> TokenRotation:
        """Return the rotation of the queries' own keys, which a cache stores rotated (only if `rotated` is "keys")."""
        if encoding not in self._new_keys:
            self.modifiers(encoding, position_ids, device, forms)
        return self._new_keys[encoding]

    def plan(self, encoding: PositionEncoding, window: int | None, causal: bool, query: Tensor) -> Plan:
        """Return the plan of all layers that share an encoding and a window. `modifiers` has to be called before."""
        key = encoding, self.rotated, window, causal
        if key not in self._plans:
            span, documents = self._spans[encoding.depends_on_length()]
            mask = Mask(self.queries, self.keys, causal, documents, window)
            self._plans[key] = plan(self._modifiers[encoding, self.rotated], span, mask, query)
        return self._plans[key]

    def span(self, lengths: bool, position_ids: Tensor | None, device: torch.device) -> tuple[Span, Tensor | None]:
        """Return the span and the documents of the keys. `lengths`: the encoding depends on those of the documents."""
        if lengths not in self._spans:
            by_index = torch.arange(self.first_key, self.first_key + self.keys, device=device)[None]
            positions = self.positions(position_ids, by_index)
            documents = self.documents(positions)
            if (
                documents is None
                and not self.first_key
                and (positions is by_index or bool((positions == by_index).all()))
            ):
                span = Span(by_index[:, -self.queries :], by_index, self.keys, consecutive=True)
            else:
                length_k = document_lengths(positions, documents) if lengths else None
                length_q = None if length_k is None else length_k[:, -self.queries :]
                first, last = lowest_and_highest(positions)
                span = Span(positions[:, -self.queries :], positions, last + 1, False, length_q, length_k, first)
            self._spans[lengths] = span, documents
        return self._spans[lengths]

    def is_plain(self, encoding: PositionEncoding, window: int | None) -> bool:
        """Whether the model has done all that its encoding does, and there is one query, which sees all keys."""
        if self.rotated != "both" or self.queries > 1:
            return False
        _, documents = self._spans[encoding.depends_on_length()]
        return documents is None and (window is None or window >= self.keys)

    def window(self, size: int, device: torch.device) -> int | None:
        """Return the window of a layer that names none, by the size in the configuration; None if it sees all keys.

        Some classes of transformers (Qwen 2 MoE, Phi-MoE) tell their attention function of a window by the mask alone.
        """
        last = self.first_key + self.keys
        first = max(last - self.queries, self.first_key + size)
        if self.shows is None or first >= last:
            return None
        if size not in self._windows:
            query = torch.arange(first, last, device=device)[None]
            # If documents are packed, a query may see none of the other documents, but then the window changes nothing.
            self._windows[size] = not bool(self.shows(query, query - size).any())
        return size if self._windows[size] else None

    def positions(self, position_ids: Tensor | None, by_index: Tensor) -> Tensor:
        """Return the position IDs of all keys: those of queries are given, and those of cached tokens follow.

        `by_index` [1, j]: the position IDs if all tokens are counted, also those that the cache has dropped.

        A forward pass without position IDs counts all tokens, as models of transformers do; `generate` counts those
        that are no padding, and so do models that take no position IDs.
        """
        all_keys = self.first_key + self.keys
        counted = None if self.visible is None else count_shown(self.visible)[:, self.first_key : all_keys]
        if position_ids is None:
            return by_index if counted is None or self.counts_padding else counted
        if self.queries == self.keys and not self.first_key:
            begins = position_ids.diff(dim=1) < 1
            if self.visible is not None:  # positions of padding have no meaning
                begins = begins & (self.visible[:, 1:all_keys] & self.visible[:, : all_keys - 1]).bool()
            if not self.packed and bool(begins.any()):
                # transformers would let the documents see each other.
                raise ConfigError(
                    "position_ids that begin anew mark packed documents, which need use_cache=False and no "
                    "attention_mask, in a model whose class hides them from each other (that of gpt-oss does not)"
                )
            return position_ids
        candidates = [by_index] if counted is None else [by_index, counted]
        shown = None if self.visible is None else self.visible[:, all_keys - self.queries : all_keys]
        for candidate in candidates:
            differs = candidate[:, -self.queries :] != position_ids
            if not bool((differs if shown is None else differs & shown).any()):
                return candidate
        raise ConfigError(
            "with a cache, position_ids must count the tokens, or those that attention_mask shows, from 0; pad on the "
            "left, or pass such position_ids or use_cache=False"
        )

    def documents(self, positions: Tensor) -> Tensor | None:
        if self.packed:
            begins = positions.diff(dim=1, prepend=positions[:, :1] - 1) != 1
            return begins.long().cumsum(1) if bool(begins.any()) else None
        if self.visible is None:
            return None
        shown = self.visible[:, self.first_key : self.first_key + self.keys]
        return None if bool(shown.all()) else torch.where(shown, 0, -1)


def count_shown(visible: Tensor) -> Tensor:
    """Return position IDs [b, t] that count the tokens that are no padding (`visible`), from 0."""
    return (visible.long().cumsum(1) - 1).clamp(min=0)


def describe_tokens(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    attention_mask: Tensor | None = None,
    allow_is_causal_skip: bool = True,
    mask_function: Callable[..., Tensor] | None = None,
    **further: Any,
) -> Tokens:
    """Return the tokens of a forward pass. This is our mask function of transformers.

    `mask_function(batch, head, query, key)`: whether transformers shows a key to a query, apart from padding. It is
    causal, unless the model's configuration or the model itself (for the tokens of an image) asks for something else.
    """
    if isinstance(q_offset, Tensor) or q_offset + q_length != kv_offset + kv_length:
        raise ConfigError(NO_STATIC_CACHE)
    if further.get("use_vmap"):
        raise ConfigError(
            "a model with an encoding of lengthwise supports no further mask function (or_mask, and_mask)"
        )
    shows = None if mask_function is None else partial(_shows, mask_function, batch_size)
    if shows is not None and q_length > 1:
        query = torch.arange(q_offset, q_offset + q_length - 1, device=further.get("device"))[None]
        if bool(shows(query, query + 1).any()):
            raise ConfigError(
                "a model with an encoding of lengthwise must not show later tokens to a query; it has to be causal"
            )
    visible = None if attention_mask is None else attention_mask.expand(batch_size, -1)
    packed = not allow_is_causal_skip and attention_mask is None
    counts_padding = getattr(further.get("config"), "model_type", None) not in NO_POSITION_IDS
    return Tokens(q_length, kv_length, kv_offset, visible, packed, shows, counts_padding)


def _shows(mask_function: Callable[..., Tensor], rows: int, query: Tensor, key: Tensor) -> Tensor:
    row = torch.arange(rows, device=query.device)[:, None]
    return mask_function(row, torch.zeros_like(row), query, key)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tokens,
    scaling: float | None = None,
    dropout: float = 0.0,
    **further: Any,
) -> tuple[Tensor, None]:
    """Return the attention output [b, i, h, d] and no weights. This is our attention function of transformers.

    `query` [b, h, i, d], without any position encoding; `key`, `value` [b, g, j, d], perhaps with rotated keys.
    """
    layer: Any = module
    state = layer._lengthwise
    encoding: PositionEncoding = state.encoding
    tokens = attention_mask
    if not isinstance(tokens, Tokens):
        raise ConfigError(
            "a model with an encoding of lengthwise needs a mask of the shape [batch, tokens], or none, got "
            f"{'a tensor ' + str(list(tokens.shape)) if isinstance(tokens, Tensor) else type(tokens).__name__}"
        )
    for name, words in UNSUPPORTED.items():
        if further.get(name) is not None:
            raise ConfigError(f"this model has {words}, which the encodings of lengthwise do not support")
    if further.get("output_attentions"):
        raise ConfigError("the encodings of lengthwise compute no attention weights; omit output_attentions")
    if dropout:
        raise ConfigError(
            f"attention dropout must be 0 with an encoding of lengthwise, got {dropout:g}; set it to 0 in model.config"
        )
    if state.model_rotation is not None and state.model_rotation.applies(query.shape[2]):
        tokens = tokens.with_rotated("both")
    window, causal = further.get("sliding_window"), bool(getattr(layer, "is_causal", True))
    if state.window is not None and "sliding_window" not in further:
        window = tokens.window(state.window, query.device)
    if state.is_recomputed():
        # What other layers have computed belongs to graphs that no longer exist in the backward pass.
        tokens = tokens.without_results()
    modifiers = tokens.modifiers(encoding, further.get("position_ids"), query.device, state.forms)
    sinks = further.get("s_aux")  # a learned logit of each head [h], which is a parameter of the layer
    if encoding.reads_content() or sinks is not None:
        span, documents = tokens.span(encoding.depends_on_length(), further.get("position_ids"), query.device)
        mask = Mask(tokens.queries, tokens.keys, causal, documents, window)
        if encoding.reads_content():
            modifiers = with_content(modifiers, encoding, tokens.features(encoding), span, mask)
        if sinks is not None:
            modifiers = replace(modifiers, sink=SinkLogit(sinks))
        prepared = plan(modifiers, span, mask, query)
    else:
        prepared = tokens.plan(encoding, window, causal, query)
    if sinks is None and tokens.is_plain(encoding, window) and query.shape[:2] == key.shape[:2]:
        # For one query, torch's attention takes as long as ours, and the call itself takes less.
        return scaled_dot_product_attention(query, key, value, scale=scaling).transpose(1, 2).contiguous(), None
    return prepared(query, key, value, scale=scaling).transpose(1, 2).contiguous(), None


def register() -> None:
    """Make both functions known to transformers. A model whose mask function is missing would silently have no mask."""
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, describe_tokens)
