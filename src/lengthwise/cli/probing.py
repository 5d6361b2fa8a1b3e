"""`lengthwise probe`: looks inside trained models."""

import dataclasses
import math
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from lengthwise.cli.options import whole_numbers
from lengthwise.cli.printing import console, duration, figure, print_json, shown, stdout
from lengthwise.config import ConfigError, near_miss

if TYPE_CHECKING:
    from lengthwise.store import RunRow, Store
    from lengthwise.studies.probing import Answer, Item

DISTANCE, ATTENDED = "attention-distance", "attended-distance"
RECENCY, DUPLICATES, MIDDLE, INDUCTION = "recency", "duplicates", "lost-in-the-middle", "induction"
IN_CONTEXT = (RECENCY, DUPLICATES, MIDDLE, INDUCTION)  # of functions learned in context
PROBES = (DISTANCE, ATTENDED, *IN_CONTEXT)
BARS = "▁▂▃▄▅▆▇█"
MOST_COUNTS = 10_000  # of --noise
EXAMPLES = {DISTANCE: 10, ATTENDED: 100}
OPTIONS = {
    RECENCY: ("points", "repeats"),
    DUPLICATES: ("points", "noise", "resamples"),
    MIDDLE: ("points", "positions", "resamples"),
    INDUCTION: ("points", "repeats", "neighbours"),
}


@dataclass(frozen=True)
class ProbeOptions:
    """What was written on the command line."""

    what: str
    run: str | None
    against: str | None
    study: str | None
    lengths: str | None
    examples: int | None
    seed: int
    variant: str | None
    across_seeds: bool = False
    options: dict[str, Any] = field(default_factory=dict)  # of functions learned in context; None: not given
    task: str | None = None

    def __post_init__(self) -> None:
        if self.what not in PROBES:
            raise ConfigError(
                f"there is no probe {self.what!r}{near_miss(self.what, PROBES)}; there are: {', '.join(PROBES)}"
            )
        if (self.run is None) == (self.study is None):
            raise ConfigError(
                "name a run's key, or a study with --study, one of the two; `lengthwise list runs` shows the keys"
            )
        if self.task is not None and self.study is None:
            raise ConfigError("--task chooses among the runs of a study, and a key names one run; leave it out")
        if self.what == DISTANCE and self.against is None:
            raise ConfigError(
                "a distance is between two models: add --against KEY, or an encoding's name (--against nope) for its run with the "
                "same task and seed"
            )
        given = {"--against": self.against, "--variant": self.variant, "--across-seeds": self.across_seeds or None}
        odd = [option for option, value in given.items() if value is not None]
        if self.what != DISTANCE and odd:
            raise ConfigError(f"{odd[0]} is for {DISTANCE}; {self.what} looks at one model at a time, leave it out")
        known = OPTIONS.get(self.what, ())
        for option in (name for name, value in self.options.items() if value is not None and name not in known):
            of = ", ".join(probe for probe, names in OPTIONS.items() if option in names)
            raise ConfigError(f"--{option} is for {of}; {self.what} has no such thing, leave it out")

    @property
    def settings(self) -> dict[str, Any]:
        if self.what in IN_CONTEXT:
            given = {name: value for name, value in self.options.items() if value is not None}
            if "noise" in given:
                given["noise"] = _counts(given["noise"])
            return {"examples": self.examples, "seed": self.seed, **given}
        found: dict[str, Any] = {"examples": EXAMPLES[self.what] if self.examples is None else self.examples}
        found["seed"] = self.seed
        return found if self.variant is None else found | {"variant": self.variant}

    def whole_lengths(self) -> list[int] | None:
        if self.lengths is None:
            return None
        return list(dict.fromkeys(whole_numbers(self.lengths, "--lengths", 1, "20,40,80")))


