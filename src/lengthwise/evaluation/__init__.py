"""Evaluation: one trained model, one task, many lengths."""

from lengthwise.evaluation.scores import (
    EvaluationError,
    Score,
    asked,
    check_lengths,
    encodings_of,
    evaluate,
    questions,
    shifted,
    together,
)

__all__ = [
    "EvaluationError",
    "Score",
    "asked",
    "check_lengths",
    "encodings_of",
    "evaluate",
    "questions",
    "shifted",
    "together",
]
