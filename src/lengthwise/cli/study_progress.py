"""Progress of a study, from the events of `execute`."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lengthwise.cli.printing import counted, duration, figure
from lengthwise.cli.progress import Bars, Lines, rows
from lengthwise.studies.events import Advanced, Begun, Counted, Done, Event, Failed, Note, Released, Started
from lengthwise.studies.study import Study

STARTS = {  # what a worker says of a run that it has taken
    "train": "starts",
    "continue": "continues from its checkpoint",
    "evaluate": "is already trained, evaluating new lengths",
}


@contextmanager
def display(study: Study, results: str) -> Iterator[Callable[[Event], None]]:
    """Yield a function that shows the events of `execute`: a row for each active run, and one for all runs."""
    with rows() as shown:
        yield StudyProgress(study, results, shown)


class StudyProgress:
    """Shows events as rows and permanent lines."""

    def __init__(self, study: Study, results: str, shown: Lines | Bars):
        self.overview, self.results, self.rows = Overview(study), results, shown
        self.waiting = False

    def __call__(self, event: Event) -> None:
        overview = self.overview
        overview.update(event)
        if isinstance(event, Begun):
            self.rows.print(overview.opening(event, self.results))
            if not event.workers:
                return
        self.rows.show("", "all runs", overview.completed(), overview.total, overview.status())
        if isinstance(event, Started):
            self.rows.show(event.key, overview.name(event.key), 0, None, STARTS[event.what], at_once=True)
        elif isinstance(event, Advanced):
            self.rows.show(event.key, overview.name(event.key), event.step, event.steps, progress_text(event))
        elif isinstance(event, (Done, Failed, Released)):
            self.rows.remove(event.key)
        elif isinstance(event, Counted):
            if event.waiting and not self.waiting:
                self.rows.print(f"waiting for {counted(event.counts['running'], 'run')} of another command")
            self.waiting = event.waiting
        if (line := overview.line(event)) is not None:
            self.rows.print(line)


def progress_text(event: Advanced) -> str:
    """Return the progress of a run as text."""
    if event.phase == "evaluate":
        return f"evaluating length {event.length} ({event.nth}/{event.lengths})"
    loss = f", mean loss {event.loss:.3f}" if event.loss is not None else ""
    rate = f", {figure(event.steps_per_second, 3)} steps/s" if event.steps_per_second else ""
    left = f", {duration(event.eta_seconds)} left" if event.eta_seconds else ""
    return f"step {event.step}/{event.steps}{loss}{rate}{left}"


class Overview:
    """The progress of a study and its remaining time."""

    def __init__(self, study: Study):
        self.study = study
        self.runs = {run.key: run for run in study.runs}
        self.counts = {"pending": len(self.runs), "running": 0, "done": 0, "failed": 0}
        self.before = 0  # runs that had ended when this call began
        self.ended_here = 0  # runs of this call that ended since then
        self.left: dict[str, float] = {}  # remaining cost, by run key
        self.costs: dict[str, Any] = {}
        self.places: dict[str, str] = {}  # machines of the active runs, by key, unless it is this one
        self.etas: dict[str, float] = {}  # remaining seconds of the active runs, by key
        self.finished_cost = 0.0  # in this call
        self.start: float | None = None  # time of the first progress
        self.estimated: float | None = None  # estimated seconds of the whole call, until there is progress

    def update(self, event: Event) -> None:
        if isinstance(event, Begun):
            self.counts, self.costs, self.estimated = event.counts, event.costs, event.seconds
            self.before = self.ended
            self.left = {key: cost.total for key, cost in event.costs.items()}
        elif isinstance(event, Counted):
            self.counts = event.counts
        elif isinstance(event, Started):
            self.places[event.key] = event.where
        elif isinstance(event, Advanced):
            self._advance(event)
        elif isinstance(event, (Done, Failed, Released)):
            self.etas.pop(event.key, None)
            self.ended_here += not isinstance(event, Released)
            if not isinstance(event, Released):
                self._set_left(event.key, 0.0, counts=isinstance(event, Done))

    def _advance(self, event: Advanced) -> None:
        cost = self.costs.get(event.key)
        if cost is None:
            return
        evaluation = sum(cost.evaluate.values())
        if event.phase == "train":
            left = cost.train * (1 - event.step / event.steps) + evaluation
        else:
            longer = [cost.evaluate[length] for length in sorted(cost.evaluate) if length > (event.length or 0)]
            left = cost.evaluate.get(event.length, 0.0) * (1 - event.step / event.steps) + sum(longer)
        first = event.key not in self.etas
        self._set_left(event.key, left, counts=not first)  # progress from a checkpoint is not work of this call
        self.start = self.start or time.perf_counter()
        after_training = evaluation if event.phase == "train" else 0.0
        rate = cost.train / event.steps * event.steps_per_second if event.phase == "train" else 0.0
        self.etas[event.key] = event.eta_seconds + (after_training / rate if rate else 0.0)

    def _set_left(self, key: str, left: float, counts: bool) -> None:
        before = self.left.get(key, 0.0)
        if counts:
            self.finished_cost += max(0.0, before - left)
        self.left[key] = left

    @property
    def total(self) -> int:
        return len(self.runs)

    @property
    def ended(self) -> int:
        """The number of runs that are done or failed. The last counts may be older than the events of this call."""
        return max(self.counts["done"] + self.counts["failed"], self.before + self.ended_here)

    def completed(self) -> float:
        """Return the number of completed runs, with fractions for active runs."""
        fractions = sum(1 - self.left[key] / self.costs[key].total for key in self.etas if self.costs[key].total)
        return min(self.total, self.ended + fractions)

    def eta(self) -> float | None:
        """Return the remaining seconds, or None if they are unknown."""
        if self.start is None or self.finished_cost <= 0:
            return self.estimated
        rate = self.finished_cost / max(1e-9, time.perf_counter() - self.start)
        unfinished = sum(1 for left in self.left.values() if left > 0)
        our_share = min(1.0, (self.total - self.ended) / unfinished) if unfinished else 0.0  # other calls do the rest
        return max([sum(self.left.values()) * our_share / rate, *self.etas.values()])

    def name(self, key: str) -> str:
        run = self.runs.get(key)
        place = f" on {self.places[key]}" if self.places.get(key) else ""
        return f"{run.label}, {run.task.label}, seed {run.seed}{place}" if run else f"{key[:8]}{place}"

    def scores(self, event: Done) -> str:
        """Return the new scores as text, or an empty string."""
        run = self.runs.get(event.key)
        if run is None or not (event.scores or event.shift_scores):
            return ""
        values = ", ".join(f"{figure(mean, 3)} at {length}" for length, mean in event.scores)
        shifts = f"{event.shift_scores} scores under shifts" if event.shift_scores else ""
        task: Any = run.task.cls
        scores = f"{task.metric_of(dict(run.task.settings)).name} {values}" if values else ""
        return "; ".join(filter(None, [scores, shifts]))

    def opening(self, event: Begun, results: str) -> str:
        done = event.counts["done"]
        if done == self.total:
            done_runs = "the run is" if self.total == 1 else f"all {self.total} runs are"
            return f"{self.study.name}: {done_runs} done (results in {results})"
        runs = counted(self.total, "run") + (f", {done} of them already done" if done else "")
        seconds = f"; this takes about {duration(event.seconds)}" if event.seconds is not None else ""
        following = ", and another stage follows" if self.study.then is not None else ""
        workers = counted(event.workers, "worker")
        return f"{self.study.name}: {runs}; {workers}, results in {results}{seconds}{following}"

    def status(self) -> str:
        """Return how many runs are done, and the remaining time if it is known."""
        failed, eta = self.counts["failed"], self.eta()
        left = f", about {duration(eta)} left" if eta is not None and eta >= 1 else ""
        return f"{self.ended} of {self.total} done{f', {failed} failed' if failed else ''}{left}"

    def line(self, event: Event) -> str | None:
        """Return a permanent line for the event, or None for mere progress."""
        if isinstance(event, Done):
            scores = self.scores(event)
            done = f"done in {duration(event.seconds)}{f'; {scores}' if scores else ''}"
            return f"[{self.ended}/{self.total}] {self.name(event.key)}: {done}"
        if isinstance(event, Failed):
            return f"[{self.ended}/{self.total}] {self.name(event.key)}: failed: {event.error}"
        if isinstance(event, Note):
            return f"{self.name(event.key)}: {event.text}" if event.key else event.text
        return None
