"""Measurements with invented times, for tests."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lengthwise.config import choose
from lengthwise.encodings import ENCODINGS
from lengthwise.measurements import MEASUREMENTS
from lengthwise.measurements.answer_file import FileAnswer, recording
from lengthwise.measurements.speed import KINDS, SpeedOptions
from lengthwise.measurements.table import Row

SUBJECT: dict[str, Any] = {
    "device": "cpu (Imaginary 1)",
    "cores": 2,
    "platform": "Linux x86_64",
    "python": "3.12.1",
    "versions": {"lengthwise": "0.1.0", "torch": "2.13.0"},
    "matmul_library": "oneDNN",
    "clock": "CPU time",
}
Noise = Callable[[random.Random], float]


def little(chance: random.Random) -> float:
    return chance.lognormvariate(0.0, 0.02)


def heavy(chance: random.Random) -> float:
    """Return a factor with a heavy tail: a tenth of the measurements is disturbed by a factor of up to 3."""
    return chance.lognormvariate(0.0, 0.03) * (chance.uniform(1, 3) if chance.random() < 0.1 else 1)


def results(
    seed: int,
    *,
    names: Sequence[str] = ("RoPE", "ALiBi", "FIRE"),
    lengths: Sequence[int] = (256, 512),
    rounds: int = 12,
    factor: dict[str, float] | None = None,
    noise: Noise = little,
    question: dict[str, Any] | None = None,
    subject: dict[str, Any] | None = None,
) -> FileAnswer:
    """Return a measurement with encodings that take `factor` times as long as NoPE, in rounds with slow phases."""
    chance, rows = random.Random(seed), list[Row]()
    for length in lengths:
        phase = [chance.uniform(0.5, 2.0) for _ in range(rounds)]
        for name in ("NoPE", *names):
            at = {"encoding": name, "length": length}
            rows.append({**at, "memory": length + 0.25})
            rows.append({**at, "batch": 4, "settings": choose(ENCODINGS.find(name)).to_data(), "backends": ["fused"]})
            own = (factor or {}).get(name, 1.0)
            times = [[length * slow * own * noise(chance) for slow in phase] for _ in KINDS]
            for n, seconds in enumerate(zip(*times, strict=True)):
                rows.append({**at, "round": n, **dict(zip(KINDS, seconds, strict=True))})
    options = SpeedOptions(encodings=tuple(names), lengths=tuple(lengths), rounds=rounds, **(question or {}))
    return FileAnswer(
        measurement=MEASUREMENTS["speed"],
        subject=SUBJECT | (subject or {}),
        question=options.to_data(),
        origin={"date": "2026-01-02"},
        rows=rows,
    )


def refused(answer: FileAnswer, encoding: str, *lengths: int, reason: str = "too long") -> FileAnswer:
    """Return a measurement in which an encoding has no times at some lengths."""
    of = [row for row in answer.rows if not (row["encoding"] == encoding and row["length"] in lengths)]
    return replace(answer, rows=of + [{"encoding": encoding, "length": n, "reason": reason} for n in lengths])


def renamed(answer: FileAnswer, encoding: str, name: str) -> FileAnswer:
    """Return a measurement in which an encoding has another name."""
    return replace(
        answer, rows=[{**row, "encoding": name} if row["encoding"] == encoding else row for row in answer.rows]
    )


def with_settings(answer: FileAnswer, encoding: str, **settings: Any) -> FileAnswer:
    """Return a measurement in which an encoding has other settings."""
    rows = [
        {**row, "settings": {**row["settings"], **settings}}
        if row["encoding"] == encoding and "settings" in row
        else row
        for row in answer.rows
    ]
    return replace(answer, rows=rows)


def written(path: Path, answer: FileAnswer) -> Path:
    with recording(path, answer) as record:
        record.add(answer.rows)
    return path
