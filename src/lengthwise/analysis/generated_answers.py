"""Statistics of answers beside their score: shares of correct steps, answers that cannot be read, and a task's further scores."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lengthwise.analysis.kinds import Kind, length_kind_of_score

if TYPE_CHECKING:
    from lengthwise.store import RunRow, ScoreRow

UNREADABLE = "unreadable"


@dataclass(frozen=True, kw_only=True)
class Unread:
    """A question and its generated answer, which could not be read or has unreadable steps."""

    length: int
    question: str
    generated: str


@dataclass(frozen=True, kw_only=True)
class GeneratedAnswersSeries:
    """An encoding's statistics by name, as means over its `seeds`.

    `within`: at trained lengths. `longer`, `shorter`: at longer and at shorter lengths. Each is empty without scores. `unread`:
    sample answers that could not be read, shortest lengths first. `broken`: sample answers with unreadable steps.
    """

    label: str
    within: Mapping[str, float]
    longer: Mapping[str, float]
    seeds: int
    unread: tuple[Unread, ...]
    broken: tuple[Unread, ...] = ()
    shorter: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class GeneratedAnswers:
    """Statistics of all encodings with generated answers or further scores.

    `names`: the names of the statistics in the task's order; the last is the share of unreadable answers if some were generated.
    """

    names: tuple[str, ...]
    series: tuple[GeneratedAnswersSeries, ...]


def generated_answers(rows: Mapping[str, Iterable[tuple["RunRow", "ScoreRow"]]]) -> GeneratedAnswers | None:
    """Return the stored statistics by encoding, or None if there are none."""
    with_statistics = {
        label: [(run, row) for run, row in some if "means" in _details(row)] for label, some in rows.items()
    }
    found = [_details(row) for some in with_statistics.values() for _, row in some]
    if not found:
        return None
    names = dict.fromkeys(name for details in found for name in [*details.get("order", []), *details["means"]])
    if any(UNREADABLE in details for details in found):
        names[UNREADABLE] = None
    series = tuple(_series(label, some) for label, some in with_statistics.items() if some)
    return GeneratedAnswers(names=tuple(names), series=series)


def _series(label: str, rows: Sequence[tuple["RunRow", "ScoreRow"]]) -> GeneratedAnswersSeries:
    by_kind: dict[Kind, dict[str, list[ScoreRow]]] = {"shorter": {}, "trained": {}, "longer": {}}
    for run, row in rows:
        by_kind[length_kind_of_score(run, row)].setdefault(run.key, []).append(row)
    unread, broken = (
        tuple(
            Unread(length=row.length, **answer)
            for _, row in sorted(rows, key=lambda found: found[1].length)
            for answer in _details(row).get(kind, [])
        )
        for kind in ("kept", "broken")
    )
    return GeneratedAnswersSeries(
        label=label,
        within=_means(by_kind["trained"].values()),
        longer=_means(by_kind["longer"].values()),
        shorter=_means(by_kind["shorter"].values()),
        seeds=len({run.key for run, _ in rows}),
        unread=unread,
        broken=broken,
    )


def _means(runs: Iterable[Sequence["ScoreRow"]]) -> dict[str, float]:
    """Return means over runs. Each run counts with the mean over its examples of all lengths."""
    of_runs: dict[str, list[float]] = {}
    for rows in runs:
        whole = sum(row.n for row in rows)
        sums: dict[str, list[float]] = {}
        for row in rows:
            details = _details(row)
            if UNREADABLE in details:
                sums.setdefault(UNREADABLE, []).append(float(details[UNREADABLE]))
            for name, mean in details["means"].items():
                sums.setdefault(name, []).append(mean * row.n)
        for name, values in sums.items():
            of_runs.setdefault(name, []).append(math.fsum(values) / whole)
    return {name: math.fsum(values) / len(values) for name, values in of_runs.items()}


def _details(row: "ScoreRow") -> dict[str, Any]:
    details = (row.facts or {}).get("details")
    return details if isinstance(details, dict) else {}
