"""Probes: looks inside a trained model. Each is a question about a stored run, and its answer is a row under the run's key.

What a model's attention learned: how far it is from another model's (`attention_distance`), and how far back it looks
(`attended_distance`). And how long its examples are (`lengths.py`). `asking.py` asks a trained run: which examples, in which
portions. `in_context.py` asks runs that learn functions in context: where the last question looks (`recency.py`), and prompts of
repeated examples (`prompts.py`).
"""

from lengthwise.probes.asking import (
    ProbeQuestion,
    TrainedRun,
    ask_attended,
    ask_distance,
    attended_question,
    distance_question,
    load_trained_run,
    require_alike,
    require_attention,
)
from lengthwise.probes.attended import BINS, Attended, attended_distance
from lengthwise.probes.distance import attention_distance, pair_distances
from lengthwise.probes.divergence import VARIANTS, jensen_shannon, published_divergence
from lengthwise.probes.in_context import IN_CONTEXT, OPTIONS, ask_in_context, in_context_question, require_in_context
from lengthwise.probes.lengths import ask_lengths, lengths_question

__all__ = [
    "BINS",
    "IN_CONTEXT",
    "OPTIONS",
    "VARIANTS",
    "Attended",
    "ProbeQuestion",
    "TrainedRun",
    "ask_attended",
    "ask_distance",
    "ask_in_context",
    "ask_lengths",
    "attended_distance",
    "attended_question",
    "attention_distance",
    "distance_question",
    "in_context_question",
    "jensen_shannon",
    "lengths_question",
    "load_trained_run",
    "pair_distances",
    "published_divergence",
    "require_alike",
    "require_attention",
    "require_in_context",
]
