"""The texts of the section of duplicates."""

from lengthwise.probes.repeated_examples.section import KindTexts, Texts
from lengthwise.probes.repeated_examples.summary import RepeatedExamplesSummary


def texts(summary: RepeatedExamplesSummary) -> Texts:
    """Return the texts for one question."""
    return Texts(
        title="Repeated examples",
        explanation=(
            f"All prompts are built from {summary.points:,} examples of one function, whose inputs have d dimensions. The "
            "instruction consists of the first 2 d examples. The noise consists of copies of the last example of the "
            f"instruction. The target consists of the last d / 2 (rounded up) of the {summary.points:,} examples, which the "
            "prompt repeats."
        ),
        kinds={
            "noise": KindTexts(
                title="Noise before the target",
                below=(
                    f"number of noise examples before the target, which always starts after {summary.points:,} examples"
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
