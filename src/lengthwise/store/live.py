"""The queries of `Store` for pages that follow running studies. Each reads only what such a page shows."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager

from sqlalchemy import Connection

from lengthwise.store import reading
from lengthwise.store.rows import Activity, RunRow, StudyRow, plain_text


class LiveQueries:
    """The part of `Store` for live pages."""

    _transaction: Callable[..., AbstractContextManager[Connection]]
    _now: Callable[[Connection], float]

    def activity(self, study: str) -> list[Activity]:
        """Return what is done with each of the study's runs now, in its order."""
        with self._transaction(writes=False) as connection:
            return reading.activity(connection, plain_text(study), self._now(connection))

    def overview(self) -> list[tuple[StudyRow, list[Activity]]]:
        """Return all studies, oldest first, and what is done with their runs, in their order."""
        with self._transaction(writes=False) as connection:
            return reading.overview(connection, self._now(connection))

    def runs_of(self, keys: Sequence[str]) -> dict[str, RunRow]:
        """Return the runs with these keys, in their order. Keys without a run are left out."""
        with self._transaction(writes=False) as connection:
            return reading.runs_of(connection, list(dict.fromkeys(map(plain_text, keys))), self._now(connection))

    def score_lengths(self, keys: Iterable[str]) -> list[int]:
        """Return the lengths at which these runs have scores, ascending."""
        with self._transaction(writes=False) as connection:
            return reading.score_lengths(connection, list(keys))

    def means(self, keys: Iterable[str], lengths: Iterable[int]) -> dict[tuple[str, int], list[float]]:
        """Return the means of the scores of these runs at these lengths, by key and length: one for each question."""
        with self._transaction(writes=False) as connection:
            return reading.means(connection, list(keys), list(lengths))

    def fingerprint(self, study: str) -> tuple[object, ...]:
        """Return numbers that change with the study's runs, scores and answers."""
        with self._transaction(writes=False) as connection:
            return reading.fingerprint(connection, plain_text(study))
