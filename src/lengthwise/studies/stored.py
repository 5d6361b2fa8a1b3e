"""Stored runs: reconstructed from their rows, and compared with the current versions of their classes."""

from collections.abc import Iterable
from typing import Any

from lengthwise.analysis.code_marks import choices_of
from lengthwise.analysis.protocol import STORAGE_SETTINGS, canonical
from lengthwise.config import ConfigError, Run
from lengthwise.config.choices import UnknownName
from lengthwise.plugins import plugin_hint
from lengthwise.store import RunRow
from lengthwise.values import join_names


def described(row: RunRow) -> str:
    return f"{row.key[:8]} ({row.label}, seed {row.seed})"


def stored_run(row: RunRow) -> Run:
    """Return the run of a row.

    Raise `ConfigError` if it cannot be reconstructed: its class is unknown (the message names the file that defined the
    class, which is never loaded automatically), its class has changed, or another version of lengthwise created it.
    """
    description = f"run {described(row)}"
    try:
        run = Run.from_data(row.config)
    except UnknownName as error:
        defined_in = row.facts.get("defined_in")
        hints = filter(None, (plugin_hint(choice["is"], defined_in) for choice in choices_of(row.config)))
        hint = "; ".join(dict.fromkeys(hints))
        raise ConfigError(f"{description}: {hint}" if hint else f"{description}: {error}") from error
    if run.key == row.key:
        return run
    if changed := changed_classes(row.config, run.to_data()):
        raise ConfigError(
            f"{description}: {join_names(list(changed))} changed since it was trained; run its study again, or restore "
            f"the old code{edit_note(changed.values())}"
        )
    raise ConfigError(
        f"{description} was created by another version of lengthwise, its key is {run.key} in this one; use that "
        "version"
    )


def changed_since(row: RunRow) -> dict[str, bool]:
    """Return a run's classes that have changed since it was trained (see `changed_classes`), if they are known."""
    try:
        current = Run.from_data(row.config)
    except ConfigError:
        return {}
    return changed_classes(row.config, current.to_data()) if current.key != row.key else {}


def replaced_runs(before: Iterable[RunRow], after: Iterable[RunRow]) -> dict[str, tuple[RunRow, RunRow]]:
    """Return, by the old key, pairs of runs that differ only in versions of classes or the content of a text."""
    new_rows = {canonical(_without_content(row.config)): row for row in after}
    pairs = ((row, new_rows.get(canonical(_without_content(row.config)))) for row in before)
    return {old.key: (old, new) for old, new in pairs if new is not None and new.key != old.key}


def retraining_note(replaced: Iterable[tuple[RunRow, RunRow]]) -> str | None:
    """Return one line on the pairs of `replaced_runs` that will be trained again, and why; None without any."""
    trained = [(old, new) for old, new in replaced if old.finished is not None and new.finished is None]
    changed: dict[str, bool] = {}
    for old, new in trained:
        changed |= changed_classes(old.config, new.config)
        changed |= dict.fromkeys(_changed_texts(old.config, new.config), False)
    if not changed:
        return None
    runs, they = ("1 run was", "it") if len(trained) == 1 else (f"{len(trained)} runs were", "they")
    note = edit_note(changed.values())
    return f"{join_names(list(changed))} changed since {runs} trained; {they} will be trained again{note}"


def changed_classes(old: dict[str, Any], new: dict[str, Any]) -> dict[str, bool]:
    """Return the names of classes whose versions differ between two run descriptions with the same settings.

    The value of a name is whether the new description identifies the class by a hash of its files.
    """
    pairs = zip(choices_of(old), choices_of(new), strict=False)
    changed = (b for a, b in pairs if a["is"] == b["is"] and a.get("class") != b.get("class"))
    return {choice["is"]: "code" in (choice.get("class") or {}) for choice in changed}


def edit_note(hashed: Iterable[bool]) -> str:
    """Return what counts as a change, in parentheses, if any changed class is identified by a hash of its files."""
    if not any(hashed):
        return ""
    return (
        " (every edit of a class's file or of a module that it imports counts, even of a comment; to decide yourself "
        "what counts, declare version = 1 in the class)"
    )


def _changed_texts(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return the paths of texts whose content differs between two run descriptions with the same settings."""
    pairs = zip(choices_of(old), choices_of(new), strict=False)
    return [str(b.get("path", b["is"])) for a, b in pairs if a.get("sha256") != b.get("sha256")]


def without_versions(data: Any) -> Any:
    """Return the description of a run or a choice without the versions of classes."""
    if isinstance(data, dict):
        return {k: without_versions(v) for k, v in data.items() if not (k == "class" and "is" in data)}
    return [without_versions(item) for item in data] if isinstance(data, list) else data


def _without_content(data: Any) -> Any:
    """Return the description also without the hashes and paths of texts."""
    if isinstance(data, dict):
        skip = ("sha256", *STORAGE_SETTINGS) if "sha256" in data else ()
        return {k: _without_content(v) for k, v in without_versions(data).items() if k not in skip}
    return [_without_content(item) for item in data] if isinstance(data, list) else data
