"""The texts of the section of lost-in-the-middle."""

from lengthwise.probes.repeated_examples.section import KindTexts, Texts
from lengthwise.probes.repeated_examples.summary import RepeatedExamplesSummary


def texts(summary: RepeatedExamplesSummary) -> Texts:
    """Return the texts for one question."""
    return Texts(
        title="Lost in the middle",
        explanation=(
            f"All prompts have {summary.length:,} examples of one function, whose inputs have d dimensions. In the first "
            "chart, a prompt begins with an instruction (2 d examples) and ends with the target (d / 2 examples, rounded up). "
            "The answers are d examples between these two, which include all examples of the target. Copies of one example of "
            "the instruction fill the rest of the prompt. In the second chart, a prompt consists of copies of one example and "
            "ends with another one. That last example also occurs once before; this earlier occurrence is the duplicate."
        ),
        kinds={
            "answers": KindTexts(
                title="Position of the answers",
                below="position of the answers among the copies of one example of the instruction",
                curve="answers {where}",
                column="answers {at}",
            ),
            "serial": KindTexts(
                title="Position of the duplicate",
                below=f"number of examples before the duplicate of the last of the {summary.length:,} examples",
                to_scale=True,
            ),
        },
    )
