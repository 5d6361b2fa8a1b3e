"""Predictions without a model, in NumPy: what a score has to beat before it shows that a model has learned anything.

`corpus` counts n-grams of a training text, `ngrams` those of a sequence's own past, and `in_context` predicts labels from the
examples of a prompt. A task says which of them are scored beside its models (`Task.baselines`).
"""
