"""Compute one long text with a model, in chunks with its KV cache, so that the memory beside the cache is bounded."""

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, LinearAttentionCacheLayerMixin

from lengthwise.huggingface import LengthwiseForCausalLM
from lengthwise.huggingface.exported_model import LengthwiseCache
from lengthwise.huggingface.replacement import encoding_of
from lengthwise.training.memory import return_when_freed
from lengthwise.transformers_versions import cache_parameter

CHUNK = 512  # tokens of a forward pass, at most
SMALLEST_CHUNK = 32
MASK = 2**22  # entries of the mask of a chunk, at most: queries × keys
LOGITS = 2**22  # logits of a forward pass, at most
SMALLEST_ROWS = 16
LARGE = 1 << 18  # bytes; allocations from this size are returned to the system as soon as they are freed
DEPENDS_ON_LENGTH = ("dynamic", "longrope")  # rotations of transformers that change with the length of the text


class PreallocatedLayer(DynamicLayer):  # type: ignore[misc]
    """A layer of a cache with room for `capacity` tokens. Appending copies nothing, unlike in `DynamicLayer`."""

    def __init__(self, capacity: int):
        super().__init__()
        self.capacity = capacity
        self.buffers: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        if self.buffers is None:
            self.lazy_initialization(key_states, value_states)
            self.buffers = _room(key_states, self.capacity), _room(value_states, self.capacity)
            self.keys, self.values = (buffer[:, :, :0] for buffer in self.buffers)
        assert self.keys is not None
        start = self.keys.shape[2]
        end = start + key_states.shape[2]
        for buffer, states in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[:, :, start:end] = states
        self.keys, self.values = (buffer[:, :, :end] for buffer in self.buffers)
        return self.keys, self.values

    @property
    def bytes(self) -> int:
        return sum(buffer.nbytes for buffer in self.buffers or ())


def _room(like: Tensor, capacity: int) -> Tensor:
    return like.new_empty(*like.shape[:2], capacity, like.shape[3])


