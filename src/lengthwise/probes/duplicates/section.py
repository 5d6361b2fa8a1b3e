"""The texts of the section of duplicates."""

from lengthwise.probes.repeated_examples.section import KindTexts, Texts
from lengthwise.probes.repeated_examples.summary import RepeatedExamplesSummary


def texts(summary: RepeatedExamplesSummary) -> Texts:
    """Return the texts for one question."""
    return Texts(
        title="Repeated examples",
        explanation=(
            "The instruction is the first examples of a prompt, two for each dimension. Noise is copies of the last of them. The "
            f"target is the last of the {summary.points:,} examples that prompts are made of, half as many as dimensions."
        ),
        kinds={
            "noise": KindTexts(
                title="Noise before the target",
                below=(
                    f"number of copies of one example before the target, which starts after {summary.points:,} examples"
                ),
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
        },
    )
