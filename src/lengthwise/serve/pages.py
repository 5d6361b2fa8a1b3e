"""What the templates show: the data of each page, from the snapshot and from the store."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from lengthwise.analysis.differences import flat
from lengthwise.analysis.numbers import figure
from lengthwise.measurements import Table
from lengthwise.report.provenance import seconds
from lengthwise.serve import comparison
from lengthwise.serve.snapshots import Snapshot, StudyState, Watcher
from lengthwise.store import Activity, Store
from lengthwise.values import TRAINING

ROWS = 100  # runs on one page of a study
LENGTHS = 4  # columns of scores
WORDS = {
    "done": "done",
    "running": "running",
    "failed": "failed",
    "pending": "waiting",
}  # for statuses, in the order of the page


def address(path: str, **parameters: Any) -> str:
    """Return an address of this server. Parameters that are empty are left out."""
    query = urlencode({name: value for name, value in parameters.items() if value})
    return f"{path}?{query}" if query else path


def studies(snapshot: Snapshot, chosen: Sequence[str]) -> dict[str, Any]:
    """Return the data of the list of studies, newest first."""
    runs = ",".join(chosen)
    return {
        "studies": [
            {
                "name": name,
                "href": address("/study", name=name, runs=runs),
                "question": state.study.question,
                "progress": progress(state),
                "running": _running(snapshot, state.runs),
            }
            for name, state in sorted(snapshot.studies.items(), key=lambda item: -item[1].study.updated)
        ]
    }


def progress(state: StudyState) -> dict[str, Any]:
    """Return the numbers of runs with each status, and the parts of the bar in percent."""
    counts, total = state.study.progress, max(1, len(state.runs))
    segments, left = [], 0.0
    for status in ("done", "running", "failed"):
        width = 100 * counts[status] / total
        segments.append({"status": status, "left": round(left, 3), "width": round(width, 3)})
        left += width
    eta = state.eta if counts["running"] else None
    return {
        "counts": [{"status": status, "word": word, "number": counts[status]} for status, word in WORDS.items()],
        "parts": segments,
        "total": len(state.runs),
        "done": counts["done"],
        "eta": f"about {seconds(eta)} of training left" if eta is not None else "",
    }


def _running(snapshot: Snapshot, runs: Sequence[Activity]) -> list[dict[str, Any]]:
    return [run_line(snapshot, run) for run in runs if run.status == "running"]


def run_line(snapshot: Snapshot, run: Activity) -> dict[str, Any]:
    """Return the cells of a run that come from the snapshot."""
    eta = snapshot.etas.get(run.key)
    return {
        "key": run.key,
        "label": run.label,
        "task": run.task,
        "seed": run.seed,
        "status": run.status,
        "word": WORDS[run.status],
        "where": (run.worker or "").partition(":")[0] if run.status == "running" else "",
        "step": f"{run.step:,} of {run.steps:,}" if run.steps else "–",
        "share": round(100 * run.step / run.steps, 1) if run.steps else 0.0,
        "eta": f"{seconds(eta)} left" if eta else "",
        "error": run.error or "",
    }


def state_of(snapshot: Snapshot, name: str) -> StudyState:
    """Return a study. Raises `KeyError` with a line if there is none of that name."""
    from lengthwise.config import near_miss

    if name not in snapshot.studies:
        raise KeyError(
            f"there is no study {name!r}{near_miss(name, list(snapshot.studies))}; the first page lists all studies"
        )
    return snapshot.studies[name]


def study(
    watcher: Watcher, snapshot: Snapshot, name: str, page: int, words: str, chosen: Sequence[str]
) -> dict[str, Any]:
    """Return the data of a study's page: `ROWS` of its runs that match all words, and curves of the chosen runs."""
    state = state_of(snapshot, name)
    wanted = words.lower().split()
    matching = [run for run in state.runs if all(word in _searched(run) for word in wanted)]
    pages = max(1, -(-len(matching) // ROWS))
    page = min(max(page, 1), pages)
    visible = matching[(page - 1) * ROWS : page * ROWS]
    keys = [run.key for run in visible]
    stored, curves_of = watcher.remembered(visible, "rows", lambda store: (store.scores(keys), training(store, keys)))
    lengths = _spread(sorted({score.length for score in stored}), {run.train_length for run in visible})
    means: dict[tuple[str, int], list[float]] = {}
    for score in stored:
        means.setdefault((score.key, score.length), []).append(score.mean)
    rows = []
    for run in visible:
        losses = curves_of[run.key].column("loss") if run.key in curves_of else ()
        scores = [means.get((run.key, length), []) for length in lengths]
        cells = [
            {"text": figure(seed_means[0]) if seed_means else "–", "more": len(seed_means) - 1} for seed_means in scores
        ]
        line = run_line(snapshot, run)
        rows.append(line | {"loss": figure(losses[-1]) if losses else "–", "scores": cells})
    runs = ",".join(chosen)
    links = {"words": words, "runs": runs, "name": name}
    own = [run for run in state.runs if run.key in set(chosen)]
    return {
        "study": state.study,
        "progress": progress(state),
        "running": _running(snapshot, state.runs),
        "rows": rows,
        "lengths": [f"{n:,}" for n in lengths],
        "matching": len(matching),
        "words": words,
        "page": page,
        "pages": pages,
        "before": address("/study", **links, page=page - 1) if page > 1 else "",
        "after": address("/study", **links, page=page + 1) if page < pages else "",
        "report": address("/report", study=name),
        "any_done": state.study.progress["done"] > 0,
        "curves": curves(watcher, snapshot, chosen),
        "own": len(own),
    }


def _searched(run: Activity) -> str:
    return f"{run.label} {run.task} seed {run.seed} {WORDS[run.status]} {run.key}".lower()


def _spread(lengths: Sequence[int], trained: set[int]) -> list[int]:
    """Return at most `LENGTHS` of the lengths, from the training length to the longest, at equal distances."""
    longer = [n for n in lengths if n >= min(trained, default=0)] or list(lengths)
    if len(longer) <= LENGTHS:
        return longer
    return [longer[round(n * (len(longer) - 1) / (LENGTHS - 1))] for n in range(LENGTHS)]


def activities(snapshot: Snapshot, keys: Sequence[str]) -> list[Activity]:
    """Return what is done with the runs of these keys, in their order. Runs that no study lists are left out."""
    known = {run.key: run for state in snapshot.studies.values() for run in state.runs}
    return [known[key] for key in keys if key in known]


def training(store: Store, keys: Sequence[str]) -> dict[str, Table]:
    """Return the training curves of runs by key, of those that have one."""
    return {answer.key: Table.from_data(answer.rows) for answer in store.answers(keys, TRAINING)}


def curves(watcher: Watcher, snapshot: Snapshot, keys: Sequence[str]) -> dict[str, Any] | None:
    """Return the chart of the training losses of runs with its legend, or None without any loss."""
    chosen = activities(snapshot, keys)
    if not chosen:
        return None
    runs = comparison.named(chosen)
    tables = watcher.remembered(chosen, "curves", lambda store: training(store, [run.key for run in runs]))
    chart = comparison.curves_chart(runs, tables)
    return None if chart is None else {"chart": chart, "runs": runs}


def compare(watcher: Watcher, snapshot: Snapshot, keys: Sequence[str]) -> dict[str, Any]:
    """Return the data of runs side by side. Raises `KeyError` with a line for a key without a run."""
    chosen = activities(snapshot, keys)
    rows, scores = watcher.remembered(
        chosen, ("compare", *keys), lambda store: (runs := store.runs_of(keys), store.scores(runs))
    )
    if unknown := [key for key in keys if key not in rows]:
        raise KeyError(f"there is no run {unknown[0]!r}; choose runs on the pages of the studies")
    runs = list(rows.values())
    names = comparison.named(runs)
    lines = {run.key: run_line(snapshot, run) for run in chosen}
    listing = {key: name for name, state in snapshot.studies.items() for key in (run.key for run in state.runs)}
    heads = [
        {
            "run": name,
            "line": lines.get(name.key),
            "status": rows[name.key].status,
            "word": WORDS[rows[name.key].status],
            "study": listing.get(name.key, ""),
            "href": address("/study", name=listing.get(name.key, ""), runs=",".join(keys)),
            "without": address("/compare", runs=",".join(key for key in keys if key != name.key)),
        }
        for name in names
    ]
    return {
        "heads": heads,
        "names": names,
        "groups": comparison.score_groups(runs, names, scores),
        "curves": curves(watcher, snapshot, keys),
        "settings": comparison.setting_differences([run.config for run in runs]),
        "facts": comparison.setting_differences([_rounded(run.facts) for run in runs]),
        "tasks": sorted({run.task for run in runs}),
        "unscored": [name.name for name in names if name.key not in {score.key for score in scores}],
    }


def _rounded(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts with measured numbers, such as seconds, in six digits."""
    return {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in flat(facts).items()}
