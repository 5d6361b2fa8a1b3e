"""Scores on prompts in which examples are repeated."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from lengthwise.config import ConfigError
from lengthwise.probes.base import Column, option
from lengthwise.probes.repeated_examples import KindTexts, RepeatedExamples, RepeatedExamplesQuestion

if TYPE_CHECKING:
    from lengthwise.probes.repeated_examples.prompts import Prompt


@dataclass(frozen=True, kw_only=True)
class DuplicatesQuestion(RepeatedExamplesQuestion):
    """Scores by the number of repeated examples, and with an instruction, noise and a target."""

    probe: ClassVar[str] = "duplicates"
    noise: tuple[int, ...] = option(
        "Numbers of noise examples (copies of one example) before the target: 5-20 or 5,10,20.",
        shown="5-20, or fewer in short prompts",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.noise or any(type(n) is not int or n < 1 for n in self.noise):
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

    The prompts consist of an instruction, noise (copies of one example) and a target, which repeats examples of the prompt. The
    table has the scores of the target after the least and the most noise, and by where the target starts, and of copies alone.

    Source: "How Do Position Encodings Affect Length Generalization?", which calls them duplicated examples.
    """

    question = DuplicatesQuestion
    columns = tuple(map(Column, ("least noise", "most noise", "target: begin", "middle", "end", "all the same")))
    shown = (("noise", 0), ("noise", -1), *(("target", where) for where in ("begin", "middle", "end")), ("all", "all"))
    title = "Repeated examples"
    explanation = (
        "All prompts are built from {points:,} examples of one function, whose inputs have d dimensions. The instruction consists "
        "of the first 2 d examples. The noise consists of copies of the last example of the instruction. The target consists of "
        "the last d / 2 (rounded up) of the {points:,} examples, which the prompt repeats."
    )
    kinds: ClassVar[Mapping[str, KindTexts]] = {
        "noise": KindTexts(
            title="Noise before the target",
            below="number of noise examples before the target, which always starts after {points:,} examples",
            column="noise {at}",
        ),
        "all": KindTexts(curve="copies of one example", column="copies of one example"),
        "instruction": KindTexts(curve="instruction {where}", column="instruction {at}"),
        "target": KindTexts(
            title="Instruction, noise, target",
            below="number of the example at which the target starts",
            mark="{start}",
            curve="target from example {start} on",
            column="target from example {start}",
        ),
    }

    def prompts(self, question: DuplicatesQuestion, dims: int) -> "list[Prompt]":
        from lengthwise.probes.repeated_examples import prompts

        parts = prompts.Parts(dims, question.points, question.length)
        return [
            *(prompts.noise_prompt(parts, count) for count in question.noise),
            prompts.all_noise_prompt(parts),
            *(prompts.instruction_prompt(parts, where) for where in prompts.WHERE),
            *(prompts.target_prompt(parts, where) for where in prompts.WHERE),
        ]
