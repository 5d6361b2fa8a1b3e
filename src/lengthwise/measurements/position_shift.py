"""Scores when the same number is added to all position IDs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from lengthwise.config import ConfigError, Run
from lengthwise.measurements import base
from lengthwise.measurements.base import Chart, ExampleOptions, Number, Numbers, key, note, option, value
from lengthwise.measurements.table import Row, Table
from lengthwise.values import join_names

if TYPE_CHECKING:
    from torch import Tensor

    from lengthwise.measurements.inside.trained import TrainedRun

DEFAULT_SHIFTS = (0, 1, 10, 100, 1000)
MAX_SHIFT = 10**9 - 1
MAX_SHIFTS = 64  # in one question


@dataclass(frozen=True, kw_only=True)
class PositionShiftOptions(ExampleOptions):
    """The scores on the same examples with each of `shifts` added to all position IDs. They ascend, and 0 is always included."""

    length: int = option(base.LENGTH, times_training=1)
    shifts: tuple[int, ...] = option(
        "Numbers to add to all position IDs, comma-separated; 0 is always included.",
        DEFAULT_SHIFTS,
        shown=",".join(map(str, DEFAULT_SHIFTS)),
        minimum=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if wrong := [shift for shift in self.shifts if not 0 <= shift <= MAX_SHIFT]:
            raise ConfigError(f"shifts must be whole numbers from 0 to {MAX_SHIFT:,}, got {wrong[0]}")
        object.__setattr__(self, "shifts", tuple(sorted({0, *self.shifts})))
        if not 2 <= len(self.shifts) <= MAX_SHIFTS:
            raise ConfigError(f"shifts must be 1 to {MAX_SHIFTS - 1} numbers other than 0, got {len(self.shifts) - 1}")

    @property
    def work(self) -> float:
        return super().work * len(self.shifts)


class PositionShift(base.Probe):
    """Scores when the same number is added to all position IDs, on the same examples.

    An encoding that depends only on distances has the same score at every shift. One that depends on absolute
    positions is expected to get worse. Answers are scored by one forward pass, also for tasks whose answers are
    otherwise generated. Shifts past the last position of an encoding with a maximal length are left out.
    """

    name = "position-shift"
    Options = PositionShiftOptions
    columns = (
        key("shift", "number added to all position IDs"),
        value("score", bounds="metric", error="score_error"),
        note("score_error", "standard error of the score over examples"),
        value("difference", "score minus the score at shift 0", error="difference_error"),
        note("difference_error", "standard error of the difference over examples"),
        value("logit_change", "largest change of a logit at a scored token"),
        note("invariant", "whether the encodings declare that shifts change nothing"),
        note("max_length", "number of positions of the encodings"),
        note("n", "number of examples"),
    )
    charts = (
        Chart(
            kind="lines",
            title="Score by position shift",
            x="shift",
            y="score",
            about="The same number is added to the position IDs of all tokens, in the same {sequences}. An encoding "
            "that depends only on distances has the same score at every shift. Answers are scored by one forward "
            "pass with the correct answer as input.",
        ),
    )
    tables = (
        Numbers(
            title="Changes of scores",
            numbers=(
                Number(head="score at 0", y="score", where={"shift": 0}),
                Number(head="change at {shift:,}", y="difference", by=("shift",)),
            ),
            about="Each run is compared with itself at shift 0, on the same examples.",
        ),
        Numbers(
            title="Largest change of a logit",
            numbers=(Number(head="{shift:,}", y="logit_change", by=("shift",)),),
            about="By the shift, over all scored tokens.",
        ),
    )
    chapter = "Shifted positions"
    skips_unsupported = True

    def require(self, run: Run, options: PositionShiftOptions, against: Run | None = None) -> None:
        from lengthwise.evaluation import check_lengths
        from lengthwise.measurements.inside.trained import require_attention

        require_attention(run)
        check_lengths(run, [options.length])

    def measure(self, trained: "TrainedRun", options: PositionShiftOptions, progress: base.OnProgress) -> Iterator[Row]:
        """Yield a row for each shift that leaves all positions below the encodings' last one.

        At shift 0 the position IDs are passed as well, so that all shifts use the same code. An encoding that reads
        only distances then gets the same tables at every shift, and its scores have the same bits. A rotation gets
        other angles, and its scores are equal up to rounding.
        """
        import torch

        from lengthwise.encodings import PositionEncoding
        from lengthwise.evaluation.score_checks import required_scores, scores_of_examples
        from lengthwise.measurements.inside.trained import count_of_examples, example_batches, number
        from lengthwise.models import require_decoder
        from lengthwise.positions import position_scheme_for
        from lengthwise.tasks.pooled import PooledTask

        model, task, count = require_decoder(trained.model), trained.task, count_of_examples(trained, options)
        scheme = position_scheme_for(task, trained.run.training.positions)
        needed = scheme.num_positions(task.tokens(options.length), training=False)
        limit = math.inf if model.max_length is None else model.max_length
        measured = [shift for shift in options.shifts if needed + shift <= limit]
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
        about = {"invariant": invariant, "max_length": model.max_length}
        for shift, values in by_shift.items():
            yield {
                "shift": shift,
                "score": float(values.mean()),
                "score_error": _error(values),
                "difference": float((values - by_shift[0]).mean()),
                "difference_error": _error(values - by_shift[0]),
                "logit_change": number(changes[shift], 6),
                "n": len(values),
                **about,
            }

    def remarks(self, answers: Mapping[str, Table]) -> Sequence[str]:
        """Say which encodings declare invariance, and whether their logits have the same bits, and which have a last position."""
        invariant = {label: set(a.column("logit_change")) for label, a in answers.items() if a.first("invariant")}
        exact = join_names([label for label, changes in invariant.items() if changes == {0}])
        rounded = join_names([label for label, changes in invariant.items() if changes != {0}])
        limits = {label: a.first("max_length") for label, a in answers.items()}
        limited = join_names([f"{label} ({limit:,} positions)" for label, limit in limits.items() if limit])
        found = [f"Logits have the same bits at every shift for {exact}."] if exact else []
        found += [f"Other encodings that declare invariance ({rounded}) are equal up to rounding."] if rounded else []
        return found + ([f"Shifts past the last position are not measured: {limited}."] if limited else [])


def _error(values: "Tensor") -> float:
    """Return the standard error of the mean; NaN for a single example."""
    return float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else math.nan
