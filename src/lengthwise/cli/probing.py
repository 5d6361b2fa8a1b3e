"""`lengthwise probe`: looks inside trained models."""

import dataclasses
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from lengthwise.cli.printing import console, duration, figure, print_json, shown, stdout
from lengthwise.config import ConfigError, near_miss

if TYPE_CHECKING:
    from lengthwise.store import RunRow, Store
    from lengthwise.studies.probing import Answer, Item

DISTANCE, ATTENDED = "attention-distance", "attended-distance"
PROBES = (DISTANCE, ATTENDED)
BARS = "▁▂▃▄▅▆▇█"
EXAMPLES = {DISTANCE: 10, ATTENDED: 100}


@dataclass(frozen=True)
class Wanted:
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

    def __post_init__(self) -> None:
        if self.what not in PROBES:
            raise ConfigError(
                f"there is no probe {self.what!r}{near_miss(self.what, PROBES)}; there are: {', '.join(PROBES)}"
            )
        if (self.run is None) == (self.study is None):
            raise ConfigError(
                "name a run's key, or a study with --study, one of the two; `lengthwise list runs` shows the keys"
            )
        if self.what == DISTANCE and self.against is None:
            raise ConfigError(
                "a distance is between two models: add --against KEY, or an encoding's name (--against nope) for its run with the "
                "same task and seed"
            )
        given = {"--against": self.against, "--variant": self.variant, "--across-seeds": self.across_seeds or None}
        odd = [option for option, value in given.items() if value is not None]
        if self.what == ATTENDED and odd:
            raise ConfigError(f"{odd[0]} is for {DISTANCE}; {ATTENDED} looks at one model at a time, leave it out")

    @property
    def settings(self) -> dict[str, Any]:
        found: dict[str, Any] = {"examples": EXAMPLES[self.what] if self.examples is None else self.examples}
        found["seed"] = self.seed
        return found if self.variant is None else found | {"variant": self.variant}

    def whole_lengths(self) -> list[int] | None:
        if self.lengths is None:
            return None
        try:
            found = [int(part) for part in self.lengths.split(",") if part.strip()]
        except ValueError:
            found = []
        if not found or min(found) < 1:
            raise ConfigError(f"--lengths is {self.lengths!r}; write whole numbers with commas: 20,40,80")
        return list(dict.fromkeys(found))


def probe(wanted: Wanted, results: str, device: str, threads: int, json: bool) -> int:
    from lengthwise.store import open_store

    folder = Path(results)
    with open_store(folder, create=False) as store:
        left_out: list[str] = []
        items = _items(store, wanted, left_out)
        answers = _ask(store, folder.parent if folder.is_file() else folder, items, device, threads)
    for line in left_out:
        print(f"lengthwise: left out: {shown(line)}", file=sys.stderr)
    if json:
        print_json([_data(answer) for answer in answers])
        return 0
    known = sum(not answer.new for answer in answers)
    stdout().print(_table(wanted.what, answers))
    if known:
        print(f"\n{known} of {len(answers)} answers were known already.")
    return 0


def _items(store: "Store", wanted: Wanted, left_out: list[str]) -> "list[Item]":
    from lengthwise.studies import probing

    lengths = wanted.whole_lengths()
    if wanted.what == ATTENDED:
        runs = [store.run(wanted.run)] if wanted.run is not None else store.runs(wanted.study)
        if wanted.study is not None:
            left_out += probing.why_not(runs)
            runs = _some([run for run in runs if run.finished is not None and probing.has_attention(run)], wanted.study)
        return probing.lookings(runs, lengths, **wanted.settings)
    assert wanted.against is not None
    if wanted.study is not None:
        pairs, why = probing.partners(store.runs(wanted.study), wanted.against, across=wanted.across_seeds)
        left_out += why
        _some(pairs, wanted.study)
    else:
        assert wanted.run is not None
        run = store.run(wanted.run)
        pairs = [(run, _partner(store, run, wanted))]
    return probing.distances(pairs, lengths, **wanted.settings)


def _partner(store: "Store", run: "RunRow", wanted: Wanted) -> "RunRow":
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
    import torch

    from lengthwise.studies import execution, probing

    execution._check(None, device, "auto", threads)
    torch.set_num_threads(threads)
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
    table.add_column("examples", justify="right")
    if what == DISTANCE:
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
        table.add_row(*cells, *(_distances(result) if what == DISTANCE else _looks(result)))
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


# ---- progress ---------------------------------------------------------------------------------------------------


class Show(Protocol):
    def __call__(self, item: "Item", examples: int) -> None: ...


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

        def show(item: "Item", examples: int) -> None:
            bars.update(bar, advance=item.work * examples / item.asked["examples"], description=item.name)

        yield show


class _Lines:
    def __init__(self, total: float):
        self.total, self.done = total, 0.0
        self.begin = self.printed = time.perf_counter()

    def __call__(self, item: "Item", examples: int) -> None:
        self.done += item.work * examples / item.asked["examples"]
        now = time.perf_counter()
        if now - self.printed < max(5.0, (now - self.begin) / 30):
            return
        self.printed = now
        left = (now - self.begin) * (self.total - self.done) / self.done
        about = f", about {duration(left)} left" if left >= 1 else ""
        print(f"{shown(item.name)} ({self.done / self.total:.0%}{about})", file=sys.stderr, flush=True)
