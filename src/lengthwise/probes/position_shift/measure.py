"""The measurement of position shifts: scores on the same examples at shifted position IDs."""

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from lengthwise.config import Run
from lengthwise.encodings import PositionEncoding
from lengthwise.evaluation import check_lengths
from lengthwise.evaluation.score_checks import required_scores, scores_of_examples
from lengthwise.models import Decoder, require_decoder
from lengthwise.positions import position_scheme_for
from lengthwise.probes.base import OnProgress
from lengthwise.probes.measuring.trained_run import (
    TrainedRun,
    example_batches,
    measurement,
    number,
    numbers,
    report,
    require_attention,
)
from lengthwise.probes.position_shift import PositionShiftQuestion
from lengthwise.tasks.base import Batch
from lengthwise.tasks.pooled import PooledTask


def require(run: Run, questions: Sequence[PositionShiftQuestion], against: Run | None = None) -> None:
    """Raise `ConfigError` if the run has no attention, or does not support a length without a shift. Builds no model."""
    require_attention(run)
    check_lengths(run, [question.length for question in questions])


def declares_invariance(model: Decoder) -> bool:
    """Return whether all encodings of the model declare that adding a number to all position IDs changes nothing."""
    encodings = cast(list[PositionEncoding], list(model.encodings))
    return all(encoding.shift_invariant and not encoding.depends_on_length() for encoding in encodings)


@measurement
def measure(trained: TrainedRun, question: PositionShiftQuestion, on_progress: OnProgress = None) -> dict[str, Any]:
    """Return the result for one run. Each list has an entry for each of `shifts`; None if a shift is past the last position.

    `scores`: the means of the task's metric, from one forward pass per example; `standard_errors`: of these means over examples.
    `differences`: the means of score minus score at shift 0, of the same examples, with `difference_errors`. `logit_changes`: the
    largest absolute difference of a logit from that at shift 0, over all tokens whose prediction is scored. `better`: of the
    metric, "higher" or "lower". `invariant`: see `declares_invariance`. `max_length`: the number of positions that the encodings
    have, None if any. `n`: number of examples.

    At shift 0 the position IDs are passed as well, so that all shifts use the same code. An encoding that reads only distances
    then gets the same tables at every shift, and its scores have the same bits. A rotation gets other angles, and its scores are
    equal up to rounding.
    """
    model, task = require_decoder(trained.model), trained.task
    scheme = position_scheme_for(task, trained.run.training.positions)
    positions_needed = scheme.num_positions(task.tokens(question.length), training=False)
    limit = math.inf if model.max_length is None else model.max_length
    measured = [shift for shift in question.shifts if positions_needed + shift <= limit]
    scores: dict[int, list[Tensor]] = {shift: [] for shift in measured}
    changes = dict.fromkeys(measured, 0.0)
    method = "counts" if isinstance(task, PooledTask) else "score"
    for batch, (ids,) in example_batches(trained, question, [trained.run]):
        ids = torch.arange(batch.inputs.shape[1], device=trained.device)[None] if ids is None else ids
        base = None
        for shift in measured:
            logits = model(batch.inputs, positions=ids + shift)
            values = required_scores(getattr(task, method)(logits, batch), method, task, batch.targets.shape)
            scores[shift].append(values.double().cpu())
            base = logits if base is None else base
            changes[shift] = max(changes[shift], _largest_change(logits, base, batch))
            report(on_progress, len(batch) / len(measured))
    by_shift = {
        shift: scores_of_examples(task, torch.cat(parts), question.length)[0] for shift, parts in scores.items()
    }
    differences = {shift: values - by_shift[0] for shift, values in by_shift.items()}
    return {
        "shifts": list(question.shifts),
        "scores": _each(question, {shift: values.mean() for shift, values in by_shift.items()}),
        "standard_errors": _each(question, {shift: _error(values) for shift, values in by_shift.items()}),
        "differences": _each(question, {shift: values.mean() for shift, values in differences.items()}),
        "difference_errors": _each(question, {shift: _error(values) for shift, values in differences.items()}),
        "logit_changes": [number(changes[shift], 6) if shift in changes else None for shift in question.shifts],
        "better": task.metric.better,
        "invariant": declares_invariance(model),
        "max_length": model.max_length,
        "n": len(by_shift[0]),
    }


def _largest_change(logits: Tensor, base: Tensor, batch: Batch) -> float:
    """Return the largest absolute difference of the logits at scored tokens; NaN if one is not finite."""
    scored = batch.scored.bool()
    return float((logits[scored] - base[scored]).abs().max()) if bool(scored.any()) else 0.0


def _error(values: Tensor) -> Tensor:
    """Return the standard error of the mean; NaN for a single example."""
    return values.std() / math.sqrt(len(values)) if len(values) > 1 else torch.tensor(math.nan)


def _each(question: PositionShiftQuestion, values: dict[int, Tensor]) -> list[float | None]:
    missing = torch.tensor(math.nan)
    return numbers(torch.stack([values.get(shift, missing).double() for shift in question.shifts]))
