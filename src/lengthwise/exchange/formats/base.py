"""The protocol of a format of tables."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal

from lengthwise.exchange.columns import Columns, curve_columns, score_columns

if TYPE_CHECKING:
    from lengthwise.store import Store

Table = Literal["scores", "curves"]


class Format(ABC):
    """A format of files with a table of a study. `suffix`: of its files. `tables`: what it can hold."""

    suffix: ClassVar[str]
    tables: ClassVar[tuple[Table, ...]]

    def require(self) -> None:  # noqa: B027  (most formats need none)
        """Raise `ConfigError` if a library that the format needs is missing."""

    @abstractmethod
    def content(self, store: "Store", study: str, table: Table) -> bytes:
        """Return the file. Raises `ConfigError` if the study has no results yet, and `StoreError` if it is unknown."""


class LongFormat(Format):
    """A format with one row per score, or per point of a training curve."""

    tables = ("scores", "curves")

    def content(self, store: "Store", study: str, table: Table) -> bytes:
        return self.of_columns(score_columns(store, study) if table == "scores" else curve_columns(store, study))

    @abstractmethod
    def of_columns(self, columns: Columns) -> bytes:
        """Return the file with these columns, which are equally long and not empty. NaN is a number that is not known."""
