"""The texts of the section of lost-in-the-middle."""

from lengthwise.probes.repeated_examples.section import KindTexts, Texts
from lengthwise.probes.repeated_examples.summary import RepeatedExamplesSummary


def texts(summary: RepeatedExamplesSummary) -> Texts:
    """Return the texts for one question."""
    return Texts(
        title="Lost in the middle",
        explanation=(
            f"The answers are the last of the {summary.points:,} examples that prompts are made of, one for each dimension. The "
            f"target repeats the second half of them at the end of {summary.length:,} examples, after an instruction and copies of "
            "one of its examples. The duplicate stands among copies of another example, and no other example reveals the function."
        ),
        kinds={
            "answers": KindTexts(
                title="Position of the answers",
                below="position of the answers to the target among copies of another example",
                curve="answers {where}",
                column="answers {at}",
            ),
            "serial": KindTexts(
                title="Position of the duplicate",
                below=f"number of examples before the duplicate of the last of {summary.length:,}",
                to_scale=True,
            ),
        },
    )
