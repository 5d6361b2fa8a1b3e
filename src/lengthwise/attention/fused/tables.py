"""Sums of the tables of several forms, as one table for the fused operators."""

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from lengthwise.attention.fused.arguments import TENSORS
from lengthwise.forms import AttentionModifiers, RelativeKeyBias, ToeplitzBias, VectorBias


def plain(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return `x` as the kernels read it from memory: contiguous, and without the bit that negates its numbers."""
    return x.to(dtype).resolve_neg().contiguous()


def _cached(term: ToeplitzBias | RelativeKeyBias, key: Hashable, compute: Callable[[], Tensor]) -> Tensor:
    """Return `compute()`, derived from the term's table, and store it for the next steps of a decoding loop."""
    if torch.is_grad_enabled():  # the graph belongs to a single call, and checkpointing repeats calls
        return compute()
    if key not in term.derived:
        term.derived[key] = compute()
    return term.derived[key]


def terms_for(modifiers: AttentionModifiers, kernel: str) -> list[Any]:
    """Return the terms that the kernels take as one thing; see `Term.kernel`.

    "table": numbers over distances. "vectors": products of a vector per query and a vector per distance. "query
    vector": a vector that is added to q. "arguments": the term's own tensors, which the kernels read as they are
    (`tensor_arguments`).
    """
    return [term for term in modifiers.terms if term.kernel == kernel]


def combined_vectors(terms: list[VectorBias], dtype: torch.dtype, scale: float) -> tuple[Tensor | None, int]:
    """Return the scaled vectors of all terms, concatenated, over all their distances, and the first distance."""
    if not terms:
        return None, 0
    term = terms[0]
    if len(terms) == 1 and isinstance(term, RelativeKeyBias):
        return _cached(term, (dtype, scale), lambda: plain(term.table * scale, dtype)), term.first
    heads = max(len(term.table) for term in terms)
    scaled = [(term.table * scale if term.reads_q else term.table, term.first) for term in terms]
    tables, first = _over_same_distances(scaled, dtype)
    return torch.cat([table.expand(heads, -1, -1) for table in tables], -1).contiguous(), first


def distance_range(tables: list[tuple[Tensor, int]]) -> tuple[int, int]:
    """Return the first distance and the number of distances that cover all tables with their first distances."""
    first = min(table_first for _, table_first in tables)
    return first, max(table_first + table.shape[1] for table, table_first in tables) - first


def gap(tables: list[tuple[Tensor, int]]) -> str | None:
    """Return why the tables cannot be combined: most distances between the first and the last are in none of them."""
    if len(tables) < 2:
        return None
    size, entries = distance_range(tables)[1], sum(table.shape[1] for table, _ in tables)
    if size <= 2 * entries + 1024:
        return None
    return f"tables of {entries:,} distances lie so far apart that one over all of them would have {size:,}"


def _over_same_distances(tables: list[tuple[Tensor, int]], dtype: torch.dtype) -> tuple[list[Tensor], int]:
    """Extend tables [h|1, n, ...] to the distances of all of them and return them with the common first distance."""
    first, size = distance_range(tables)
    extended = []
    for table, table_first in tables:
        if table.shape[1] != size:
            column = (torch.arange(size, device=table.device) + first - table_first).clamp(0, table.shape[1] - 1)
            table = table.index_select(1, column)
        extended.append(table.to(dtype))
    return extended, first


def combined_values(modifiers: AttentionModifiers, dtype: torch.dtype) -> tuple[Tensor | None, int]:
    """Return the sum of the vectors that are added to values, [h|1, n, d], and the first distance."""
    if not modifiers.values:
        return None, 0
    tables, first = _over_same_distances([(value.table, value.first) for value in modifiers.values], dtype)
    total = tables[0]
    for table in tables[1:]:
        total = total + table
    return plain(total, dtype), first


def vectors_over_same_distances(
    vectors: tuple[Tensor | None, int], values: tuple[Tensor | None, int]
) -> tuple[tuple[Tensor | None, int], tuple[Tensor | None, int]]:
    """Return the results of `combined_vectors` and `combined_values`, extended to the distances of both.

    Without the latter nothing changes. Without the former there are vectors without dims, whose products are 0.
    """
    (table, first), (value_table, value_first) = vectors, values
    if value_table is None:
        return vectors, values
    if table is None:
        table, first = value_table.new_empty(1, value_table.shape[1], 0), value_first
    tables, first = _over_same_distances([(table, first), (value_table, value_first)], value_table.dtype)
    table, value_table = (x.contiguous() for x in tables)
    return (table, first), (value_table, first)


def tensor_arguments(modifiers: AttentionModifiers, compute: torch.dtype, batch: int) -> dict[str, Any]:
    """Return the tensors of terms that are arguments of the kernels under the same names, as they are declared.

    If several terms have the same argument, it is their sum.
    """
    tensors: dict[str, Tensor] = {}
    for term in terms_for(modifiers, "arguments"):
        for name in TENSORS.keys() & term.tensors.keys():
            argument, x = TENSORS[name], getattr(term, name)
            x = (x if argument.learned else x.detach()).to(argument.dtype or compute)
            tensors[name] = tensors[name] + x if name in tensors else x
    return {name: plain(_for_whole_batch(name, x, batch), x.dtype) for name, x in tensors.items()}


def _for_whole_batch(name: str, x: Tensor, batch: int) -> Tensor:
    axis = TENSORS[name].axes[0]
    return x.expand(batch, *x.shape[1:]) if axis.name == "batch" and not axis.shared else x


def combined_table(terms: list[ToeplitzBias], dtype: torch.dtype) -> tuple[Tensor | None, int]:
    """Return the sum of the tables of all terms over the distances of all of them, and the first distance."""
    if not terms:
        return None, 0
    term = terms[0]
    if len(terms) == 1:
        return _cached(term, dtype, lambda: plain(term.table, dtype)), term.first
    tables, first = _over_same_distances([(term.table, term.first) for term in terms], dtype)
    heads = max(len(table) for table in tables)
    return sum((table.expand(heads, -1) for table in tables[1:]), tables[0].expand(heads, -1)).contiguous(), first
