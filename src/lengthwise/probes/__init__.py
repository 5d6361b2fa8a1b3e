"""Probes: measurements inside trained models. Each one answers a question about a stored run, and is stored with the run.

`attention_distance` compares the attention of two models, `attended_distance` measures how far back a model attends, and
`lengths.py` counts the lengths of its examples. `asking.py` applies them to trained runs, with examples and batches.
`in_context.py` probes runs that learn functions in context: attention of the last question (`recency.py`), and scores on prompts
with repeated examples (`prompts.py`).
"""

from lengthwise.probes.attended_distance.measure import BINS, AttendedDistances, attended_distance
from lengthwise.probes.attention_distance.distance import attention_distance, pair_distances
from lengthwise.probes.attention_distance.divergence import VARIANTS, jensen_shannon, published_divergence
from lengthwise.probes.example_lengths.measure import count_lengths, lengths_question
from lengthwise.probes.in_context import (
    IN_CONTEXT,
    OPTIONS,
    in_context_question,
    measure_in_context,
    require_in_context,
)
from lengthwise.probes.measuring.asking import (
    ProbeQuestion,
    TrainedRun,
    attended_question,
    distance_question,
    load_trained_run,
    measure_attended_distance,
    measure_attention_distance,
    require_attention,
    require_comparable,
)

__all__ = [
    "BINS",
    "IN_CONTEXT",
    "OPTIONS",
    "VARIANTS",
    "AttendedDistances",
    "ProbeQuestion",
    "TrainedRun",
    "attended_distance",
    "attended_question",
    "attention_distance",
    "count_lengths",
    "distance_question",
    "in_context_question",
    "jensen_shannon",
    "lengths_question",
    "load_trained_run",
    "measure_attended_distance",
    "measure_attention_distance",
    "measure_in_context",
    "pair_distances",
    "published_divergence",
    "require_attention",
    "require_comparable",
    "require_in_context",
]
