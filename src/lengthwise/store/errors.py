"""Errors of a results database, each described in one line."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from lengthwise.values import without_secrets


class StoreError(ValueError):
    """Results cannot be read or written. The message is one line: the problem, the expectation, and what to do."""


class Unstorable(StoreError):
    """A value cannot be stored, or could not be read back. The database is intact; the caller must correct
    the value.
    """


class StoreGone(StoreError):
    """The database's file was deleted or replaced while it was open, so nothing more can be stored in it."""


class StoreUnreachable(StoreError):
    """The database server does not answer now. Nothing was stored, or everything was; the same call may
    succeed later.
    """


class ClaimLost(StoreError):
    """A worker tried to write to a run that it does not hold. Nothing was written; it must stop and claim
    another run.
    """


@contextmanager
def store_errors(name: str, explain: Callable[[DBAPIError], str | None]) -> Iterator[None]:
    """Convert the database's exceptions in the block to `StoreError`. `name`: the store's name in messages.

    `explain`: returns a line on an error, or None if the error's own text is enough; it may raise `StoreUnreachable`.
    """
    try:
        yield
    except DBAPIError as error:
        raise StoreError(without_secrets(explain(error) or f"{name}: {first_line(error)}")) from error
    except SQLAlchemyError as error:
        raise StoreError(without_secrets(f"{name}: {first_line(error)}")) from error


def damaged(name: str, why: str) -> str:
    return f"{name} is damaged ({why}); restore a copy, or move it away and run the study again"


def locked(name: str, timeout: float) -> str:
    return f"{name} is locked by another program (waited {timeout:g} s); close that program and run this command again"


def read_only(name: str) -> str:
    return (
        f"{name} is read-only (the file or its folder is not writable); change the permissions or give another folder"
    )


def first_line(error: SQLAlchemyError) -> str:
    lines = str(getattr(error, "orig", None) or error).strip().splitlines()
    first = lines[0] if lines else type(error).__name__
    return re.sub(r'\b(user|role) "[^"]*"', r'\1 "***"', first)  # PostgreSQL repeats this part of the address
