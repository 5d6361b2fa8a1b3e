"""`lengthwise list`: encodings, tasks, position schemes, runs, studies."""

from typing import Any

from lengthwise.cli.printing import described, print_json, shown, stdout
from lengthwise.config import ConfigError, Registry, near_miss, settings_of

METHODS = ("encodings", "tasks", "positions")
LISTS = (*METHODS, "runs", "studies")


def show_list(what: str, names: tuple[str, ...], study: str | None, results: str, json: bool) -> int:
    wanted = what.lower()
    wanted = wanted if wanted in LISTS else f"{wanted}s" if f"{wanted}s" in LISTS else wanted
    if wanted not in LISTS:
        raise ConfigError(f"there is no list of {what!r}{near_miss(what, LISTS)}; there are: {', '.join(LISTS)}")
    if names and wanted not in METHODS:
        raise ConfigError(f"list {wanted} takes no names, and got {names[0]!r}; `lengthwise show KEY` shows one run")
    if study is not None and wanted != "runs":
        raise ConfigError(f"--study is for list runs, not for list {wanted}; leave it out")
    if wanted == "runs":
        _runs(study, results, json)
    elif wanted == "studies":
        _studies(results, json)
    else:
        _methods(_registry(wanted), names, json)
    return 0


def _registry(wanted: str) -> Registry:
    if wanted == "tasks":
        from lengthwise.tasks import TASKS

        return TASKS
    if wanted == "positions":
        from lengthwise.positions import POSITION_SCHEMES

        return POSITION_SCHEMES
    from lengthwise.encodings import ENCODINGS

    return ENCODINGS


# ---- encodings, tasks and position schemes ---------------------------------------------------------------------------


def _methods(registry: Registry, names: tuple[str, ...], json: bool) -> None:
    makes = [registry.find(name) for name in names] or list(registry)
    rows = [_method(make) for make in makes]
    if json:
        print_json(rows)
    elif names:
        for row in rows:
            print(f"{row['name']}: {row['documentation']}\n")
            settings = ", ".join(f"{k}={v!r}" for k, v in row["settings"].items())
            print(f"Settings: {settings or 'none'}\n")
    else:
        _method_table(registry, rows)


def _method(make: Any) -> dict[str, Any]:
    documentation = described(make)
    row: dict[str, Any] = {
        "name": make.__name__,
        "summary": _summary(documentation),
        "settings": {name: parameter.default for name, parameter in settings_of(make).items()},
    }
    for name in ("metric", "better", "unit", "shared_across_layers", "shift_invariant"):
        if hasattr(make, name):
            row[name] = getattr(make, name)
    return row | {"documentation": documentation}


def _summary(documentation: str) -> str:
    """The first paragraph, without a last sentence that only leads to an example below it."""
    text = documentation.partition("\n\n")[0].replace("\n", " ")
    return text[: text.rfind(". ") + 1] if text.endswith(":") and ". " in text else text


def _method_table(registry: Registry, rows: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    kind = registry.kind
    table.add_column(kind, no_wrap=True)
    table.add_column("what it is")
    if kind == "task":
        table.add_column("score", no_wrap=True)
        table.add_column("length in", no_wrap=True)
    table.add_column("settings and their defaults")
    for row in rows:
        settings = ", ".join(f"{k}={v}" if v != "" else f"{k}=''" for k, v in row["settings"].items())
        score = [f"{row['metric']}, {row['better']} is better", row["unit"]] if kind == "task" else []
        table.add_row(
            Text(row["name"], style="bold"), Text(row["summary"]), *map(Text, score), Text(settings or "none")
        )
    stdout().print(table)
    examples = {
        "encoding": "fire:hidden_layers=1",
        "task": "copy:symbols=10",
        "position scheme": "randomized:max_length=4096",
    }
    example = examples[kind]
    print(f"\nWith settings: {example}. More about one: lengthwise list {registry.plural} {example.partition(':')[0]}")


# ---- runs and studies -------------------------------------------------------------------------------------------


def _runs(study: str | None, results: str, json: bool) -> None:
    import dataclasses

    from rich.table import Table
    from rich.text import Text

    from lengthwise.analysis.gather import differences, flat
    from lengthwise.store import open_results

    with open_results(results, create=False) as store:
        rows = store.runs(study)
        listed = {row.key for one in store.studies() for row in store.runs(one.name)} if study is None else None
        where = store.name
    if json:
        print_json([dataclasses.asdict(row) for row in rows])
        return
    if not rows:
        print(shown(f"There are no runs in {where}{f' of study {study}' if study else ''}."))
        return
    # Runs that the columns do not tell apart: of another code of a class, with another learning rate, ...
    alike = [
        (row.label, row.task, row.seed, row.train_length, row.config.get("training", {}).get("steps")) for row in rows
    ]
    differ = differences(alike, [flat(row.config) for row in rows], [row.finished or row.created for row in rows])
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("key", "encoding", "task"):
        table.add_column(name, overflow="fold")
    for name in ("seed", "trained at", "steps"):
        table.add_column(name, justify="right")
    table.add_column("status")
    for row, words in zip(rows, differ, strict=True):
        steps = row.config.get("training", {}).get("steps", row.steps)
        done = steps if row.finished is not None else row.step
        status = f"{row.status}: {row.error}" if row.error else row.status
        status += ", in no study" if listed is not None and row.key not in listed else ""
        table.add_row(
            Text(row.key[:8], style="bold"),
            Text(f"{row.label} ({words})" if words else row.label),
            Text(row.task),
            f"{row.seed}",
            f"{row.train_length}",
            f"{done}/{steps}",
            Text(status),
        )
    stdout().print(table)


def _studies(results: str, json: bool) -> None:
    import dataclasses

    from rich.table import Table
    from rich.text import Text

    from lengthwise.store import open_results

    with open_results(results, create=False) as store:
        rows = store.studies()
        where = store.name
    if json:
        print_json([dataclasses.asdict(row) for row in rows])
        return
    if not rows:
        print(shown(f"There are no studies in {where}."))
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("study", overflow="fold")
    table.add_column("runs", justify="right")
    table.add_column("status")
    table.add_column("question")
    for row in rows:
        status = ", ".join(f"{number} {name}" for name, number in row.progress.items() if number)
        table.add_row(Text(row.name, style="bold"), f"{sum(row.progress.values())}", status, Text(row.question))
    stdout().print(table)
