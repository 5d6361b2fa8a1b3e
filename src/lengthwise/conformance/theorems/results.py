"""A theorem that can be checked, and its results: the difference of both sides, and the bound on its rounding error."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from lengthwise.encodings import PositionEncoding

EPS = 2.0**-52  # float64: the distance from 1 to the next number


@dataclass(frozen=True)
class Result:
    """One comparison: the largest absolute `difference`, and `allowed`, the bound on float64's rounding error."""

    theorem: str
    encoding: str
    compared: str
    difference: float
    allowed: float

    @classmethod
    def of(
        cls, theorem: "Theorem", make: type[PositionEncoding], compared: str, pairs: Sequence[tuple[float, float]]
    ) -> "Result":
        """Return a result for one of several (difference, allowed): one that fails if any does, else the largest."""
        failed = [pair for pair in pairs if not pair[0] <= pair[1]]
        return cls(theorem.name, make.__name__, compared, *max(failed or pairs))

    @property
    def ok(self) -> bool:
        return self.difference <= self.allowed  # False for NaN


@dataclass(frozen=True)
class Theorem:
    """A theorem. `about()`: the encodings that it is checked for. Naming one of `selects_all` selects all of them."""

    name: str
    statement: str
    source: str
    about: Callable[[], Iterable[type[PositionEncoding]]]
    prove: Callable[[type[PositionEncoding]], Iterable[Result]] = field(repr=False)
    selects_all: tuple[type[PositionEncoding], ...] = ()

    def select(self, named: Iterable[type[PositionEncoding]] | None) -> list[type[PositionEncoding]]:
        """Return those of its encodings that are named; all of them if `named` is None."""
        names = set(self.about() if named is None else named)
        return [make for make in self.about() if make in names or names & set(self.selects_all)]
