"""Answers of every measurement about runs, with numbers made up for the page."""

import random
from collections.abc import Iterator
from typing import Any

from lengthwise.measurements import MEASUREMENTS, Table
from lengthwise.measurements.development import development_rows
from lengthwise.measurements.logit_parts import PARTS
from lengthwise.store.rows import AnswerRow, RunRow
from lengthwise.values import SCORES

IN_FILES = ("reach", "retention", "speed")  # measurements of models and programs
OF_RUNS = [name for name in MEASUREMENTS if name not in (SCORES, *IN_FILES)]
LAYERS, HEADS, BINS = 6, 2, 20
FACTS = {"versions": {"torch": "2.13.0+cpu"}, "device": "cpu (a fast one)"}
WHERE = ("begin", "middle", "end")


def answers_of(runs: list[RunRow], *names: str, quantity: str = "L") -> list[AnswerRow]:
    """Return the answers of these measurements; all of them if none is named."""
    chance = random.Random(3)
    references = {run.seed: run for run in runs if run.label == runs[0].label}
    found = []
    for run in runs:
        for name in names or OF_RUNS:
            for asked in _questions(name, run, references):
                rows = Table.from_rows(_rows(name, run, chance, quantity)).to_data()
                found.append(
                    AnswerRow(key=run.key, measurement=name, question=asked, rows=rows, facts=FACTS, created=1.0)
                )
    return found


def _questions(name: str, run: RunRow, references: dict[int, RunRow]) -> Iterator[dict[str, Any]]:
    if name == "attention-distance":
        is_reference = run.key == references[run.seed].key
        other = references[(run.seed + 1) % len(references) if is_reference else run.seed]
        for length in (20, 40):
            options = {"against": other.key, "length": length, "examples": 10, "seed": 0}
            yield options | {"variant": "jensen-shannon"}
    elif name in ("development", "training", "lengths"):
        yield {"field": "input"} if name == "lengths" else {}
    elif name in ("further-scores", "position-scores"):
        yield from run.questions
    else:
        yield MEASUREMENTS[name].Options.with_defaults(50, length=40 if name == "attended-distance" else None).to_data()


