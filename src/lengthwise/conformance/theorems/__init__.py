"""Published theorems on position encodings: their constructions are built and checked numerically.

`lengthwise check --theorems` prints the results. There is one file for each theorem, and the list is here.
"""

from collections.abc import Callable, Iterable

from lengthwise.config import ConfigError
from lengthwise.conformance.theorems import (
    fire_expresses,
    nope_absolute,
    nope_relative,
    rope_relative,
    shift_invariance,
)
from lengthwise.conformance.theorems.fire_expresses import as_fire
from lengthwise.conformance.theorems.results import Result, Theorem
from lengthwise.encodings import PositionEncoding

THEOREMS: tuple[Theorem, ...] = (
    fire_expresses.THEOREM,
    nope_absolute.THEOREM,
    nope_relative.THEOREM,
    rope_relative.THEOREM,
    shift_invariance.THEOREM,
)


def run(
    encodings: Iterable[type[PositionEncoding]] | None = None,
    on_start: Callable[[str, float, float], None] | None = None,
) -> list[Result]:
    """Check every theorem for the given encodings (default: all that it is about), and return the results.

    Raise `ConfigError` for an encoding that no theorem is about.
    """
    named = None if encodings is None else list(encodings)
    for make in named or ():
        if not any(theorem.select([make]) for theorem in THEOREMS):
            raise ConfigError(
                f"no theorem here is about {make.__name__}; leave it out, or run the conformance suite "
                f"(lengthwise check {make.__name__})"
            )
    results: list[Result] = []
    cases = [(theorem, make) for theorem in THEOREMS for make in theorem.select(named)]
    for number, (theorem, make) in enumerate(cases):
        if on_start:
            on_start(f"{theorem.name}: {make.__name__}", number, len(cases))
        results += theorem.prove(make)
    return results


__all__ = ["THEOREMS", "Result", "Theorem", "as_fire", "run"]
