"""Ask implementations of other libraries, and the counterparts of Lengthwise, the questions of `questions.py`."""

import importlib
import importlib.metadata
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import torch

from comparisons.implementation import Implementation, Ours
from comparisons.questions import QUESTIONS, Question
from lengthwise.config import ConfigError, near_miss
from lengthwise.conformance.answers import NotApplicable
from lengthwise.encodings import ENCODINGS
from lengthwise.values import install_extra

LIBRARIES = ("transformers", "x-transformers", "fla-core")
MODULES = ("transformers_rotary", "transformers_biases", "transformers_temperatures", "x_transformers", "fla_core")
"""The modules with implementations; importing one imports its library."""


class Verdict(StrEnum):
    AGREES = "agrees"
    DIFFERS = "differs"
    NOT_APPLICABLE = "not applicable"
    OURS_RAISED = "ours raised"  # an error of Lengthwise: there is nothing to compare with


@dataclass(frozen=True)
class Answer:
    """The answer of one implementation to one question.

    `theirs` and `ours` are the errors relative to the formula in nats, or None if the question has no number. `ours` is
    that of a CPU. `ours_on_gpu` is computed with the bias rounded to the model's dtype, as the sdpa backend rounds it
    on a GPU; None in float32. `explained`: whether the reason of a difference is known.
    """

    library: str
    version: str
    implementation: str
    encoding: str
    question: str
    verdict: Verdict
    theirs: float | None = None
    ours: float | None = None
    tolerance: float | None = None
    reason: str = ""
    explained: bool = True
    ours_on_gpu: float | None = None

    @property
    def ours_departs(self) -> bool:
        """Whether the error of ours exceeds the tolerance, or ours raised."""
        return self.verdict is Verdict.OURS_RAISED or _exceeds(self.ours, self.tolerance)

    @property
    def ours_departs_on_gpu(self) -> bool:
        """Whether the error of ours exceeds the tolerance with the rounding of a GPU."""
        return _exceeds(self.ours_on_gpu, self.tolerance)


def _exceeds(error: float | None, tolerance: float | None) -> bool:
    return error is not None and tolerance is not None and not error <= tolerance


def installed_versions() -> dict[str, str]:
    """Return the versions of the libraries. Raises `ConfigError` if one is missing."""
    try:
        return {name: importlib.metadata.version(name) for name in LIBRARIES}
    except importlib.metadata.PackageNotFoundError as error:
        raise ConfigError(f"the package {error.name} is not installed; {install_extra('outside')}") from None


def select_implementations(encodings: Iterable[str] = ()) -> list[Implementation]:
    """Return the implementations of all libraries, or those that correspond to the named encodings of ours."""
    selected = {ENCODINGS.find(name).__name__ for name in encodings}
    modules = [importlib.import_module(f"comparisons.{name}") for name in MODULES]
    implementations = [create() for module in modules for create in module.IMPLEMENTATIONS]
    available = {name for implementation in implementations for name in implementation.encodings}
    for name in sorted(selected - available):
        raise ConfigError(
            f"no other library's {name} is compared{near_miss(name, available)}; available: "
            f"{', '.join(sorted(available))}"
        )
    return [each for each in implementations if not selected or selected & each.encodings]


@torch.no_grad()
def ask(implementation: Implementation, question: Question, version: str) -> Answer:
    """Return the answer of one implementation to one question.

    Ours is evaluated separately, so that an error of ours is never stored as a result of theirs.
    """
    answer = Answer(
        implementation.library, version, implementation.name, implementation.label, question.name, Verdict.AGREES,
        tolerance=question.tolerance,
    )  # fmt: skip
    explanation = implementation.explanations.get(question.name, "")
    try:
        answer = replace(answer, theirs=question.measure(implementation, implementation))
        if _exceeds(answer.theirs, answer.tolerance):
            reason = explanation or "the reason is unknown"
            answer = replace(answer, verdict=Verdict.DIFFERS, reason=reason, explained=bool(explanation))
    except NotApplicable as error:
        return replace(answer, verdict=Verdict.NOT_APPLICABLE, reason=str(error))
    except Exception as error:  # an error of theirs is the answer
        reason = f"{explanation} ({_describe(error)})" if explanation else _describe(error)
        answer = replace(answer, verdict=Verdict.DIFFERS, reason=reason, explained=bool(explanation))
    try:
        answer = replace(answer, ours=question.measure(implementation, Ours(implementation)))
        if question.in_half_precision:
            on_gpu = question.measure(implementation, Ours(implementation, rounded_bias=True))
            answer = replace(answer, ours_on_gpu=on_gpu)
    except Exception as error:  # if theirs was compared with ours, it may have raised the same error above
        return replace(answer, verdict=Verdict.OURS_RAISED, reason=_describe(error), explained=False)
    return answer


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"


def as_data(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return all answers with the versions that gave them. Numbers that are not finite become null."""
    finite = lambda x: x if not isinstance(x, float) or abs(x) < float("inf") else None  # noqa: E731
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "libraries": {answer.library: answer.version for answer in answers},
        "unit": "nats: the largest error of a log-probability (of a key, or of a token)",
        "ours": '"ours" is computed as on a CPU, where a bias is float32. On a GPU the sdpa backend rounds a bias to '
        "the model's dtype: ours_on_gpu has such a bias",
        "questions": [{"name": q.name, "text": q.text, "tolerance": q.tolerance} for q in QUESTIONS],
        "answers": [{name: finite(value) for name, value in asdict(answer).items()} for answer in answers],
        "ours_departs": [f"{a.implementation}, {a.question}" for a in answers if a.ours_departs],
        "ours_departs_on_gpu": [f"{a.implementation}, {a.question}" for a in answers if a.ours_departs_on_gpu],
    }
