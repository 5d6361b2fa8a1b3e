"""Compare the encodings of other libraries with the published formulas: `lengthwise check --outside`.

The libraries are the extra `outside`, imported only by this command. The published formula is computed
by our encodings in float64, which `lengthwise check` tests against reference values.
"""

import importlib
import importlib.metadata
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import torch

from lengthwise.config import ConfigError, near_miss
from lengthwise.conformance.answers import NotApplicable
from lengthwise.encodings import ENCODINGS
from lengthwise.values import install_extra

if TYPE_CHECKING:
    from lengthwise.conformance.outside.implementation import Implementation
    from lengthwise.conformance.outside.questions import Question

LIBRARIES = {"transformers": (5, 23), "x-transformers": (2, 31), "fla-core": (0, 6)}
"""The libraries with the oldest version that the comparison supports."""


class Verdict(StrEnum):
    AGREES = "agrees"
    DIFFERS = "differs"
    NOT_APPLICABLE = "not applicable"
    OURS_RAISED = "ours raised"  # an error of Lengthwise: there is nothing to compare with


@dataclass(frozen=True)
class Answer:
    """The answer of one implementation to one question.

    `theirs` and `ours` are the errors relative to the formula in nats, or None if the question has no number. `ours` is that of
    a CPU. `ours_on_gpu` is computed with the bias rounded to the model's dtype, as the sdpa backend rounds it on a GPU; None in
    float32. `explained`: whether the reason of a difference is known.
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
    """Return the versions of the libraries. Raises `ConfigError` if one is missing or too old."""
    versions = {}
    for name, oldest in LIBRARIES.items():
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            raise ConfigError(f"the package {name} is not installed; {install_extra('outside')}") from None
        if tuple(map(int, re.findall(r"\d+", versions[name])[:2])) < oldest:
            raise ConfigError(
                f"{name} must be at least {'.'.join(map(str, oldest))}, got {versions[name]}; update it, or "
                f"{install_extra('outside')}"
            )
    return versions


def select_implementations(encodings: Iterable[str] = ()) -> "list[Implementation]":
    """Return the implementations of all libraries, or those that correspond to the named encodings of ours."""
    installed_versions()
    selected = {ENCODINGS.find(name).__name__ for name in encodings}
    implementations = [
        create()
        for library in LIBRARIES
        for create in importlib.import_module(f"{__name__}.{library.replace('-', '_')}").IMPLEMENTATIONS
    ]
    available = {name for implementation in implementations for name in implementation.encodings}
    for name in sorted(selected - available):
        raise ConfigError(
            f"no other library's {name} is compared{near_miss(name, available)}; available: {', '.join(sorted(available))}"
        )
    return [each for each in implementations if not selected or selected & each.encodings]


@torch.no_grad()
def ask(implementation: "Implementation", question: "Question", version: str) -> Answer:
    """Return the answer of one implementation to one question.

    Ours is evaluated separately, so that an error of ours is never stored as a result of theirs.
    """
    answer = Answer(
        implementation.library, version, implementation.name, implementation.label, question.name, Verdict.AGREES,
        tolerance=question.tolerance,
    )  # fmt: skip
    explanation = implementation.explanations.get(question.name, "")
    try:
        answer = replace(answer, theirs=question.theirs(implementation))
        if _exceeds(answer.theirs, answer.tolerance):
            reason = explanation or "the reason is unknown"
            answer = replace(answer, verdict=Verdict.DIFFERS, reason=reason, explained=bool(explanation))
    except NotApplicable as error:
        return replace(answer, verdict=Verdict.NOT_APPLICABLE, reason=str(error))
    except Exception as error:  # an error of theirs is the answer
        reason = f"{explanation} ({_describe(error)})" if explanation else _describe(error)
        answer = replace(answer, verdict=Verdict.DIFFERS, reason=reason, explained=bool(explanation))
    try:
        return replace(answer, ours=question.ours(implementation), ours_on_gpu=question.ours_on_gpu(implementation))
    except Exception as error:  # if theirs was compared with ours, it may have raised the same error above
        return replace(answer, verdict=Verdict.OURS_RAISED, reason=_describe(error), explained=False)


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"


def check(
    implementations: "Iterable[Implementation] | None" = None, on_answer: Callable[[Answer], None] | None = None
) -> list[Answer]:
    """Return the answer of every implementation (default: all) to every question."""
    versions = installed_versions()
    if implementations is None:
        implementations = select_implementations()
    from lengthwise.conformance.outside.questions import QUESTIONS

    answers = []
    for implementation in implementations:
        for question in QUESTIONS:
            answers.append(ask(implementation, question, versions[implementation.library]))
            if on_answer:
                on_answer(answers[-1])
    return answers


__all__ = ["LIBRARIES", "Answer", "Verdict", "ask", "check", "installed_versions", "select_implementations"]