def _counts(text: str) -> list[int]:
    """`5-20` or `5,10,20`."""
    found: set[int] = set()
    for part in filter(None, map(str.strip, text.split(","))):
        ends = re.fullmatch(r"([0-9]{1,9})(?:\s*-\s*([0-9]{1,9}))?", part)
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (0, 0)
        if not (1 <= first <= last) or last - first >= MOST_COUNTS:
            raise ConfigError(f"--noise has {part[:40]!r}; write counts of examples, each at least 1: 5-20 or 5,10,20")
        found |= set(range(first, last + 1))
    if not found:
        raise ConfigError("--noise is empty; write counts of examples, each at least 1: 5-20 or 5,10,20")
    return sorted(found)


def probe(wanted: ProbeOptions, results: str, device: str, threads: int, json: bool) -> int:
    from lengthwise.store import open_results

    with open_results(results, create=False) as store:
        left_out: list[str] = []
        items = _items(store, wanted, left_out)
        answers = _ask(store, store.folder, items, device, threads)
    for line in [*(f"left out: {line}" for line in left_out), *_outdated(answers)]:
        print(f"lengthwise: {shown(line)}", file=sys.stderr)
    if json:
        print_json([_data(answer) for answer in answers])
        return 0
    known = sum(not answer.new for answer in answers)
    stdout().print(_table(wanted.what, answers))
    if known:
        print(f"\n{known} of {len(answers)} answers were known already.")
    return 0


def _outdated(answers: "list[Answer]") -> list[str]:
    """A line on stored answers of models whose code is another one now."""
    from lengthwise.studies.stored import changed_since
    from lengthwise.values import listing

    runs = {answer.item.run.key: answer.item.run for answer in answers if not answer.new}
    changed = {key: names for key, run in runs.items() if (names := changed_since(run))}
    if not changed:
        return []
    names = list(dict.fromkeys(name for found in changed.values() for name in found))
    runs_were = "1 run was" if len(changed) == 1 else f"{len(changed)} runs were"
    return [
        f"{listing(names)} changed since {runs_were} trained; what is shown of {'it' if len(changed) == 1 else 'them'} was stored "
        "before; run the study again for the code as it is now"
    ]


def _items(store: "Store", wanted: ProbeOptions, left_out: list[str]) -> "list[Item]":
    from lengthwise.studies import probing

    lengths = wanted.whole_lengths()
    if wanted.what == ATTENDED:
        runs = [store.run(wanted.run)] if wanted.run is not None else _of_study(store, wanted)
        if wanted.study is not None:
            left_out += probing.why_not(runs)
            runs = _some([run for run in runs if run.finished is not None and probing.has_attention(run)], wanted.study)
        return probing.attended_distance_jobs(runs, lengths, **wanted.settings)
    if wanted.what in IN_CONTEXT:
        return _in_context(store, wanted, lengths, left_out)
    assert wanted.against is not None
    if wanted.study is not None:
        pairs, why = probing.partners(_of_study(store, wanted), wanted.against, across=wanted.across_seeds)
        left_out += why
        _some(pairs, wanted.study)
    else:
        assert wanted.run is not None
        run = store.run(wanted.run)
        pairs = [(run, _partner(store, run, wanted))]
    return probing.distances(pairs, lengths, **wanted.settings)


def _of_study(store: "Store", wanted: ProbeOptions) -> "list[RunRow]":
    """The runs of the study, or those of them that have the task."""
    from lengthwise.studies import probing

    assert wanted.study is not None
    runs = store.runs(wanted.study)
    return runs if wanted.task is None else probing.of_task(runs, wanted.task, wanted.study)


def _in_context(store: "Store", wanted: ProbeOptions, lengths: list[int] | None, left_out: list[str]) -> "list[Item]":
    from lengthwise.studies import probing

    if wanted.run is not None:
        return probing.in_context([store.run(wanted.run)], wanted.what, lengths, **wanted.settings)
    assert wanted.study is not None
    runs = _of_study(store, wanted)
    left_out += [
        f"{run.key[:8]} ({run.label}, seed {run.seed}) is {run.status}" for run in runs if run.finished is None
    ]
    finished = _some([run for run in runs if run.finished is not None], wanted.study)
    items, why = probing.split_supported(probing.in_context(finished, wanted.what, lengths, **wanted.settings))
    if not items:
        raise ConfigError(f"no run of study {wanted.study!r} can be asked: {why[0]}")
    left_out += why
    return items


