"""Runs as they are stored: made again from their rows, and compared with what their classes are now."""

from collections.abc import Iterable, Iterator
from typing import Any

from lengthwise.analysis.gather import WHERE_ABOUTS, canonical
from lengthwise.choices import UnknownName
from lengthwise.config import ConfigError, Run
from lengthwise.plugins import how_to_find
from lengthwise.store import RunRow
from lengthwise.values import listing


def stored_run(row: RunRow) -> Run:
    """Return the run of a row.

    Raises `ConfigError` where it cannot be made here as it was: its class is unknown (the message says in which file the class
    was defined, which is never loaded by itself), its class has changed since, or another version of lengthwise made it.
    """
    named = f"run {row.key[:8]} ({row.label}, seed {row.seed})"
    try:
        run = Run.from_data(row.config)
    except UnknownName as error:
        places = row.facts.get("defined_in")
        hints = filter(None, (how_to_find(choice["is"], places) for choice in choices_of(row.config)))
        hint = "; ".join(dict.fromkeys(hints))
        raise ConfigError(f"{named}: {hint}" if hint else f"{named}: {error}") from error
    if run.key == row.key:
        return run
    if changed := changed_classes(row.config, run.to_data()):
        raise ConfigError(
            f"{named}: {listing(changed)} changed since it was trained; run its study again, or go back to the code as it was"
        )
    raise ConfigError(f"{named} has the key {run.key} here: another version of lengthwise made it; use that version")


def changed_since(row: RunRow) -> list[str]:
    """The names of the classes of a run that have changed since it was trained; those that cannot be found here are left out."""
    try:
        now = Run.from_data(row.config)
    except ConfigError:
        return []
    return changed_classes(row.config, now.to_data()) if now.key != row.key else []


def but_for_content(before: Iterable[RunRow], after: Iterable[RunRow]) -> dict[str, tuple[RunRow, RunRow]]:
    """Return, by the key of each run of `before`, that run and the one of `after` that has the same settings, where they differ in
    nothing but the versions of classes and the content of a text."""
    now = {canonical(_without_content(row.config)): row for row in after}
    pairs = ((row, now.get(canonical(_without_content(row.config)))) for row in before)
    return {old.key: (old, new) for old, new in pairs if new is not None and new.key != old.key}


def change_of_content(replaced: Iterable[tuple[RunRow, RunRow]]) -> str | None:
    """Return one line on the runs that will be trained again because the code of a class or a text changed; None without any.

    `replaced`: runs that a study had, each with the run that it has now (see `but_for_content`).
    """
    trained = [(old, new) for old, new in replaced if old.finished is not None and new.finished is None]
    names = list(
        dict.fromkeys(
            name
            for old, new in trained
            for name in (*changed_classes(old.config, new.config), *_changed_texts(old.config, new.config))
        )
    )
    if not names:
        return None
    runs, they = ("1 run was", "it") if len(trained) == 1 else (f"{len(trained)} runs were", "they")
    return f"{listing(names)} changed since {runs} trained; {they} will be trained again"


def changed_classes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """The names of the classes that have other versions in two descriptions of a run that are otherwise alike."""
    pairs = zip(choices_of(old), choices_of(new), strict=False)
    return list(dict.fromkeys(b["is"] for a, b in pairs if a["is"] == b["is"] and a.get("class") != b.get("class")))


def _changed_texts(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Where the texts lie that have another content in two descriptions of a run that are otherwise alike."""
    pairs = zip(choices_of(old), choices_of(new), strict=False)
    return [str(b.get("path", b["is"])) for a, b in pairs if a.get("sha256") != b.get("sha256")]


def choices_of(data: Any) -> Iterator[dict[str, Any]]:
    """Every choice in the description of a run, in one order."""
    if isinstance(data, dict):
        if isinstance(data.get("is"), str):
            yield data
        for name in sorted(data):
            yield from choices_of(data[name])
    elif isinstance(data, list):
        for item in data:
            yield from choices_of(item)


def without_versions(data: Any) -> Any:
    """The description of a run, or of a choice, without the versions of classes."""
    if isinstance(data, dict):
        return {k: without_versions(v) for k, v in data.items() if not (k == "class" and "is" in data)}
    return [without_versions(item) for item in data] if isinstance(data, list) else data


def _without_content(data: Any) -> Any:
    """The same, also without the hashes of texts and where these lie."""
    if isinstance(data, dict):
        skip = ("sha256", *WHERE_ABOUTS) if "sha256" in data else ()
        return {k: _without_content(v) for k, v in without_versions(data).items() if k not in skip}
    return [_without_content(item) for item in data] if isinstance(data, list) else data
