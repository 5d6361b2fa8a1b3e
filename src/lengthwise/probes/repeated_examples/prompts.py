"""Prompts with repeated examples, as indices of examples.

Each prompt consists of the first `points` examples of a test prompt, each an x with its y. With d dimensions, its parts are:

    instruction I   the first 2 d examples
    noise z         the last example of I, repeated
    answers A       the last d of the points
    target          the last ⌈d / 2⌉ of the points, so it is a part of A

A repeated example is the same pair, so it has the same label (with the same noise, for tasks with noisy labels). With 16 dims and
50 points, the target begins at index 50, 212 or 392 of 400, counted from 0.

Source: the evaluation code of "How Do Position Encodings Affect Length Generalization?", which calls them duplicated examples.
Differs: if an odd number of noise examples is split into two halves, the second half has one more, so that every prompt has the
full length.
"""

from dataclasses import dataclass

from lengthwise.config import ConfigError

WHERE = ("begin", "middle", "end")


@dataclass(frozen=True)
class Prompt:
    """A prompt. `examples[n]` is the n-th example, from 0. The examples from `start` up to `stop` are scored: the target, or the
    instruction. `kind` and `at` name the prompt in results."""

    kind: str
    at: int | str
    examples: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class Parts:
    """The parts of prompts with `length` examples, taken from `points` examples with `dims` coordinates."""

    dims: int
    points: int
    length: int

    def __post_init__(self) -> None:
        if self.points < 2 * self.dims:
            raise ConfigError(
                f"points must be at least {2 * self.dims} (the instruction has 2 examples for each of {self.dims} dims), got "
                f"{self.points}; set --points"
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

    def remaining(self, *parts: tuple[int, ...]) -> int:
        """Return the number of noise examples that fill up a prompt with these parts."""
        size = sum(map(len, parts))
        if size > self.length:
            raise ConfigError(
                f"the prompt's length must be at least {size} with {self.dims} dims, got {self.length}; set --lengths"
            )
        return self.length - size


def noise_prompt(parts: Parts, count: int) -> Prompt:
    """Return the points with their last `count` replaced by noise, and then the target, which begins at index `points`."""
    if not 0 < count < parts.points:
        raise ConfigError(f"noise must be from 1 to {parts.points - 1} of the {parts.points} examples, got {count}")
    examples = (*range(parts.points - count), *parts.noise(count), *parts.target)
    return Prompt("noise", count, examples, parts.points, len(examples))


def all_noise_prompt(parts: Parts) -> Prompt:
    """Return only noise."""
    return Prompt("all", "all", parts.noise(parts.length), parts.length - 1, parts.length)


def instruction_prompt(parts: Parts, where: str) -> Prompt:
    """Return noise with the instruction at its beginning, in its middle or at its end."""
    before, after = _split_noise(parts.remaining(parts.instruction), where)
    examples = (*parts.noise(before), *parts.instruction, *parts.noise(after))
    return Prompt("instruction", where, examples, before, before + len(parts.instruction))


def target_prompt(parts: Parts, where: str) -> Prompt:
    """Return instruction, noise and target. The target begins at index `points`, half-way or at the end of the length."""
    remaining = parts.remaining(parts.instruction, parts.target)
    count = {"begin": parts.points - len(parts.instruction), "middle": remaining // 2, "end": remaining}[where]
    if count > remaining:
        raise ConfigError(
            f"the prompt's length must be at least {parts.points + len(parts.target)} for a target after the first {parts.points} "
            f"examples, got {parts.length}; set --lengths"
        )
    examples = (*parts.instruction, *parts.noise(count), *parts.target)
    return Prompt("target", where, examples, len(examples) - len(parts.target), len(examples))


def answers_prompt(parts: Parts, where: str) -> Prompt:
    """Return the instruction, the answers before, amid or after noise, and the target, which repeats some of the answers."""
    before, after = _split_noise(parts.remaining(parts.instruction, parts.answers, parts.target), where)
    examples = (*parts.instruction, *parts.noise(before), *parts.answers, *parts.noise(after), *parts.target)
    return Prompt("answers", where, examples, parts.length - len(parts.target), parts.length)


def duplicate_prompt(length: int, position: int | None) -> Prompt:
    """Return copies of example 0 and, at the end, example 1, which also occurs at `position` (None: nowhere else)."""
    examples = [0] * length
    examples[-1] = 1
    if position is not None:
        if not 0 <= position < length - 1:
            raise ConfigError(f"the position must be from 0 to {length - 2} in a prompt of {length}, got {position}")
        examples[position] = 1
    return Prompt("serial", "none" if position is None else position, tuple(examples), length - 1, length)


def positions(length: int, count: int) -> list[int]:
    """Return `count` evenly spaced positions for a duplicate, including the first and the last; fewer in short prompts."""
    if length < 2 or count < 2:
        raise ConfigError(
            f"positions must be at least 2 and the length at least 3, got {count} positions in a prompt of {length}"
        )
    return sorted({round(n * (length - 2) / (count - 1)) for n in range(count)})


def _split_noise(count: int, where: str) -> tuple[int, int]:
    """Return the numbers of noise examples before and after another part."""
    before = {"begin": 0, "middle": count // 2, "end": count}[where]
    return before, count - before