def _partner(store: "Store", run: "RunRow", wanted: ProbeOptions) -> "RunRow":
    from lengthwise.studies import probing

    assert wanted.against is not None
    if probing.is_encoding(wanted.against):
        return probing.partner(run, store.runs(), wanted.against, across=wanted.across_seeds)
    if wanted.across_seeds:
        raise ConfigError(
            "--across-seeds is for --against with an encoding's name; a key says which run it is, leave it out"
        )
    probing.require_no_misspelling(wanted.against)
    return store.run(wanted.against)


def _some(found: list[Any], study: str) -> list[Any]:
    if not found:
        raise ConfigError(
            f"study {study!r} has nothing yet that could be asked: no trained runs, or none to compare them with; run it"
        )
    return found


def _ask(store: "Store", folder: Path, items: "Sequence[Item]", device: str, threads: int) -> "list[Answer]":
    from lengthwise.studies import execution, probing
    from lengthwise.training.numerics import use_process

    execution._check(None, device, "auto", threads)
    use_process(threads)
    asker = probing.Asker(store, folder, device=device, threads=threads)
    known = asker.known(items)
    with _showing([item for n, item in enumerate(items) if n not in known]) as show:
        return probing.ask_all(asker, items, show)


def _data(answer: "Answer") -> dict[str, Any]:
    run = answer.item.run
    return {"label": run.label, "task": run.task, "seed": run.seed, "new": answer.new, **dataclasses.asdict(answer.row)}


# ---- tables -----------------------------------------------------------------------------------------------------


def _table(what: str, answers: "Sequence[Answer]") -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("run", overflow="fold")
    several = len({answer.item.run.task for answer in answers}) > 1
    if several:
        table.add_column("task", overflow="fold")
    if what == DISTANCE:
        table.add_column("against", overflow="fold")
    table.add_column("length", justify="right")
    table.add_column("prompts" if what in IN_CONTEXT else "examples", justify="right")
    if what in IN_CONTEXT:
        for head in HEADS[what]:
            table.add_column(head, justify="right")
    elif what == DISTANCE:
        table.add_column("mean", justify="right")
        table.add_column("nats in each layer, the first to the last", overflow="fold")
    else:
        table.add_column("highest logit at distance 0 … 1", no_wrap=True)
        table.add_column("below 0.05", justify="right")
        table.add_column("from 0.95", justify="right")
    for answer in answers:
        run, against, result = answer.item.run, answer.item.against, answer.row.result
        cells = [Text(f"{run.label}, seed {run.seed}, {run.key[:8]}"), *([Text(run.task)] if several else [])]
        if against is not None:
            cells.append(Text(f"{against.label}, seed {against.seed}"))
        cells += [Text(f"{answer.item.asked['length']}"), Text(f"{result['n']}")]
        table.add_row(*cells, *CELLS[what](result))
    return table


def _distances(result: dict[str, Any]) -> list[str]:
    layers = [math.nan if value is None else value for value in result["layers"]]
    return [f"{_nats(sum(layers) / len(layers))}", " ".join(map(_nats, layers))]