def _rows(name: str, run: RunRow, chance: random.Random, quantity: str) -> Any:
    def near(value: float) -> float:
        return round(value * (1 + 0.1 * chance.random()), 6)

    heads = [(layer, head) for layer in range(1, LAYERS + 1) for head in range(1, HEADS + 1)]
    if name == "attention-distance":
        return [
            {"layer": n, "distance": near(0.05 + 0.04 * n), "error": 0.01, "n": 10, "places": 400}
            for n in range(1, LAYERS + 1)
        ]
    if name == "attended-distance":
        cuts = sorted(chance.randrange(500) for _ in range(BINS - 1))
        shares = [(b - a) / 500 for a, b in zip([0, *cuts], [*cuts, 500], strict=True)]
        about = {"queries": 500, "n": 100}
        return [
            {"layer": layer, "head": head, "distance": n / BINS, "highest": y, "mass": y, **about}
            for layer, head in heads
            for n, y in enumerate(shares)
        ]
    if name == "learned-bias":
        rows = [{"layer": n, "head": m, "relative_distance": 0.4, "variation": 0.3} for n, m in heads]
        return rows + [
            {"layer": n, "head": m, "distance": d, "bias": -0.1 * m * d} for n, m in heads for d in range(65)
        ]
    if name == "logit-parts":
        values = zip(PARTS, (0.5, 0.375, 0.25, -0.125), (2.0, 1.0, 0.5, 0.25), strict=True)
        parts = [{"part": part, "share": share, "deviation": size} for part, share, size in values]
        parts.append({"part": "logit", "deviation": 3.0})
        return [{"layer": n, "head": m, "n": 10} | part for n, m in heads for part in parts]
    if name == "development":
        values = [[512.0 + step * (run.seed + 1)] for step in range(4)]
        threshold = {"name": quantity, "layers": [1], "shape": [], "entries": [], "values": values}
        entries = [[0.1 * step * n for n in range(HEADS * 3)] for step in range(4)]
        table = {
            "name": "bias of bucket",
            "layers": [1],
            "shape": [HEADS, 3],
            "entries": ["0", "1", "2"],
            "values": entries,
        }
        return development_rows({"steps": [0, 200, 400, 600], "quantities": [threshold, table]})
    if name == "training":
        return [
            {"step": step, "loss": loss, "learning_rate": 1e-3}
            for step, loss in ((200, 2.0), (400, 1.0 + run.seed), (600, near(0.5)))
        ]
    if name == "position-scores":
        ends = ((0, 0), (1, 1), (2, 3), (4, 7))
        return [{"first": first, "last": last, "mean": near(0.5), "n": 64 * (last - first + 1)} for first, last in ends]
    if name == "further-scores":
        shares = {"output": near(0.5), "unreadable": near(0.25)}
        sample = {"problem": "unreadable", "question": "a <b> c", "generated": "a & " * 20}
        return [*({"name": name, "mean": mean, "n": 64} for name, mean in shares.items()), sample]
    if name == "position-shift":
        about = {"score_error": 0.01, "difference_error": 0.001, "max_length": None, "n": 10}
        exact = run.label == "NoPE"
        return [
            {
                "shift": shift,
                "score": 0.9 - 0.1 * n,
                "difference": -0.1 * n,
                "logit_change": 0.0 if exact else 0.1 * n,
                "invariant": exact,
                **about,
            }
            for n, shift in enumerate((0, 1, 10, 100, 1000))
        ]
    if name == "recency":
        places = {"labels": 199, "inputs": 50}
        kinds = [("long", "labels", n) for n in range(1, LAYERS + 1)]
        kinds += [(kind, "inputs", LAYERS) for kind in ("trained", "long", "repeated")]
        return [
            {"prompts": kind, "on": on, "layer": n, "head": m, "place": place, "weight": near(0.01), "n": 64}
            for kind, on, n in kinds
            for m in range(1, HEADS + 1)
            for place in range(places[on])
        ]
    if name == "induction":
        rows = [
            {"layer": n, "head": m, "induction": near(0.1 if m == 1 else 0.55), "nearest": near(0.02)} for n, m in heads
        ]
        about = {"uniform_induction": 0.0321, "uniform_nearest": 0.0083, "start": 41, "n": 64}
        return [row | about for row in [*rows, {"prefix_score": near(0.16)}]]
    if name == "lengths":
        counts = {"training": {n: 1000 * n for n in range(1, 31)}, "test": {n: n for n in range(1, 101)}}
        return [{"split": s, "length": n, "count": c} for s, of_split in counts.items() for n, c in of_split.items()]
    if name == "duplicates":
        prompts: list[tuple[str, Any, int, int]] = [("noise", n, 50, 58) for n in range(5, 21)]
        prompts += [("all", "all", 399, 400)]
        prompts += [("instruction", at, s, s + 32) for at, s in zip(WHERE, (0, 184, 368), strict=True)]
        prompts += [("target", at, s, s + 8) for at, s in zip(WHERE, (50, 212, 392), strict=True)]
    else:
        prompts = [("answers", at, 392, 400) for at in WHERE]
        prompts += [("serial", at, 399, 400) for at in (0, 199, 398, "none")]
    rows = []
    for kind, at, start, stop in prompts:
        groups = [near(1.5) for _ in range(8)]
        score = {"score": sum(groups) / 8, "groups": groups, "start": start, "stop": stop}
        rows.append({"kind": kind, "at": at, **score, "n": 64})
        if kind != "serial":
            rows += [{"kind": kind, "at": at, "example": n, "score": near(1.5)} for n in range(1, stop + 1)]
    return rows
