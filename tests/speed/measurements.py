"""Measurements with invented times, for tests."""

import random
from collections.abc import Callable, Sequence
from typing import Any

from lengthwise.config import choose
from lengthwise.encodings import ENCODINGS
from lengthwise.speed.plan import Question
from lengthwise.speed.results import Cell, Origin, Results

ORIGIN: dict[str, Any] = {
    "command": "lengthwise bench",
    "date": "2026-01-02",
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
    origin: dict[str, Any] | None = None,
) -> Results:
    """Return a measurement in which an encoding takes `factor` times as long as NoPE. Rounds share slow phases of the machine."""
    chance = random.Random(seed)
    cells = []
    for length in lengths:
        phase = [chance.uniform(0.5, 2.0) for _ in range(rounds)]
        for name in ("NoPE", *names):
            by_kind = [
                tuple(1e-3 * length * slow * (factor or {}).get(name, 1.0) * noise(chance) for slow in phase)
                for _ in range(2)
            ]
            cells.append(
                Cell(
                    encoding=name,
                    settings=choose(ENCODINGS.find(name)).to_data(),
                    length=length,
                    batch=4,
                    backends=("fused",),
                    forward=by_kind[0],
                    training=by_kind[1],
                    memory_bytes=2**20 * length,
                )
            )
    asked = Question(encodings=tuple(names), lengths=tuple(lengths), rounds=rounds, **(question or {}))
    return Results(question=asked, origin=Origin(**{**ORIGIN, **(origin or {})}), cells=tuple(cells))