def _nats(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "–"


def _looks(result: dict[str, Any]) -> list[str]:
    """Over all layers and heads alike."""
    heads = [head for layer in result["most"] for head in layer]
    shares = [sum(bins) / len(heads) / result["queries"] for bins in zip(*heads, strict=True)]
    top = max(shares)
    strip = "".join(BARS[round(share / top * (len(BARS) - 1))] for share in shares)
    return [strip, figure(shares[0], 3), figure(shares[-1], 3)]


def _recent(result: dict[str, Any]) -> list[str]:
    """Of the weights on labels, the share of the most recent tenth, in the first and the last layer; and of all the heads."""
    heads = [[_share(head) for head in layer] for layer in result["layers"]]
    means = [sum(layer) / len(layer) for layer in heads]
    return [figure(means[0], 3), figure(means[-1], 3), figure(max(map(max, heads)), 3)]


def _share(head: list[float | None]) -> float:
    """How much of the weights is on the most recent tenth of the labels; an even head has 0.1."""
    numbers = [0.0 if n is None else n for n in head]
    return math.fsum(numbers[-max(1, round(len(numbers) / 10)) :]) / (math.fsum(numbers) or math.nan)


def _by_kind(*wanted: tuple[str, int | str]) -> Any:
    def cells(result: dict[str, Any]) -> list[str]:
        scores = {(made["kind"], made["at"]): made["score"] for made in result["prompts"]}
        curve = [
            made["at"] for made in result["prompts"] if made["kind"] in ("noise", "serial") and made["at"] != "none"
        ]
        ends: dict[tuple[str, int | str], tuple[str, int | str]] = {
            (kind, n): (kind, curve[n]) for kind in ("noise", "serial") for n in (0, -1)
        }
        return [_score(scores[ends.get(each, each)]) for each in wanted]

    return cells


def _score(value: float | None) -> str:
    return "–" if value is None else figure(value, 3)


def _induced(result: dict[str, Any]) -> list[str]:
    best = max(head or 0.0 for layer in result["induction"] for head in layer)
    return [figure(result["prefix_score"] or 0.0, 3), figure(best, 3), figure(result["nearest_score"] or 0.0, 3)]


HEADS = {
    RECENCY: ("recent tenth: first layer", "last layer", "best head"),
    DUPLICATES: ("least noise", "most noise", "target: begin", "middle", "end", "all the same"),
    MIDDLE: ("answers: begin", "middle", "end", "duplicate: first", "last", "none"),
    INDUCTION: ("prefix score", "best head", "nearest-neighbour score"),
}
CELLS: dict[str, Any] = {
    DISTANCE: _distances,
    ATTENDED: _looks,
    RECENCY: _recent,
    DUPLICATES: _by_kind(
        ("noise", 0), ("noise", -1), ("target", "begin"), ("target", "middle"), ("target", "end"), ("all", "all")
    ),
    MIDDLE: _by_kind(
        ("answers", "begin"),
        ("answers", "middle"),
        ("answers", "end"),
        ("serial", 0),
        ("serial", -1),
        ("serial", "none"),
    ),
    INDUCTION: _induced,
}


# ---- progress ---------------------------------------------------------------------------------------------------


class Show(Protocol):
    def __call__(self, item: "Item", examples: float) -> None: ...


@contextmanager
def _showing(items: "Sequence[Item]") -> Iterator[Show]:
    """Says on stderr how far it is: a bar on a terminal, otherwise a line now and then."""
    total = sum(item.work for item in items)
    lines = _Lines(total)
    if not (sys.stderr.isatty() and items):
        yield lines
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bars:
        bar = bars.add_task("", total=total)

        def show(item: "Item", examples: float) -> None:
            bars.update(bar, advance=item.work * examples / item.asked["examples"], description=item.name)

        yield show


class _Lines:
    def __init__(self, total: float):
        self.total, self.done = total, 0.0
        self.begin = self.printed = time.perf_counter()

    def __call__(self, item: "Item", examples: float) -> None:
        self.done += item.work * examples / item.asked["examples"]
        now = time.perf_counter()
        if now - self.printed < max(5.0, (now - self.begin) / 30):
            return
        self.printed = now
        left = (now - self.begin) * (self.total - self.done) / self.done
        about = f", about {duration(left)} left" if left >= 1 else ""
        print(f"{shown(item.name)} ({self.done / self.total:.0%}{about})", file=sys.stderr, flush=True)
