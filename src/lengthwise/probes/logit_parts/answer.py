"""What is stored of the parts of logits: the checks of their question and their result."""

from lengthwise.probes.logit_parts import PARTS
from lengthwise.store.checks import SIZE, Unreadable, record, table, with_axes


def _four(value: list[str]) -> list[str]:
    if value != list(PARTS):
        raise Unreadable("is not the list of the four parts")
    return value


QUESTION = record({"length": SIZE, "examples": SIZE})
RESULT = with_axes(
    record(
        {"parts": _four, "shares": table(3), "deviations": table(3), "logit_deviations": table(2), "n": SIZE},
    ),
    {"parts": "p", "shares": "lhp", "deviations": "lhp", "logit_deviations": "lh"},
)
