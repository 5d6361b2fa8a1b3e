"""Evaluation: one trained model, one task, many lengths."""

from lengthwise.evaluation.scores import (
    EvaluationError,
    Score,
    check_lengths,
    encodings_of,
    evaluate,
    evaluation_question,
    questions,
    shifted,
    together,
)

__all__ = [
    "EvaluationError",
    "Score",
    "check_lengths",
    "encodings_of",
    "evaluate",
    "evaluation_question",
    "questions",
    "shifted",
    "together",
]
