"""`Store`: studies, claims and answers of measurements, such as scores, in one database."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from sqlalchemy import Connection, case, delete, select, update

from lengthwise.store import claims, dropping, reading, schema
from lengthwise.store.cells import escaped
from lengthwise.store.columns import encoded
from lengthwise.store.databases.base import Database
from lengthwise.store.databases.sqlite import FILE_NAME
from lengthwise.store.dropping import Dropped
from lengthwise.store.errors import ClaimLost, StoreError
from lengthwise.store.folders import ResultsFolder, results_option, store_option
from lengthwise.store.rows import Activity, AnswerRow, RunRow, ScoreRow, StudyRow, canonical, plain_text
from lengthwise.store.transfer import Transfers
from lengthwise.store.writing import batches, insert_rows, upsert
from lengthwise.values import SCORES, TRAINING


class Store(Transfers):
    """A results database, opened by `open_store`. Every method is one transaction; in a `snapshot`, all are one
    together.

    All may raise `StoreError`. Several processes and threads may use a database at once. A forked process must open
    `store.url` itself.
    """

    def __init__(self, database: Database, files: ResultsFolder | None = None, address: str | None = None):
        """`files`: the results folder. Default: the folder of the database's file. `address`: see `open_results`."""
        self._database, self._address = database, address
        self.name, self.url, self.path, self.readonly = database.name, database.url, database.path, database.readonly
        self._files = ResultsFolder(database.path.parent) if files is None and database.path is not None else files
        self._transaction, self._now = database.transaction, database.now

    @property
    def files(self) -> ResultsFolder:
        """Return the folder with the files of runs. Raise `StoreError` if the store was opened without one."""
        if self._files is None:
            raise StoreError(f"{self.name} was opened without a results folder; open it with open_results")
        return self._files

    @property
    def option(self) -> str:
        """Return the options of commands on this store, for messages, such as ` --results PATH`, or ""."""
        if self._files is None:
            return ""
        is_file = self._address is None and self.path is not None and self.path.name != FILE_NAME
        return store_option(self._address) + results_option(self.path if is_file and self.path else str(self._files))

    def __repr__(self) -> str:
        return f"Store({self.name!r}{', readonly=True' if self.readonly else ''})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database. Calling it again does nothing."""
        self._database.close()

    def disconnect(self) -> None:
        """Close unused connections to a server, which may have fewer of them than a cluster has workers."""
        self._database.disconnect()

    def require_file_unchanged(self) -> None:
        """Raise `StoreGone` if the database was deleted or replaced since it was opened."""
        self._database.require_unchanged()

    def require_shared_folder(self) -> None:
        """Raise `StoreError` unless `files` is the results folder that every user of this database has.

        Otherwise a worker would not find what another one has trained. The first caller decides which folder it is.
        """
        with self._transaction(writes=True) as connection:
            known = connection.scalar(select(schema.about.c.results_id).with_for_update())
            identifier = self.files.identifier(create=known is None)
            if known is None:
                connection.execute(update(schema.about).values(results_id=identifier))
            elif identifier != known:
                raise StoreError(
                    f"{self.files} is not the results folder of {self.name}, so the files of its runs would be "
                    "missing; give the folder that all machines share with --results, or another database with --store"
                )

    # ---- studies ------------------------------------------------------------------------------------------------

    def add_study(
        self,
        name: str,
        *,
        question: str = "",
        expectation: str = "",
        cost: str = "",
        command: str = "",
        evaluation: dict[str, Any],
        runs: list[dict[str, Any]],
        published: dict[str, Any] | None = None,
    ) -> list[RunRow]:
        """Add a study, or replace its list of runs and questions. Return the runs that it listed before and no
        longer lists.

        Known runs keep their training, their scores and the worker that holds them. Failed runs may be tried again.
        Runs that are no longer listed stay in the store. `facts` of a run may be left out; `finish` adds to them. So
        may its `parent`. `published`: see `StudyRow`.
        """
        name = plain_text(name)
        texts = {"name": name, "question": question, "expectation": expectation, "cost": cost, "command": command}
        description = {**texts, "evaluation": evaluation, "published": published}
        study = encoded(schema.studies, StudyRow, description, f"study {escaped(name)}")
        rows, questions = [], {}
        for number, run in enumerate(runs):
            what, run_questions = f"run {number} of study {name!r}", run["questions"]
            rows.append(encoded(schema.runs, RunRow, {n: v for n, v in run.items() if n != "questions"}, what))
            questions[run["key"]] = list(
                dict.fromkeys(canonical(question, f"{what}: questions") for question in run_questions)
            )
        keys = list(questions)
        with self._transaction(writes=True) as connection:
            now = self._now(connection)
            unlisted = reading.listed(connection, name, questions, now)
            study |= {"created": now, "updated": now}
            upsert(connection, self._database.insert(schema.studies), [study], ["created"])
            fresh = {"created": now, "claims": 0, "failures": 0, "deaths": 0, "step": 0, "steps": 0}
            fresh_rows = [row | fresh | {"position": n} for n, row in enumerate(rows)]
            upsert(connection, self._database.insert(schema.runs), fresh_rows, [*fresh, "position", "facts"])
            claims.forget_failures(connection, keys)
            connection.execute(delete(schema.study_runs).where(schema.study_runs.c.study == name))
            connection.execute(delete(schema.requested_questions).where(schema.requested_questions.c.study == name))
            members = [{"study": name, "key": key, "position": n} for n, key in enumerate(keys)]
            insert_rows(connection, schema.study_runs, members)
            question_rows = [
                {"study": name, "key": key, "question": question, "position": n}
                for key, texts in questions.items()
                for n, question in enumerate(texts)
            ]
            insert_rows(connection, schema.requested_questions, question_rows)
        return unlisted

    def studies(self) -> list[StudyRow]:
        """Return all studies, oldest first."""
        return [study for study, _ in self.overview()]

    def progress(self, study: str) -> dict[str, int]:
        """Return the number of the study's runs with each of the four statuses."""
        with self._transaction(writes=False) as connection:
            return reading.progress(connection, plain_text(study), self._now(connection))

    def is_unfinished(self, study: str) -> bool:
        """Return whether the study has a run that is neither failed nor done, with or without a worker."""
        with self._transaction(writes=False) as connection:
            return claims.is_unfinished(connection, plain_text(study))

    # ---- claims -------------------------------------------------------------------------------------------------

    def claim(self, study: str, worker: str) -> RunRow | None:
        """Claim a run of the study that needs work and that no living worker holds: one of a dead worker, or the
        first without a worker. Return None if there is none now.

        A run that starts from another one is claimed only after that one is trained or has failed. None does not
        mean that the study is done, because other workers may hold runs and die. No other worker gets the run until
        it is finished, failed or released, or until its worker is dead: its process on this host has ended, or it
        sent no heartbeat for 60 s.
        """
        study = plain_text(study)
        with self._transaction(writes=True) as connection:
            return claims.claim(connection, study, worker, self._now(connection))

    def heartbeat(self, key: str, worker: str, step: int, steps: int) -> bool:
        """Report that the worker is alive and its progress. Return False if it no longer holds the run."""
        with self._transaction(writes=True) as connection:
            deaths = case((schema.runs.c.step < int(step), 0), else_=schema.runs.c.deaths)
            values = {"heartbeat": self._now(connection), "deaths": deaths, "step": int(step), "steps": int(steps)}
            return connection.execute(claims.held(key, worker).values(values)).rowcount == 1

    def release(self, key: str, worker: str, *, failed: bool = False) -> bool:
        """Release the run, so that any worker can continue it. Return False if this worker does not hold it."""
        with self._transaction(writes=True) as connection:
            values = {**claims.CLAIM_OVER, "deaths": 0, "failures": schema.runs.c.failures + int(failed)}
            return connection.execute(claims.held(key, worker).values(values)).rowcount == 1

    def fail(self, key: str, worker: str, error: str) -> bool:
        """Mark the run as failed, until `retry`, or until its study is added again. Return False as in `release`."""
        with self._transaction(writes=True) as connection:
            over = {**claims.CLAIM_OVER, "deaths": 0, "failures": schema.runs.c.failures + 1}
            values = {**over, "error": plain_text(error) or "unknown"}
            return connection.execute(claims.held(key, worker).values(values)).rowcount == 1

    def retry(self, keys: Sequence[str]) -> list[str]:
        """Let workers take these runs again if they have failed. Return the keys of those that had."""
        with self._transaction(writes=True) as connection:
            return claims.forget_failures(connection, keys)

    def cancel(self, keys: Sequence[str]) -> list[str]:
        """Mark runs that are neither done nor failed as failed, so that no worker takes them. Return their keys.

        A worker that holds one of them notices it within seconds, saves a checkpoint and takes another run.
        """
        with self._transaction(writes=True) as connection:
            return claims.cancel(connection, keys, self._now(connection))

    def finish(self, key: str, worker: str, facts: dict[str, Any]) -> None:
        """Mark the run as trained. Raises `ClaimLost` if the worker does not hold it.

        `facts` are merged into the stored ones and replace those of the same name; pass `{}` if only questions were
        answered.
        """
        with self._transaction(writes=True) as connection:
            row = self._holding(connection, key, worker)
            written = canonical(json.loads(row.facts) | facts, f"run {key}: facts")
            values = {**claims.CLAIM_OVER, "error": None, "finished": self._now(connection), "facts": written}
            connection.execute(claims.held(key, worker).values(values))

    def reopen(self, keys: Sequence[str]) -> int:
        """Mark finished runs without a worker as untrained, so that they are trained again. Return their number.

        Their training curves are deleted, because the next training has its own. Scores stay.
        """
        with self._transaction(writes=True) as connection:
            reopened: list[str] = []
            for batch in batches(list(keys)):
                free = schema.runs.c.key.in_(batch), schema.runs.c.worker.is_(None), schema.runs.c.finished.is_not(None)
                reopened += connection.scalars(select(schema.runs.c.key).where(*free))
            for batch in batches(reopened):
                connection.execute(update(schema.runs).where(schema.runs.c.key.in_(batch)).values(finished=None))
                curves = schema.answers.c.key.in_(batch), schema.answers.c.measurement == TRAINING
                connection.execute(delete(schema.answers).where(*curves))
        return len(reopened)

    def drop(self, keys: Sequence[str], *, finished: bool = False) -> Dropped:
        """Delete runs with their files, answers and entries in studies, and studies that are empty afterwards.

        Either all runs are deleted or none: raises `StoreError` if a living worker holds one and, without
        `finished`, if one is trained. Only runs whose files cannot be deleted remain (`Dropped.stuck`).
        """
        with self._transaction(writes=True) as connection:
            return dropping.drop_runs(connection, keys, finished, self._now(connection), self.name, self._files)

    def drop_study(self, study: str, *, finished: bool = False) -> Dropped:
        """Delete a study and its runs with their files, except for runs that another study lists too.

        Runs stay if a living worker holds them, if their files cannot be deleted (`Dropped.stuck`), or, without
        `finished`, if they are trained. The study stays if any of these runs does.
        """
        with self._transaction(writes=True) as connection:
            return dropping.drop_study(connection, plain_text(study), finished, self._now(connection), self._files)

    def _holding(self, connection: Connection, key: str, worker: str | None) -> Any:
        """Lock and return the run's row. Raise `ClaimLost` unless `worker` (None: no worker) holds it."""
        row = connection.execute(select(schema.runs).where(schema.runs.c.key == key).with_for_update()).one_or_none()
        if row is None:
            raise StoreError(f"{self.name} has no run {key!r}; add the study that lists it first")
        if row.worker != worker:
            holder = f"is held by {row.worker}" if row.worker else "is not held by any worker"
            caller = worker or "this caller"
            raise ClaimLost(
                f"run {key} {holder}, so {caller} cannot write to it; nothing was stored, claim a run again"
            )
        return row

    # ---- scores and other answers -------------------------------------------------------------------------------

    def missing(self, key: str, questions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the questions that have no score yet, in the same order."""
        with self._transaction(writes=False) as connection:
            return reading.unanswered(connection, key, questions)

    def add_answers(self, key: str, answers: Iterable[Mapping[str, Any]], *, worker: str | None = None) -> None:
        """Store answers about a run, such as scores: rows with the columns of `AnswerRow`.

        A question that already has an answer keeps it. `worker`: must hold the run; otherwise raises `ClaimLost` and
        stores nothing. None: no worker need hold the run.
        """
        values = [{"key": key, **encoded(schema.answers, AnswerRow, row, f"an answer of run {key}")} for row in answers]
        with self._transaction(writes=True) as connection:
            if worker is not None:
                self._holding(connection, key, worker)
            elif connection.scalar(select(schema.runs.c.key).where(schema.runs.c.key == key)) is None:
                raise StoreError(f"{self.name} has no run {key!r}; add the study that lists it first")
            now = self._now(connection)
            upsert(connection, self._database.insert(schema.answers), [v | {"created": now} for v in values])
            if any(value["measurement"] == SCORES for value in values):  # progress
                connection.execute(update(schema.runs).where(schema.runs.c.key == key).values(deaths=0))

    def add_answer(
        self, key: str, measurement: str, question: dict[str, Any], rows: dict[str, Any], facts: dict[str, Any]
    ) -> AnswerRow:
        """Store the answer to one question, and return the stored one."""
        answer = {"measurement": measurement, "question": question, "rows": rows, "facts": facts}
        self.add_answers(key, [answer])
        stored = self.answer(key, measurement, question)
        assert stored is not None
        return stored

    def answer(self, key: str, measurement: str, question: dict[str, Any]) -> AnswerRow | None:
        """Return the answer to one question, or None if it is not stored yet."""
        text = canonical(question, "question")
        matches = (row for row in self.answers([key], measurement) if canonical(row.question, "question") == text)
        return next(matches, None)

    def answers(self, keys: Iterable[str], *measurements: str) -> list[AnswerRow]:
        """Return the answers of all measurements or of these, in the order of the keys."""
        with self._transaction(writes=False) as connection:
            return list(reading.answers(connection, keys, measurements))

    def scores(self, keys: Iterable[str]) -> list[ScoreRow]:
        """Return all scores of these runs, in the order of the keys and then by length."""
        with self._transaction(writes=False) as connection:
            return list(map(ScoreRow.of, reading.answers(connection, keys, [SCORES])))

    # ---- runs ---------------------------------------------------------------------------------------------------

    def runs(self, study: str | None = None) -> list[RunRow]:
        """Return the study's runs in its order, or all runs, oldest first."""
        with self._transaction(writes=False) as connection:
            return reading.runs(connection, None if study is None else plain_text(study), self._now(connection))

    def members(self) -> dict[str, list[str]]:
        """Return the keys of the runs that each study lists, in its order. Studies are ordered by their creation."""
        with self._transaction(writes=False) as connection:
            return reading.members(connection)

    def run(self, prefix: str) -> RunRow:
        """Return the run whose key starts with `prefix`. Raise `StoreError` unless there is exactly one."""
        with self._transaction(writes=False) as connection:
            key = reading.full_key(connection, prefix, self.name, self.option)
            return reading.run(connection, key, self._now(connection))

    # ---- what pages that follow running studies show ------------------------------------------------------------

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

    def fingerprint(self, study: str) -> tuple[object, ...]:
        """Return numbers that change with the study's runs and answers."""
        with self._transaction(writes=False) as connection:
            return reading.fingerprint(connection, plain_text(study))
