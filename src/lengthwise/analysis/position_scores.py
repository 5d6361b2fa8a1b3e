"""Scores by position: the mean over targets with so many tokens before them, for tasks that are scored per target."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.analysis.intervals import Interval, of_scores

if TYPE_CHECKING:
    from lengthwise.store import ScoreRow

Range = tuple[int, int]  # the first and the last number of tokens before a target


@dataclass(frozen=True, kw_only=True)
class PositionSeries:
    """An encoding's scores in each range, as means over its `seeds`; None where it has none."""

    label: str
    seeds: int
    scores: tuple[Interval | None, ...]


@dataclass(frozen=True, kw_only=True)
class PositionScores:
    """The scores of one length by position. `targets`: how many targets a score of each range is a mean of, for one seed."""

    length: int
    ranges: tuple[Range, ...]
    targets: tuple[int, ...]
    series: tuple[PositionSeries, ...]


def position_scores(
    rows: Mapping[str, Mapping[int, Iterable["ScoreRow"]]], limits: tuple[float, float] | None
) -> PositionScores | None:
    """Return the stored scores by position at the longest length that has some. `rows`: by encoding and length."""
    found = {
        label: {length: parts for length, some in by_length.items() if (parts := _parts(some))}
        for label, by_length in rows.items()
    }
    lengths = {length for by_length in found.values() for length in by_length}
    if not lengths:
        return None
    longest = max(lengths)
    targets: dict[Range, int] = {}
    for by_length in found.values():
        for part in by_length.get(longest, ()):
            targets |= {key: row["n"] for key, row in part.items()}
    ranges = tuple(sorted(targets))
    series = tuple(
        PositionSeries(
            label=label,
            seeds=len(by_length[longest]),
            scores=tuple(
                _over_seeds([p[key]["mean"] for p in by_length[longest] if key in p], limits) for key in ranges
            ),
        )
        for label, by_length in found.items()
        if longest in by_length
    )
    return PositionScores(length=longest, ranges=ranges, targets=tuple(targets[key] for key in ranges), series=series)


def _parts(rows: Iterable["ScoreRow"]) -> list[dict[Range, dict[str, Any]]]:
    """Return for each row its stored ranges, without rows that have none."""
    found = []
    for row in rows:
        details = (row.facts or {}).get("details") or {}
        if stored := details.get("by_position"):
            found.append({(int(part["first"]), int(part["last"])): part for part in stored})
    return found


def _over_seeds(means: list[float], limits: tuple[float, float] | None) -> Interval | None:
    return of_scores(means, [()] * len(means), math.nan, limits) if means else None
