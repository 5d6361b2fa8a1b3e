"""Scores when the same number is added to all position IDs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lengthwise.config import ConfigError, Run
from lengthwise.measurements import base
from lengthwise.measurements.base import Chart, ExampleOptions, Number, Numbers, key, note, option, value
from lengthwise.measurements.table import Row, Table
from lengthwise.values import join_names

if TYPE_CHECKING:
    from lengthwise.measurements.inside.trained import TrainedRun

DEFAULT_SHIFTS = (0, 1, 10, 100, 1000)
MAX_SHIFT = 10**9 - 1
MAX_SHIFTS = 64  # in one question


@dataclass(frozen=True, kw_only=True)
class PositionShiftOptions(ExampleOptions):
    """The scores on the same examples with each of `shifts` added to all position IDs, ascending and with 0."""

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
        """Yield a row for each shift that the encodings have positions for; see `inside.position_shift`."""
        from lengthwise.measurements.inside.position_shift import shifted_scores, standard_error
        from lengthwise.measurements.inside.trained import number

        by_shift, changes, about = shifted_scores(trained, options, options.shifts, progress)
        for shift, values in by_shift.items():
            differences = values - by_shift[0]
            yield {
                "shift": shift,
                "score": float(values.mean()),
                "score_error": standard_error(values),
                "difference": float(differences.mean()),
                "difference_error": standard_error(differences),
                "logit_change": number(changes[shift], 6),
                "n": len(values),
                **about,
            }

    def remarks(self, answers: Mapping[str, Table]) -> Sequence[str]:
        """Say which encodings declare invariance, whether their logits have the same bits, and which have a limit."""
        invariant = {label: set(a.column("logit_change")) for label, a in answers.items() if a.first("invariant")}
        exact = join_names([label for label, changes in invariant.items() if changes == {0}])
        rounded = join_names([label for label, changes in invariant.items() if changes != {0}])
        limits = {label: a.first("max_length") for label, a in answers.items()}
        limited = join_names([f"{label} ({limit:,} positions)" for label, limit in limits.items() if limit])
        sentences = [f"Logits have the same bits at every shift for {exact}."] if exact else []
        sentences += (
            [f"Other encodings that declare invariance ({rounded}) are equal up to rounding."] if rounded else []
        )
        return sentences + ([f"Shifts past the last position are not measured: {limited}."] if limited else [])
