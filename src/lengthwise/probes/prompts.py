"""Prompts made of repeated examples: which example stands at which place, as plain indices.

All are made of the first `points` examples of a test prompt, each an x with its y. With d dims:

    instruction I   the first 2 d
    noise z         the last of them
    answers A       the last d of the points
    target          the last ⌈d / 2⌉ of the points, so it is a part of A

A repeated example is the same pair, so its label is the function's (with the same noise, where a task has noisy labels). With 16
dims and 50 points the target begins at place 50, 212 or 392 of 400, counted from 0.

Source: the evaluation code of "How Do Position Encodings Affect Length Generalization?", which calls them duplicated examples.
Differs: where noise is cut in two halves and its count is odd, the second half has one more, so that every prompt has its length.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lengthwise.config import ConfigError

WHERE = ("begin", "middle", "end")


@dataclass(frozen=True)
class Made:
    """A prompt. `examples[n]` is the example at place n, from 0. The places from `start` up to `stop` are those that the prompt is
    about: the target, or the instruction."""

    kind: str
    at: int | str
    examples: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class Parts:
    """The parts of prompts of `length` examples, made of `points` examples with `dims` coordinates."""

    dims: int
    points: int
    length: int

    def __post_init__(self) -> None:
        if self.points < 2 * self.dims:
            raise ConfigError(
                f"the instruction is the first {2 * self.dims} examples (2 for each of {self.dims} dims) of {self.points}, which "
                f"has too few; take at least {2 * self.dims} (--points)"
            )

    @property
    def instruction(self) -> tuple[int, ...]:
        return tuple(range(2 * self.dims))

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(self.points - self.dims, self.points))

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(range(self.points - -(-self.dims // 2), self.points))

    def noise(self, count: int) -> tuple[int, ...]:
        return (2 * self.dims - 1,) * count

    def left(self, *parts: tuple[int, ...]) -> int:
        """How many examples of noise fill a prompt up that has these parts."""
        there = sum(map(len, parts))
        if there > self.length:
            raise ConfigError(
                f"a prompt of {self.length} examples is shorter than what it is made of: {there} with {self.dims} dims; ask for a "
                f"length of at least {there}"
            )
        return self.length - there


def noised(parts: Parts, count: int) -> Made:
    """The points without their last `count`, as many of noise, and the target: it begins where training ends."""
    if not 0 < count < parts.points:
        raise ConfigError(
            f"{count} examples of noise cannot replace the last of {parts.points}; take 1 to {parts.points - 1}"
        )
    examples = (*range(parts.points - count), *parts.noise(count), *parts.target)
    return Made("noise", count, examples, parts.points, len(examples))


def all_noise(parts: Parts) -> Made:
    """Noise only."""
    return Made("all", "all", parts.noise(parts.length), parts.length - 1, parts.length)


def instructed(parts: Parts, where: str) -> Made:
    """The instruction at the beginning, in the middle or at the end of noise."""
    before, after = _around(parts.left(parts.instruction), where)
    examples = (*parts.noise(before), *parts.instruction, *parts.noise(after))
    return Made("instruction", where, examples, before, before + len(parts.instruction))


def targeted(parts: Parts, where: str) -> Made:
    """Instruction, noise, target: the target begins at place `points`, half-way or at the end of the length, and is the end."""
    left = parts.left(parts.instruction, parts.target)
    count = {"begin": parts.points - len(parts.instruction), "middle": left // 2, "end": left}[where]
    if count > left:
        raise ConfigError(
            f"a prompt of {parts.length} examples is too short for a target after the first {parts.points}; ask for a length of at "
            f"least {parts.points + len(parts.target)}"
        )
    examples = (*parts.instruction, *parts.noise(count), *parts.target)
    return Made("target", where, examples, len(examples) - len(parts.target), len(examples))


def answered(parts: Parts, where: str) -> Made:
    """Instruction, the answers before, amid or after noise, and the target, each of which is one of the answers."""
    before, after = _around(parts.left(parts.instruction, parts.answers, parts.target), where)
    examples = (*parts.instruction, *parts.noise(before), *parts.answers, *parts.noise(after), *parts.target)
    return Made("answers", where, examples, parts.length - len(parts.target), parts.length)


def duplicates(parts: Parts, counts: Iterable[int]) -> Iterator[Made]:
    """All prompts of duplicated examples; `counts`: of noise before the target."""
    yield from (noised(parts, count) for count in counts)
    yield all_noise(parts)
    yield from (instructed(parts, where) for where in WHERE)
    yield from (targeted(parts, where) for where in WHERE)


def serial(length: int, position: int | None) -> Made:
    """The last example, 1, stands once more at `position` (None: nowhere) among copies of another one, 0."""
    examples = [0] * length
    examples[-1] = 1
    if position is not None:
        if not 0 <= position < length - 1:
            raise ConfigError(f"a duplicate at {position} cannot be in a prompt of {length}; take 0 to {length - 2}")
        examples[position] = 1
    return Made("serial", "none" if position is None else position, tuple(examples), length - 1, length)


def positions(length: int, count: int) -> list[int]:
    """`count` positions for a duplicate, the first and the last that there are and evenly between; fewer in short prompts."""
    if length < 2 or count < 2:
        raise ConfigError(
            f"{count} positions in a prompt of {length} are no curve; take at least 2 positions and a length of 3"
        )
    return sorted({round(n * (length - 2) / (count - 1)) for n in range(count)})


def repeated(points: int, repeats: int) -> Made:
    """The points over and over."""
    return Made("repeated", repeats, tuple(range(points)) * repeats, points, points * repeats)


def _around(count: int, where: str) -> tuple[int, int]:
    """Noise before and after something."""
    before = {"begin": 0, "middle": count // 2, "end": count}[where]
    return before, count - before
