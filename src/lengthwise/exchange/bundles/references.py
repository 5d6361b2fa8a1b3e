"""What the rows of a bundle must have in common: they belong to one study, and each row is there once."""

from functools import lru_cache
from typing import Any

from lengthwise.store.checks import escaped, parse
from lengthwise.store.rows import canonical
from lengthwise.store.transfer import TABLES

LARGEST_POSITION = 2**31 - 1
JSON_IN_KEYS = {"runs": "config", "asked": "question", "scores": "question", "probes": "question"}  # compared as text


@lru_cache(4096)  # all runs of a study have the same few questions
def _is_canonical(text: str) -> bool:
    return canonical(parse(text), "a cell") == text


@lru_cache(4096)
def _length(question: str) -> Any:
    return parse(question)["length"]


class References:
    """What was read so far. `study`: the name in the manifest. `studies`: the number of rows of that table."""

    def __init__(self, study: str) -> None:
        self.study, self.studies = study, 0
        self._runs, self._members = set[str](), set[str]()
        self._known: dict[str, set[tuple[Any, ...]]] = {name: set() for name in TABLES}

    def reason_against(self, table: str, row: dict[str, Any]) -> str | None:
        """Return why a row of a table cannot stand beside those before it, or None. Tables come in the order of `TABLES`."""
        identity = tuple(row[column.name] for column in TABLES[table].primary_key)
        if identity in self._known[table]:
            return f"is a second row of {escaped(' '.join(map(str, identity)))}"
        self._known[table].add(identity)
        if "position" in row and not 0 <= row["position"] <= LARGEST_POSITION:
            return "has a position that is too large, or below 0"
        if (name := JSON_IN_KEYS.get(table)) is not None and not _is_canonical(row[name]):
            return f"has a {name} that is not canonical JSON"
        return self._broken_reference(table, row)

    def _broken_reference(self, table: str, row: dict[str, Any]) -> str | None:
        if table == "studies":
            self.studies += 1
            return None if row["name"] == self.study else "has another study than the manifest"
        if table == "runs":
            self._runs.add(row["key"])
            return None
        if row["key"] not in self._runs:
            return f"has the run {escaped(row['key'])}, which runs.jsonl lacks"
        if row.get("study", self.study) != self.study:
            return "has another study than the manifest"
        if table == "study_runs":
            self._members.add(row["key"])
        elif table == "asked" and row["key"] not in self._members:
            return f"has the run {escaped(row['key'])}, which the study does not list"
        elif table == "scores" and _length(row["question"]) != row["length"]:
            return "has another length than its question"
        return None
