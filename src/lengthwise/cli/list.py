"""`lengthwise list`: encodings, tasks, position schemes, probes, runs, studies."""

import dataclasses
import importlib
from collections import defaultdict
from itertools import chain
from typing import Any

from lengthwise.cli.options import Place
from lengthwise.cli.printing import column, one_line, own_docstring, plain_table, print_json, print_table, stdout
from lengthwise.config import ConfigError, Registry, settings_of
from lengthwise.values import unlisted

METHODS = {  # list: what it is a list of, the package that defines it, its name there, and an example
    "encodings": ("encoding", "lengthwise.encodings", "ENCODINGS", "fire:hidden_layers=1"),
    "tasks": ("task", "lengthwise.tasks", "TASKS", "copy:symbols=10"),
    "positions": ("position scheme", "lengthwise.positions", "POSITION_SCHEMES", "randomized:max_length=4096"),
}
LISTS = (*METHODS, "probes", "runs", "studies")


def command(
    what: str | None = None,
    /,
    *names: str,
    study: str | None = None,
    failed: bool = False,
    available: bool = False,
    place: Place = Place(),
    json: bool = False,
) -> int:
    """List encodings, tasks, position schemes, probes, runs or studies.

    If names of encodings, tasks, position schemes, probes or studies of Lengthwise follow, print their full
    descriptions.

    Example: lengthwise list encodings; lengthwise list encodings fire; lengthwise list runs --study quickstart;
    lengthwise list studies --available; lengthwise list studies battery/core

    Args:
        what: What to list: encodings, tasks, positions (position schemes), probes, runs or studies.
        names: Encodings, tasks, position schemes, probes or studies of Lengthwise to describe.
        study: List only the runs of this study.
        failed: List only failed runs.
        available: List the studies that come with Lengthwise, instead of those in the results.
        json: Print JSON.
    """
    if what is None:
        raise ConfigError(f"name what to list: {', '.join(LISTS)}")
    list_name = what.lower()
    if list_name not in LISTS and f"{list_name}s" in LISTS:
        list_name += "s"
    if list_name not in LISTS:
        raise ConfigError(f"there is no list of {unlisted(what, LISTS)}")
    if names and list_name == "runs":
        raise ConfigError(f"list runs takes no names, got {names[0]!r}; `lengthwise show KEY` shows one run")
    for option, value, owner in (
        ("study", study, "runs"),
        ("failed", failed or None, "runs"),
        ("available", available or None, "studies"),
    ):
        if value is not None and list_name != owner:
            raise ConfigError(f"--{option} applies only to list {owner}, not to list {list_name}; omit it")
    if list_name == "runs":
        _list_runs(study, failed, place, json)
    elif available or (names and list_name == "studies"):
        _list_shipped_studies(names, json)
    elif list_name == "studies":
        _list_studies(place, json)
    elif list_name == "probes":
        _list_probes(names, json)
    else:
        _list_methods(list_name, names, json)
    return 0


# ---- encodings, tasks and position schemes ---------------------------------------------------------------------------


def _list_methods(list_name: str, names: tuple[str, ...], json: bool) -> None:
    _, package, registry_name, _ = METHODS[list_name]
    registry: Registry = getattr(importlib.import_module(package), registry_name)
    classes = [registry.find(name) for name in names] or list(registry)
    rows = [method_row(make) for make in classes]
    if json or names:
        _print_descriptions(rows, json)
    else:
        _print_method_table(list_name, rows)


def _print_descriptions(rows: list[dict[str, Any]], json: bool) -> None:
    if json:
        print_json(rows)
        return
    for row in rows:
        print(f"{row['name']}: {row['documentation']}\n")
        settings = ", ".join(f"{k}={v!r}" for k, v in row["settings"].items())
        print(f"Settings: {settings or 'none'}\n")


def method_row(make: Any) -> dict[str, Any]:
    documentation = own_docstring(make)
    row: dict[str, Any] = {
        "name": make.__name__,
        "summary": _summary(documentation),
        "settings": {name: parameter.default for name, parameter in settings_of(make).items()},
    }
    if hasattr(make, "metric"):
        row |= {"metric": make.metric.name, "better": make.metric.better, "unit": make.unit}
    for name in ("shared_across_layers", "shift_invariant"):
        if hasattr(make, name):
            row[name] = getattr(make, name)
    return row | {"documentation": documentation}


def _summary(documentation: str) -> str:
    """Return the first paragraph, without a last sentence that only introduces an example."""
    text = documentation.partition("\n\n")[0].replace("\n", " ")
    return text[: text.rfind(". ") + 1] if text.endswith(":") and ". " in text else text


def _print_method_table(list_name: str, rows: list[dict[str, Any]]) -> None:
    kind, _, _, example = METHODS[list_name]
    scores = [column(name, no_wrap=True) for name in ("score", "unit of length")] if kind == "task" else []
    names = column(kind, style="bold", no_wrap=True)
    table = plain_table(names, "description", *scores, "settings and their defaults")
    for row in rows:
        score = [f"{row['metric']}, {row['better']} is better", row["unit"]] if kind == "task" else []
        table.add_row(row["name"], row["summary"], *score, _defaults(row["settings"]))
    stdout().print(table)
    print(f"\nWith settings: {example}. Full description: lengthwise list {list_name} {example.partition(':')[0]}")


def _defaults(settings: dict[str, Any]) -> str:
    """Return settings and their defaults as one writes them, `seeds=3, text=''`, or `none`."""
    return ", ".join(f"{name}={value}" if value != "" else f"{name}=''" for name, value in settings.items()) or "none"


# ---- probes -----------------------------------------------------------------------------------------------------


