"""The scores of a model on the same examples when numbers are added to all position IDs."""

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from lengthwise.encodings import PositionEncoding
from lengthwise.evaluation.score_checks import required_scores, scores_of_examples
from lengthwise.measurements.base import ExampleOptions, OnProgress
from lengthwise.measurements.inside.trained import TrainedRun, count_of_examples, example_batches
from lengthwise.models import require_decoder
from lengthwise.positions import position_scheme_for
from lengthwise.tasks.base import PooledTask


def shifted_scores(
    trained: TrainedRun, options: ExampleOptions, shifts: Sequence[int], progress: OnProgress
) -> tuple[dict[int, Tensor], dict[int, float], dict[str, Any]]:
    """Return the scores of the examples at each shift, the largest change of a logit, and what the encodings declare.

    Shifts that leave the positions of the encodings are left out. At shift 0 the position IDs are passed as well, so
    that all shifts use the same code. An encoding that reads only distances then gets the same tables at every shift,
    and its scores have the same bits. A rotation gets other angles, and its scores are equal up to rounding.
    """
    model, task, count = require_decoder(trained.model), trained.task, count_of_examples(trained, options)
    scheme = position_scheme_for(task, trained.run.training.positions)
    needed = scheme.num_positions(task.tokens(options.length), training=False)
    limit = math.inf if model.max_length is None else model.max_length
    measured = [shift for shift in shifts if needed + shift <= limit]
    scores: dict[int, list[Tensor]] = {shift: [] for shift in measured}
    changes = dict.fromkeys(measured, 0.0)
    method = "counts" if isinstance(task, PooledTask) else "score"
    for batch, (ids,) in example_batches(trained, options, [trained.run]):
        ids = torch.arange(batch.inputs.shape[1], device=trained.device)[None] if ids is None else ids
        scored, first = batch.scored.bool(), None
        for shift in measured:
            logits = model(batch.inputs, positions=ids + shift)
            values = required_scores(getattr(task, method)(logits, batch), method, task, batch.targets.shape)
            scores[shift].append(values.double().cpu())
            first = logits if first is None else first
            change = float((logits[scored] - first[scored]).abs().max()) if bool(scored.any()) else 0.0
            changes[shift] = max(changes[shift], change)
            progress(len(batch) / count / len(measured))
    by_shift = {shift: scores_of_examples(task, torch.cat(s), options.length)[0] for shift, s in scores.items()}
    encodings = cast(list[PositionEncoding], list(model.encodings))
    invariant = all(encoding.shift_invariant and not encoding.depends_on_length() for encoding in encodings)
    return by_shift, changes, {"invariant": invariant, "max_length": model.max_length}


def standard_error(values: Tensor) -> float:
    """Return the standard error of the mean; NaN for a single example."""
    return float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else math.nan
