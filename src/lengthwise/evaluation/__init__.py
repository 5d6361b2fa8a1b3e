"""Evaluation: one trained model, one task, many lengths."""

from lengthwise.evaluation.scores import Score, asked, check_lengths, evaluate

__all__ = ["Score", "asked", "check_lengths", "evaluate"]
