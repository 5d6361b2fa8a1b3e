"""The page battery-scores.md: how each task of the battery was trained and evaluated, and the scores by length."""

from collections.abc import Sequence

from battery_results import STOP, TaskResult, filled, table

from lengthwise.analysis.findings import Series
from lengthwise.values import join_names

TEXTS = {"prose": "docstrings of Python's standard library", "code": "source code of Python's standard library"}

INTRODUCTION = """\
The tasks of [the battery](battery.md), and the mean score of each encoding over its seeds at each evaluated length,
with its 95 % interval over seeds. The first of these lengths is the training length. Baselines, which need no model,
are in italics. The learning rate is the better one of two, and the number of training steps is the median over the
seeds: `≥` stands before a median of runs that used all their steps. Encodings with fewer seeds, and those that stretch
the trained rotations of RoPE and so have no steps, are [all other encodings](battery.md#all-other-encodings).
"""


def scores_page(
    results: Sequence[TaskResult], others: Sequence[TaskResult], first_stage: Sequence[TaskResult], note: str
) -> str:
    """Return the page. `first_stage`: the results of the stage that chose the learning rates."""
    parts = [note, "# The battery: tasks and scores by length", filled(INTRODUCTION)]
    for result in results:
        same = [other for other in others if other.title == result.title]
        tried = {
            run["learning_rate"]
            for r in first_stage
            if r.title == result.title
            for run in (r.runs[key] for key in r.task.keys)
        }
        rates = join_names([f"{rate:g}" for rate in sorted(tried)])
        text = f"{description(result)} Learning rates tried: {rates}."
        parts += [f"## {result.title.capitalize()}", filled(text), by_length(result, same)]
    return "\n\n".join(parts) + "\n"


def description(result: TaskResult) -> str:
    """Return what the task asks, how the models were trained on it, and how they were evaluated."""
    task, settings = result.task, result.task.settings
    stop = ""
    if STOP in settings:
        least = "least" if task.metric.better == "higher" else "most"
        examples = settings["training.stop.examples"]
        stop = f"until {task.metric.name} on {examples} new examples was at {least} {settings[STOP]:g}, "
    sizes = sorted({seed.n for s in task.series for point in s.points for seed in point.seeds})
    examples = " to ".join(dict.fromkeys(f"{size:,.0f}" for size in (sizes[0], sizes[-1])))
    trained = f"trained on {trained_lengths(result)} with batches of {settings['training.batch_size']}"
    return (
        f"{result.question[0].upper()}{result.question[1:]}. `{task.name}`, {trained}, {stop}for at most "
        f"{settings['training.steps']:,} steps. Evaluated on {examples} examples of each length. Score: "
        f"{task.metric.label(task.unit)}, {task.metric.better} is better."
    )


def trained_lengths(result: TaskResult) -> str:
    """Return the training lengths: `1 to 8 symbols`."""
    task = result.task
    return f"{f'{task.shortest} to ' if task.shortest < task.train_length else ''}{task.train_length} {task.unit}"


def by_length(result: TaskResult, others: Sequence[TaskResult]) -> str:
    """Return the table of the scores: baselines, encodings, and the other encodings that were trained on the task."""
    lengths = result.task.lengths
    rows = [
        [f"*{b.label}*", "", "", *(f"*{b.scores[n]:.2f}*" if n in b.scores else "" for n in lengths)]
        for b in result.task.baselines
    ]
    known = {series.label for series in result.task.series}
    rows += [row(result, series) for series in result.task.series]
    rows += [row(other, series) for other in others for series in other.task.series if series.label not in known]
    return table(["encoding", "seeds", "learning rate, steps", *(f"{n} {result.task.unit}" for n in lengths)], rows)


def row(result: TaskResult, series: Series) -> list[str]:
    points = [series.point_at(length) for length in result.task.lengths]
    scores = [f"{p.mean:.2f} [{p.interval.low:.2f}, {p.interval.high:.2f}]" if p else "" for p in points]
    seeds = max((point.n_seeds for point in series.points), default=0)
    return [series.label, f"{seeds}", result.rate_text(series.label), *scores]
