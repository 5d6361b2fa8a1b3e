"""Predictions without a model, in NumPy. A score shows that a model has learned something only if it beats them.

`corpus` counts n-grams of a training text, `ngrams` counts n-grams of the sequence so far, and `in_context` predicts
labels from the examples of a prompt. A task lists the baselines that are scored beside its models (`Task.baselines`).
"""
