"""Scores on prompts in which examples are repeated."""

from dataclasses import dataclass
from typing import Any, Self

from lengthwise.config import ConfigError
from lengthwise.measurements.base import Chart, Number, Numbers, option
from lengthwise.measurements.repeated_examples import (
    WHERE,
    Parts,
    Prompt,
    RepeatedExamples,
    RepeatedExamplesOptions,
    all_noise_prompt,
    curves,
    instruction_prompt,
    noise_prompt,
    target_prompt,
)


@dataclass(frozen=True, kw_only=True)
class DuplicatesOptions(RepeatedExamplesOptions):
    """Scores by the number of repeated examples, and with an instruction, noise and a target."""

    noise: tuple[int, ...] = option(
        "Numbers of noise examples (copies of one example) before the target: 5-20 or 5,10,20.",
        shown="5-20, or fewer in short prompts",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.noise or min(self.noise) < 1:
            raise ConfigError(f"noise must be counts of examples, each at least 1, got {list(self.noise)!r}")
        object.__setattr__(self, "noise", tuple(sorted(set(self.noise))))

    @classmethod
    def with_defaults(cls, train_length: int, **options: Any) -> Self:
        points = options.get("points") or train_length
        if options.get("noise") is None:
            options["noise"] = tuple(range(5, 21) if points > 20 else range(1, max(2, points)))
        return super().with_defaults(train_length, **options)


class Duplicates(RepeatedExamples):
    """Scores on prompts in which examples are repeated.

    The prompts consist of an instruction, noise (copies of one example) and a target, which repeats examples of the
    prompt. The table has the scores of the target after noise, and by where instruction and target stand, and of
    copies alone.

    Source: "How Do Position Encodings Affect Length Generalization?", which calls them duplicated examples.
    """

    name = "duplicates"
    Options = DuplicatesOptions
    charts = (
        Chart(
            kind="lines",
            title="Noise before the target",
            x="at",
            y="score",
            where={"kind": "noise", "example": None},
            across="number of noise examples before the target",
            about="The target always starts after {points:,} examples.",
        ),
        Chart(
            kind="lines",
            title="Instruction, noise, target",
            x="at",
            y="score",
            where={"kind": "target", "example": None},
            across="place of the target",
            about="The target begins after {points:,} examples, half-way, or at the end.",
        ),
        curves(
            "Repeated examples: score at each example",
            "All prompts are built from {points:,} examples of one function, whose inputs have d dimensions. The "
            "instruction consists of the first 2 d examples. The noise consists of copies of the last example of the "
            "instruction. The target consists of the last d / 2 (rounded up) of the {points:,} examples, which the "
            "prompt repeats. All scores are means over {n} prompts.",
        ),
    )
    tables = (
        Numbers(
            title="Scores by prompt",
            numbers=(
                Number(head="{kind} {at}", y="score", by=("kind", "at"), where={"example": None, "kind": "target"}),
                Number(head="copies of one example", y="score", where={"example": None, "kind": "all"}),
                Number(
                    head="{kind} {at}", y="score", by=("kind", "at"), where={"example": None, "kind": "instruction"}
                ),
                Number(head="{kind} {at}", y="score", by=("kind", "at"), where={"example": None, "kind": "noise"}),
            ),
        ),
    )

    def prompts(self, options: DuplicatesOptions, dims: int) -> list[Prompt]:
        parts = Parts(dims, options.points, options.length)
        return [
            *(noise_prompt(parts, count) for count in options.noise),
            all_noise_prompt(parts),
            *(instruction_prompt(parts, where) for where in WHERE),
            *(target_prompt(parts, where) for where in WHERE),
        ]
