"""Evaluation: one trained model, one task, many lengths."""

from lengthwise.evaluation.questions import (
    check_lengths,
    encodings_of,
    evaluation_question,
    questions,
    shifted,
    together,
)
from lengthwise.evaluation.score_checks import EvaluationError
from lengthwise.evaluation.scores import Division, Score, evaluate

__all__ = [
    "Division",
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
