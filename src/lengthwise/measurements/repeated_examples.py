"""Scores on prompts with repeated examples: what `duplicates` and `lost-in-the-middle` share.

Each prompt consists of the first `points` examples of a test prompt, each an x with its y. With d dimensions, its
parts are:

    instruction I   the first 2 d examples
    noise z         the last example of I, repeated
    answers A       the last d of the points
    target          the last ⌈d / 2⌉ of the points, so it is a part of A

A repeated example is the same pair, so it has the same label (with the same noise, for tasks with noisy labels).
With 16 dims and 50 points, the target begins at index 50, 212 or 392 of 400, counted from 0.

Source: the evaluation code of "How Do Position Encodings Affect Length Generalization?", which calls them duplicated
examples. Differs: if an odd number of noise examples is split into two halves, the second half has one more, so that
every prompt has the full length.
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.config import ConfigError
from lengthwise.measurements import base
from lengthwise.measurements.base import Chart, ExampleOptions, key, note, option, value
from lengthwise.measurements.in_context import POINTS, InContextProbe
from lengthwise.measurements.table import Row

if TYPE_CHECKING:
    from torch import Tensor

    from lengthwise.measurements.inside.trained import TrainedRun

WHERE = ("begin", "middle", "end")
DIGITS = 6  # of each stored number
TOKENS = 16_384  # per forward pass; more than for attention, because only scores are needed
GROUPS = 40  # of prompts; their means are stored for intervals over seeds and prompts


@dataclass(frozen=True, kw_only=True)
class RepeatedExamplesOptions(ExampleOptions):
    """Scores on prompts of `length` examples that are taken from `points` examples."""

    length: int = option(base.LENGTH, times_training=8, minimum=2)
    points: int = option(POINTS, times_training=1)


def curves(title: str, about: str) -> Chart:
    """Return the charts of the scores at each example, one for each prompt."""
    return Chart(
        kind="curves",
        title=title,
        x="example",
        y="score",
        facet=("kind", "at"),
        where={"kind": SHOWN_KINDS},
        shaded=("start", "stop"),
        about=f"{about} Shaded: the examples whose score is shown above.",
    )


SHOWN_KINDS = ("all", "instruction", "target", "answers")  # of prompts whose scores at each example are shown


class RepeatedExamples(InContextProbe):
    """A probe of scores on prompts. A probe defines the prompts, its charts and its tables.

    A prompt has a row with the score of its relevant examples, and one for each of its examples.
    """

    needs_attention = False
    columns = (
        key("kind", "kind of the prompt"),
        key("at", "what differs between the prompts of a kind"),
        key("example", "example of the prompt, from 1"),
        value("score", bounds="metric", groups="groups"),
        note("groups", "means over equal groups of prompts"),
        note("start", "first of the relevant examples, from 0"),
        note("stop", "the one after the last of them"),
        note("n", "number of prompts"),
    )

    @abstractmethod
    def prompts(self, options: Any, dims: int) -> "list[Prompt]":
        """Return the prompts of a task with `dims` dimensions. Raise `ConfigError` if one of them cannot be built."""

    def prompt_lengths(self, options: Any, dims: int) -> list[int]:
        return [options.points, *(len(prompt.examples) for prompt in self.prompts(options, dims))]

    def measure(self, trained: "TrainedRun", options: Any, progress: base.OnProgress) -> Iterator[Row]:
        """Yield the scores of each prompt, see `prompt_rows`.

        The duplicate of a prompt with one duplicate (`serial`) is the last of the points, among copies of the second to
        last.
        """
        import torch

        from lengthwise.measurements.inside.prompts import examples_of_prompts, function_task, prompt_batches

        task = function_task(trained)
        prompts = self.prompts(options, task.dims)
        xs, ys = examples_of_prompts(trained, options, options.points)
        for prompt in prompts:
            examples = torch.tensor(prompt.examples) + (options.points - 2 if prompt.kind == "serial" else 0)
            values = []
            for batch, positions in prompt_batches(trained, options, xs[:, examples], ys[:, examples], TOKENS):
                inputs = batch.inputs
                logits = trained.model(inputs) if positions is None else trained.model(inputs, positions=positions)
                values.append(task.curve(logits, batch).cpu())
                progress(len(batch) / len(prompts) / options.examples)
            yield from prompt_rows(prompt, torch.cat(values).double())


def prompt_rows(prompt: "Prompt", values: "Tensor") -> Iterator[Row]:
    """Yield the row of one prompt, and those of its examples unless it has one duplicate.

    `values` [prompt, example]: the scores of all test prompts.
    """
    from lengthwise.measurements.inside.trained import grid_rows, number

    scores, about = values[:, prompt.start : prompt.stop].mean(1), {"kind": prompt.kind, "at": prompt.at}
    yield about | {
        "score": number(float(scores.mean()), DIGITS),
        "groups": [number(float(group.mean()), DIGITS) for group in scores.tensor_split(min(GROUPS, len(scores)))],
        "start": prompt.start,
        "stop": prompt.stop,
        "n": len(values),
    }
    if prompt.kind != "serial":
        for row in grid_rows({"example": values.shape[1]}, DIGITS, score=values.mean(0)):
            yield about | row


# ---- prompts ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prompt:
    """A prompt. `examples[n]` is the n-th example, from 0. The examples from `start` up to `stop` are scored: the
    target, or the instruction. `kind` and `at` name the prompt in results."""

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
                f"points must be at least {2 * self.dims} (the instruction has 2 examples for each of {self.dims} "
                f"dims), got {self.points}; set --points"
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
    """Return the points with their last `count` replaced by noise, then the target, which begins at index `points`."""
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
    """Return instruction, noise and target, which begins at index `points`, half-way or at the end."""
    remaining = parts.remaining(parts.instruction, parts.target)
    count = {"begin": parts.points - len(parts.instruction), "middle": remaining // 2, "end": remaining}[where]
    if count > remaining:
        raise ConfigError(
            f"the prompt's length must be at least {parts.points + len(parts.target)} for a target after the first "
            f"{parts.points} examples, got {parts.length}; set --lengths"
        )
    examples = (*parts.instruction, *parts.noise(count), *parts.target)
    return Prompt("target", where, examples, len(examples) - len(parts.target), len(examples))


def answers_prompt(parts: Parts, where: str) -> Prompt:
    """Return the instruction, the answers before, amid or after noise, and the target, a part of the answers."""
    before, after = _split_noise(parts.remaining(parts.instruction, parts.answers, parts.target), where)
    examples = (*parts.instruction, *parts.noise(before), *parts.answers, *parts.noise(after), *parts.target)
    return Prompt("answers", where, examples, parts.length - len(parts.target), parts.length)


def duplicate_prompt(length: int, position: int | None) -> Prompt:
    """Return copies of example 0 and, at the end, example 1, which also occurs at `position` (None: nowhere else)."""
    examples = [0] * length
    examples[-1] = 1
    if position is not None:
        examples[position] = 1
    return Prompt("serial", "none" if position is None else position, tuple(examples), length - 1, length)


def positions(length: int, count: int) -> list[int]:
    """Return `count` evenly spaced positions of a duplicate, with the first and the last; fewer in short prompts."""
    return sorted({round(n * (length - 2) / (count - 1)) for n in range(count)})


def _split_noise(count: int, where: str) -> tuple[int, int]:
    """Return the numbers of noise examples before and after another part."""
    before = {"begin": 0, "middle": count // 2, "end": count}[where]
    return before, count - before
