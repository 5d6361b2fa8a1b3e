"""How long a task's examples are, as a picture that HTML alone draws: training beside test."""

from typing import Any

from lengthwise.analysis import ExampleLengths, Histogram, TaskFindings

BINS = 24  # narrow enough to stand beside each other on a phone
WHAT = {"input": "words of a question", "target": "words of an answer"}


def examples(task: TaskFindings) -> list[dict[str, Any]]:
    """What the template needs for one task: a picture for each field that was counted."""
    return [_picture(found, task) for found in task.examples]


def _picture(found: ExampleLengths, task: TaskFindings) -> dict[str, Any]:
    bins = found.bins(BINS)
    parts = {"train": found.train, "test": found.test}
    shares = [
        [count / part.total for count, part in zip(counts, parts.values(), strict=True)] for _, _, *counts in bins
    ]
    highest = max(max(pair) for pair in shares)
    return {
        "what": WHAT.get(found.field, task.unit),
        "origin": "" if found.drawn is None else found.origin,
        "top": f"{highest:.0%}" if highest >= 0.1 else f"{highest:.1%}",
        "bars": [
            {
                "first": first,
                "from": f"{first:,}",
                "range": f"{first:,}" if first == last else f"{first:,}–{last:,}",
                "heights": [round(100 * share / highest, 2) for share in pair],
                "counts": counts,
            }
            for (first, last, *counts), pair in zip(bins, shares, strict=True)
        ],
        "words": {name: _words(part) for name, part in parts.items()},
    }


def _words(part: Histogram) -> str:
    between = f"{part.shortest:,}" if part.shortest == part.longest else f"{part.shortest:,} to {part.longest:,}"
    return f"{part.total:,} of {between}, mean {part.mean:.1f}"
