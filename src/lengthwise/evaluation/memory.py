"""The least memory that an evaluation needs, so that a length that cannot fit is refused before anything is trained."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from typing import Any

import torch

from lengthwise.config import ConfigError, Run
from lengthwise.evaluation.questions import encodings_of
from lengthwise.forms import AttentionModifiers
from lengthwise.machine_memory import machine_memory
from lengthwise.positions import PositionScheme, position_scheme_for
from lengthwise.span import Span
from lengthwise.tasks.base import Task, generator
from lengthwise.user_classes import is_builtin_class

ALWAYS_FITS = 65_536  # token slots of an example for which nothing is estimated, so that usual lengths take no time
MOST_WITH_TABLES = (
    2**22
)  # token slots for which tables are counted; finding the sizes of longer ones can take several seconds
LAST_QUERIES = 1024  # of an example that is processed in parts: the smallest part
FLOAT = 4  # bytes: all computation is in float32


def require_memory(run: Run, task: Task, lengths: Iterable[tuple[int, int]], *, in_parts: bool) -> None:
    """Raise `ConfigError` for the first length that surely needs more memory than this machine has. Allocates little.

    `task`: that of the evaluation. `lengths`: each length with its number of examples. `in_parts`: long examples are processed in
    parts with the key-value cache.
    Memory that is only sometimes needed, or only for a moment, does not count. So a length that is accepted may need too much.
    """
    if (limit := machine_memory()) is None:
        return
    for length, count in lengths:
        if task.tokens(length) <= ALWAYS_FITS:
            continue
        needed = _Estimate(run, task, length, count).bytes(in_parts and task.has_token_scores(), limit)
        if needed > limit:
            raise ConfigError(
                f"length {length:,} {task.unit} needs more than {_gib(needed)} of memory, and this machine has {_gib(limit)}; use "
                "shorter lengths, fewer examples or a smaller model"
            )


@dataclass(frozen=True)
class _Estimate:
    """The least memory of one length of a run."""

    run: Run
    task: Task
    length: int
    count: int  # of examples

    @property
    def slots(self) -> int:
        return self.task.tokens(self.length)

    def bytes(self, in_parts: bool, enough: float) -> float:
        """Return the least memory in bytes. What takes longer to find out is left out if the rest is more than `enough`."""
        per_slot = _bytes_per_slot(self.task)
        if per_slot is None:
            return 0.0
        needed = self._least_examples() * self.slots * per_slot
        if self.run.model.mixer is None and not self.task.decodes and needed <= enough:
            encodings = encodings_of(self.run, self.task)
            in_parts = in_parts and not any(encoding.depends_on_length() for encoding in encodings)
            needed += self._activations(in_parts)
            if needed <= enough and self.slots <= MOST_WITH_TABLES:
                needed += self._tables(encodings, in_parts)
        return needed

    def _least_examples(self) -> int:
        """Return how many examples there surely are. A task of a user may have fewer than it is asked for."""
        available = self.task.available(self.length, "test")
        most = self.count if is_builtin_class(type(self.task)) else 1
        return most if available is None else min(most, available)

    def _activations(self, in_parts: bool) -> float:
        """Return the bytes of the cache, or of a layer's input with its queries, keys and values."""
        model, windows = self.run.model, [choice.layer.window for choice in self.run.encoding.layers]
        cached = 2 * model.kv_heads * model.head_width
        if not in_parts:
            return FLOAT * self.slots * (model.d_model + model.num_heads * model.head_width + cached)
        whole_layers = sum(windows[n % len(windows)] is None for n in range(model.num_layers))
        return FLOAT * self.slots * cached * whole_layers

    def _tables(self, encodings: list[Any], in_parts: bool) -> float:
        """Return the bytes of the tensors in the largest modifiers of a layer without a window."""
        scheme = position_scheme_for(self.task, self.run.training.positions)
        queries = LAST_QUERIES if in_parts else self.slots
        span = _span(self.slots, queries, scheme)
        pairs = zip(dict.fromkeys(self.run.encoding.layers), encodings, strict=True)
        return max(
            (_table_bytes(encoding, span) for choice, encoding in pairs if choice.layer.window is None), default=0
        )


@lru_cache(maxsize=64)
def _bytes_per_slot(task: Task) -> float | None:
    """Return the bytes that a batch has for each token slot. None if examples may have fewer slots than `Task.tokens` says.

    Three short examples show whether all have that many.
    """
    try:
        short = max((2**n for n in range(17) if task.tokens(2**n) <= ALWAYS_FITS), default=1)
        examples = [task.sample(generator("memory", n), 1, short, "test") for n in range(3)]
    except (
        Exception,
        SystemExit,
    ):  # no examples of this length, or an error in a user's task, which the evaluation reports
        return None
    slots = task.tokens(short)
    if any(batch.targets.shape[1] < slots for batch in examples):
        return None
    # Inputs and targets may share their memory, and one row of `scored` may serve all examples.
    storages = [x.untyped_storage() for x in (examples[0].inputs, examples[0].targets)]
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values()) / slots


def _span(keys: int, queries: int, scheme: PositionScheme) -> Span:
    """Return a span without values."""
    span = Span.of(keys, queries, device="meta")
    if scheme.num_axes == 1:
        return span
    axes = torch.empty(1, keys, scheme.num_axes, dtype=torch.int64, device="meta")
    return replace(span, consecutive=False, axes_q=axes[:, -queries:], axes_k=axes)


def _table_bytes(encoding: Any, span: Span) -> int:
    """Return the bytes of the tensors in the encoding's modifiers; 0 if their sizes depend on values."""
    modifiers = AttentionModifiers()
    # PyTorch raises several types of errors for values that tensors without values do not have. Other errors, such as those of a
    # user's encoding, come again in the evaluation, which reports them.
    with suppress(Exception), torch.no_grad():
        modifiers = encoding.to("meta").modifiers(span)
    storages = [tensor.untyped_storage() for tensor in _tensors(modifiers)]
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in forms, which are dataclasses, and in tuples of them."""
    if isinstance(value, torch.Tensor):
        yield value
    elif is_dataclass(value):
        for part in fields(value):
            yield from _tensors(getattr(value, part.name))
    elif isinstance(value, tuple):
        for part in value:
            yield from _tensors(part)


def _gib(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB"
