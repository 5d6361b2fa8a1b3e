"""Errors of a results database, each described in one line."""

import re

from sqlalchemy.exc import SQLAlchemyError


class StoreError(ValueError):
    """Results cannot be read or written. The message is one line: the problem, the expectation, and what to do."""


class Unstorable(StoreError):
    """A value cannot be stored, or could not be read back. The caller must correct the value."""


class StoreGone(StoreError):
    """The database's file was deleted or replaced while it was open, so nothing more can be stored in it."""


class StoreUnreachable(StoreError):
    """The server does not answer now. Nothing was stored, or everything was; the call may succeed later."""


class ClaimLost(StoreError):
    """A worker does not hold the run that it writes to. Nothing was written; it must claim another run."""


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
