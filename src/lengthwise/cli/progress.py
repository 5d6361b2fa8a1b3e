"""Progress display while a study runs: bars on a terminal, lines in a file or a pipe."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lengthwise.cli.printing import console, duration, figure, one_line
from lengthwise.studies.events import Advanced, Begun, Counted, Done, Event, Failed, Note, Released, Started
from lengthwise.studies.study import Study

if TYPE_CHECKING:
    from rich.progress import TaskID


@contextmanager
def display(study: Study, results: str) -> Iterator[Callable[[Event], None]]:
    """Show events on stderr: bars on a terminal, otherwise occasional lines."""
    if not sys.stderr.isatty():
        yield Lines(study, results)
        return
    live = Live(study, results)
    with live.bars:
        yield live


class Overview:
    """The progress of a study and its remaining time."""

    def __init__(self, study: Study):
        self.study = study
        self.runs = {run.key: run for run in study.runs}
        self.counts = {"pending": len(self.runs), "running": 0, "done": 0, "failed": 0}
        self.before = 0  # runs that had ended when this call began
        self.own = self.others = 0  # runs that ended since then: of this call, and (at least) of other calls
        self.active: set[str] = set()  # runs of this call that have started, by key
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
            self.counts = event.counts  # may already include active runs, whose `Done` is still to come
            self.others = max(self.others, self.ended - self.before - self.own - len(self.active))
        elif isinstance(event, Started):
            self.active.add(event.key)
            self.places[event.key] = event.where
        elif isinstance(event, Advanced):
            self._advance(event)
        elif isinstance(event, (Done, Failed, Released)):
            self.etas.pop(event.key, None)
            self.active.discard(event.key)
            self.own += not isinstance(event, Released)
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
        """The number of runs that are done or failed."""
        return self.counts["done"] + self.counts["failed"]

    @property
    def number(self) -> int:
        """The number of the run that ended last, which is larger by 1 for every run of this call."""
        return min(self.total, self.before + self.own + self.others)

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
        own_share = min(1.0, (self.total - self.ended) / unfinished) if unfinished else 0.0  # other calls do the rest
        return max([sum(self.left.values()) * own_share / rate, *self.etas.values()])

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
        scores = f"{task.metric.name} {values}" if values else ""
        return "; ".join(filter(None, [scores, shifts]))

    def opening(self, event: Begun, results: str) -> str:
        done = event.counts["done"]
        if done == self.total:
            done_runs = "the run is" if self.total == 1 else f"all {self.total} runs are"
            return f"{self.study.name}: {done_runs} done (results in {results})"
        already_done = f", {done} of them already done" if done else ""
        workers = f"{event.workers} worker{'s' if event.workers != 1 else ''}"
        runs = f"{self.total} run{'s' if self.total != 1 else ''}"
        seconds = f"; this takes about {duration(event.seconds)}" if event.seconds is not None else ""
        return f"{self.study.name}: {runs}{already_done}; {workers}, results in {results}{seconds}"

    def line(self, event: Event) -> str | None:
        """Return a permanent line for the event, or None for mere progress."""
        if isinstance(event, Done):
            scores = self.scores(event)
            return f"{self.name(event.key)}: done in {duration(event.seconds)}{f'; {scores}' if scores else ''}"
        if isinstance(event, Failed):
            return f"{self.name(event.key)}: failed: {event.error}"
        if isinstance(event, Note):
            return f"{self.name(event.key)}: {event.text}" if event.key else event.text
        return None


class Lines:
    """Plain lines: the start and end of each run, and its progress at growing intervals."""

    def __init__(self, study: Study, results: str):
        self.overview, self.results = Overview(study), results
        self.start = time.perf_counter()
        self.printed: dict[str, float] = {}
        self.waiting = False

    def __call__(self, event: Event) -> None:
        overview = self.overview
        overview.update(event)
        if isinstance(event, Begun):
            self._print(overview.opening(event, self.results))
        elif isinstance(event, Started):
            self.printed[event.key] = time.perf_counter()
            activity = "starts" if event.what == "train" else "is already trained, evaluating new lengths"
            self._print(f"{overview.name(event.key)}: {activity}")
        elif isinstance(event, Advanced):
            self._advance(event)
        elif isinstance(event, Counted):
            if event.waiting and not self.waiting:
                running = event.counts["running"]
                self._print(f"waiting for {running} run{'s' if running != 1 else ''} of another command")
            self.waiting = event.waiting
        elif (line := overview.line(event)) is not None:
            if isinstance(event, (Done, Failed)):
                line = f"[{overview.number}/{overview.total}] {line}{self._eta()}"
            self._print(line)

    def _advance(self, event: Advanced) -> None:
        now = time.perf_counter()
        interval = max(10.0, (now - self.start) / 30)  # seconds between two lines about a run
        if now - self.printed.get(event.key, self.start) >= interval:
            self.printed[event.key] = now
            self._print(f"{self.overview.name(event.key)}: {progress_text(event)}{self._eta()}")

    def _eta(self) -> str:
        seconds = self.overview.eta()
        return f" (all runs: about {duration(seconds)} left)" if seconds is not None and seconds >= 1 else ""

    def _print(self, line: str) -> None:
        print(one_line(line), file=sys.stderr, flush=True)


def progress_text(event: Advanced) -> str:
    """Return the progress of a run as text."""
    if event.phase == "evaluate":
        return f"evaluating length {event.length} ({event.nth}/{event.lengths})"
    loss = f", mean loss {event.loss:.3f}" if event.loss is not None else ""
    rate = f", {figure(event.steps_per_second, 3)} steps/s" if event.steps_per_second else ""
    left = f", {duration(event.eta_seconds)} left" if event.eta_seconds else ""
    return f"step {event.step}/{event.steps}{loss}{rate}{left}"


class Live:
    """Bars: one for each active run and one for the study, below permanent lines for ended runs."""

    def __init__(self, study: Study, results: str):
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        self.overview, self.results = Overview(study), results
        terminal = console(stderr=True)
        self.bars = Progress(
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
            BarColumn(bar_width=24 if terminal.width >= 110 else 8),
            TextColumn("{task.fields[status]}", markup=False, table_column=Column(no_wrap=True)),
            console=terminal,
            refresh_per_second=4,
            transient=True,
        )
        self.rows: dict[str, TaskID] = {}
        self.overall: TaskID | None = None

    def __call__(self, event: Event) -> None:
        overview = self.overview
        overview.update(event)
        if isinstance(event, Begun):
            self._print(overview.opening(event, self.results))
            if event.workers:
                self.overall = self.bars.add_task("all runs", total=overview.total, status="starting")
        elif isinstance(event, Started):
            status = "starting" if event.what == "train" else "already trained"
            self._remove(event.key)
            self.rows[event.key] = self.bars.add_task(overview.name(event.key), total=None, status=status)
            self._move_overall_down()
        elif isinstance(event, Advanced) and event.key in self.rows:
            self.bars.update(self.rows[event.key], completed=event.step, total=event.steps, status=progress_text(event))
        elif isinstance(event, (Done, Failed, Released)):
            self._remove(event.key)
        if (line := overview.line(event)) is not None:
            self._print(line)
        self._update_overall(event)

    def _update_overall(self, event: Event) -> None:
        if self.overall is None or isinstance(event, Begun):
            return
        overview = self.overview
        eta = overview.eta()
        failed = overview.counts["failed"]
        status = f"{overview.ended} of {overview.total} done{f', {failed} failed' if failed else ''}"
        if isinstance(event, Counted) and event.waiting:
            status += f"; another command has the last {overview.counts['running']}"
        elif eta is not None and eta >= 1:
            status += f", about {duration(eta)} left"
        self.bars.update(self.overall, completed=overview.completed(), status=status)

    def _move_overall_down(self) -> None:
        if self.overall is not None:
            status = self.bars.tasks[self.bars.task_ids.index(self.overall)].fields["status"]
            self.bars.remove_task(self.overall)
            self.overall = self.bars.add_task("all runs", total=self.overview.total, status=status)
            self.bars.update(self.overall, completed=self.overview.completed())

    def _remove(self, key: str) -> None:
        if key in self.rows:
            self.bars.remove_task(self.rows.pop(key))

    def _print(self, line: str) -> None:
        self.bars.console.print(line, soft_wrap=True)