def _list_probes(names: tuple[str, ...], json: bool) -> None:
    from lengthwise.measurements import MEASUREMENTS, find

    rows: list[dict[str, Any]] = [
        {"name": p.name, "summary": p.summary, "settings": p.settings, "documentation": p.documentation}
        for p in ([find(name.lower()) for name in names] or MEASUREMENTS.values())
    ]
    if json or names:
        _print_descriptions(rows, json)
        return
    table = plain_table(column("probe", style="bold", no_wrap=True), "description", "options and their defaults")
    for row in rows:
        # `--lengths` stands for the length of several questions.
        defaults = {"lengths" if name == "length" else name: value for name, value in row["settings"].items()}
        options = ", ".join(f"--{name.replace('_', '-')}: {value}" for name, value in defaults.items())
        table.add_row(row["name"], row["summary"], options or "none")
    stdout().print(table)
    print("\nFull description: lengthwise list probes recency. Help for the options: lengthwise probe recency --help")


# ---- runs and studies -------------------------------------------------------------------------------------------


def _list_runs(study: str | None, failed: bool, place: Place, json: bool) -> None:
    from lengthwise.analysis.code_marks import code_marks
    from lengthwise.analysis.differences import differences, flat
    from lengthwise.analysis.gather import last_use, listing_times

    with place.reading() as opened, opened.snapshot() as store:
        studies = store.studies()
        listed = listing_times(store, studies)
        members = {name: keys for name, keys in store.members().items() if name in {one.name for one in studies}}
        runs = store.runs()
        rows = list(runs) if study is None else store.runs(study)
        store_name = store.name
    rows = [row for row in rows if row.status == "failed" or not failed]
    studies_of: dict[str, list[str]] = defaultdict(list)
    for name, keys in members.items():
        for key in keys:
            studies_of[key].append(name)
    if study is None:  # in the order of the studies' lists, and then the runs that no study lists
        order = {key: place for place, key in enumerate(dict.fromkeys(chain.from_iterable(members.values())))}
        rows.sort(key=lambda row: (order.get(row.key, len(order)), row.task, row.label, row.seed))
    if json:
        print_json([dataclasses.asdict(row) for row in rows])
        return
    if not rows:
        print(
            one_line(
                f"There are no {'failed ' if failed else ''}runs in "
                f"{store_name}{f' of study {study}' if study else ''}."
            )
        )
        return
    # Describe the difference between runs with equal columns, such as another class version or learning rate.
    columns = [
        (row.label, row.task, row.seed, row.train_length, row.config.get("training", {}).get("steps")) for row in rows
    ]
    settings = [{k: v for k, v in flat(row.config).items() if not k.endswith(".class.code")} for row in rows]
    notes = zip(
        code_marks(rows, columns, runs, listed),
        differences(columns, settings, [last_use(row, listed) for row in rows]),
        strict=True,
    )
    show_studies = study is None and len({name for row in rows for name in studies_of[row.key]}) > 1
    texts = [column(name, overflow="fold") for name in (*(["study"] if show_studies else []), "encoding", "task")]
    numbers = [column(name, justify="right") for name in ("seed", "training length", "steps")]
    lines = []
    for row, note in zip(rows, (", ".join(filter(None, pair)) for pair in notes), strict=True):
        steps = row.config.get("training", {}).get("steps", row.steps)
        done = row.step if row.finished is None or row.config.get("training", {}).get("stop") else steps
        status = f"{row.status}: {row.error}" if row.error else row.status
        status += f" on {(row.worker or '').partition(':')[0]}" if row.status == "running" else ""
        status += ", in no study" if row.key not in listed else ""
        study_names = [", ".join(studies_of[row.key]) or "–"] if show_studies else []
        label = f"{row.label} ({note})" if note else row.label
        values = [label, row.task, f"{row.seed}", f"{row.train_length}", f"{done}/{steps}", status]
        lines.append([row.key[:8], *study_names, *values])
    print_table([column("key", style="bold", overflow="fold"), *texts, *numbers, column("status")], lines)


def _list_studies(place: Place, json: bool) -> None:
    with place.open() as store:
        rows = store.studies()
        store_name = store.name
    if json:
        print_json([dataclasses.asdict(row) for row in rows])
        return
    if not rows:
        print(one_line(f"There are no studies in {store_name}."))
        return
    names, counts = column("study", style="bold", overflow="fold"), column("runs", justify="right")
    table = plain_table(names, counts, "status", "question")
    for row in rows:
        status = ", ".join(f"{number} {name}" for name, number in row.progress.items() if number)
        table.add_row(row.name, f"{sum(row.progress.values())}", status, row.question)
    stdout().print(table)


def _list_shipped_studies(names: tuple[str, ...], json: bool) -> None:
    from lengthwise.studies.shipped import shipped_studies

    studies = shipped_studies()
    if unknown := [name for name in names if name not in studies]:
        raise ConfigError(f"Lengthwise has no study {unlisted(unknown[0], studies)}")
    chosen = {name: studies[name] for name in names} or studies
    if json:
        print_json(
            [{"name": name, **dataclasses.asdict(study), "path": str(study.path)} for name, study in chosen.items()]
        )
        return
    if names:
        for name, study in chosen.items():
            print(f"{name}: {study.documentation}\n\nOptions (--set NAME=VALUE): {_defaults(study.options)}\n")
        return
    table = plain_table(column("study", style="bold", no_wrap=True), "description", "cost")
    for name, study in studies.items():
        table.add_row(name, study.summary, study.cost)
    stdout().print(table)
    print("\nRun one: lengthwise run quickstart. Change a copy: lengthwise copy-study quickstart my.py")
    print("Full description and options: lengthwise list studies battery/core")