@dataclass
class Reader:
    """A model that reads long texts. `cache_bytes`: of the last text's cache, as far as it grows with the text."""

    model: Any
    cache_bytes: int = 0

    def __post_init__(self) -> None:
        parameters = inspect.signature(self.model.forward).parameters
        self.omits_logits = "logits_to_keep" in parameters and not isinstance(self.model, LengthwiseForCausalLM)
        self.cache_parameter = cache_parameter(self.model)
        self.in_chunks = self.cache_parameter is not None and not needs_whole_text(self.model)
        vocab = self.model.get_output_embeddings().weight.shape[0]
        self.max_rows = max(SMALLEST_ROWS, LOGITS // vocab)

    def chunk(self, tokens: int) -> int:
        """Return the tokens of a forward pass for a text of that many tokens."""
        if not self.in_chunks:
            return tokens
        chunk = max(SMALLEST_CHUNK, min(CHUNK, MASK // max(tokens, 1)))
        return chunk if self.omits_logits else min(chunk, self.max_rows)

    def sampled_rows(self, tokens: int, tail: int) -> list[int]:
        """Return evenly spaced rows, about `max_rows` of each chunk, and the last `tail` rows."""
        step = -(-(self.chunk(tokens) if self.in_chunks else tokens) // self.max_rows)
        return sorted({*range(0, tokens, step), *range(tokens - tail, tokens)})

    @torch.no_grad()
    def losses(self, tokens: Sequence[int], rows: Sequence[int]) -> Tensor:
        """Return the cross-entropy of the tokens after some rows, float64 [rows]. Row 0 predicts the second token."""
        ids = torch.tensor([tokens], device=self.model.device)
        rows_at_once = max(1, self.max_rows // 8)  # float64 needs twice the memory, and float32 is biased by up to 1e-5
        losses = [
            F.cross_entropy(chunk.double(), targets, reduction="none").cpu()
            for at, logits in self._logits(ids[:, :-1], rows)
            for chunk, targets in zip(logits.split(rows_at_once), ids[0, at + 1].split(rows_at_once), strict=True)
        ]
        return torch.cat(losses)

    @torch.no_grad()
    def answers_correctly(self, tokens: Sequence[int], answer: int) -> bool:
        """Return whether the model predicts each of the last `answer` tokens from those before it.

        This is so exactly if greedy decoding gives the answer: up to the first mistake, both read the same tokens.
        """
        ids = torch.tensor([tokens], device=self.model.device)
        count = len(tokens) - 1
        pairs = self._logits(ids[:, :-1], range(count - answer, count))
        return all(bool((logits.argmax(-1) == ids[0, at + 1]).all()) for at, logits in pairs)

    def _logits(self, ids: Tensor, rows: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield rows with their logits [n, vocab], at most `max_rows` at a time. `rows`: ascending."""
        count = ids.shape[1]
        chunk, start, first = self.chunk(count), 0, 0
        cache = self._new_cache(count) if self.in_chunks else None
        while start < count:
            end = min(start + chunk, count)
            last = first
            while last < len(rows) and rows[last] < end:
                last += 1
            if self.in_chunks and last - first > self.max_rows:
                last = first + self.max_rows
                end = rows[last - 1] + 1
            indices = torch.tensor(rows[first:last], dtype=torch.long, device=ids.device)
            logits = self._forward(ids[:, start:end], cache, indices - start)
            self.cache_bytes = 0 if cache is None else _size(cache)
            for begin in range(0, len(indices), self.max_rows):
                yield indices[begin : begin + self.max_rows], logits[begin : begin + self.max_rows]
            del logits
            start, first = end, last

    def _forward(self, ids: Tensor, cache: Any, indices: Tensor) -> Tensor:
        options: dict[Any, Any] = {"use_cache": False}
        if cache is not None:
            options = {self.cache_parameter: cache, "use_cache": True}
        if self.omits_logits:
            logits = self.model(input_ids=ids, logits_to_keep=indices if len(indices) else 1, **options).logits[0]
            return logits if len(indices) else logits[:0]
        return self.model(input_ids=ids, **options).logits[0, indices]

    def _new_cache(self, capacity: int) -> Any:
        if isinstance(self.model, LengthwiseForCausalLM):
            return LengthwiseCache(self.model.model.new_cache(capacity))
        cache = DynamicCache(config=self.model.config)
        cache.layers = [PreallocatedLayer(capacity) if type(layer) is DynamicLayer else layer for layer in cache.layers]
        return cache


def _size(cache: Any) -> int:
    return sum(layer.bytes for layer in cache.layers if isinstance(layer, PreallocatedLayer))


def use_process(threads: int) -> None:
    """Configure threads and memory of a process of our own: freed tensors are returned to the system.

    The tensors of a chunk grow with the text before it. Otherwise the C library would keep the memory of smaller ones,
    which the larger ones cannot use.
    """
    torch.set_num_threads(threads)
    return_when_freed(LARGE)


def needs_whole_text(model: Any) -> bool:
    """Return whether chunks of a text would give other logits than one forward pass, or none.

    This is so if angles of rotations depend on the length of the text, if an encoding in a model of transformers reads
    content, or if a layer of transformers keeps a recurrent state: some of them (Mamba, Jamba, Bamba) begin each chunk
    without the state.
    """
    if isinstance(model, LengthwiseForCausalLM):
        modules = getattr(model.model, "encodings", ())
        return any(encoding.depends_on_length() for encoding in modules)
    if encoding_of(model) is not None:
        encodings = model.get_decoder().position_encodings
        return any(encoding.depends_on_length() or encoding.reads_content() for encoding in encodings)
    if any(isinstance(layer, LinearAttentionCacheLayerMixin) for layer in DynamicCache(config=model.config).layers):
        return True
    parameters = getattr(model.config, "rope_parameters", None) or {}
    entries = [parameters, *(entry for entry in parameters.values() if isinstance(entry, dict))]
    return any(entry.get("rope_type") in DEPENDS_ON_LENGTH for entry in entries)


def position_limit(model: Any, claimed: int | None) -> int | None:
    """Return the longest text that a model has positions for; None unless it has a table of positions."""
    if isinstance(model, LengthwiseForCausalLM):
        limit: int | None = model.model.max_length
        return limit
    if encoding_of(model) is not None:
        lengths = [encoding.max_length for encoding in model.get_decoder().position_encodings]
        return min((length for length in lengths if length is not None), default=None)
    if claimed is None:
        return None
    tables = [m for m in model.modules() if isinstance(m, nn.Embedding) and m is not model.get_input_embeddings()]
    return claimed if any(claimed <= table.num_embeddings <= claimed + 8 for table in tables) else None
