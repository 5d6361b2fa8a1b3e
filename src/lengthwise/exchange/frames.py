"""`lengthwise.results` and `lengthwise.answers`: what is stored about a study, as data frames of pandas."""

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.exchange.columns import answer_columns, file_columns
from lengthwise.measurements import find
from lengthwise.measurements.answer_file import read
from lengthwise.store import Store, open_results
from lengthwise.values import RESULTS, SCORES, ConfigError, install_extra

if TYPE_CHECKING:
    from pandas import DataFrame


def results(study: str, *, results: str | PathLike[str] = RESULTS, store: str | None = None) -> "DataFrame":
    """Return the scores of a study as a data frame of pandas, with one row for each run and question.

    `results`: the results folder. `store`: the address of its database, if that is elsewhere, such as
    postgresql://user@host/name. The columns are those of `lengthwise export scores`. A standard error that is
    unknown is NaN.

    Raises `ConfigError` if pandas is missing or the study has no score yet, and `StoreError` for an unknown study.
    """
    if not isinstance(study, str):
        raise ConfigError(f"results() needs the name of a study, got {study!r}")
    with _opened("results", results, store) as (pandas, opened):
        return pandas.DataFrame(answer_columns(opened, study, SCORES))


def answers(
    study: str, measurement: str | None = None, *, results: str | PathLike[str] = RESULTS, store: str | None = None
) -> "DataFrame":
    """Return the answers of a measurement as a data frame of pandas, with one row for each of their rows.

    With `measurement`, these are the answers about the runs of the study. Without it, `study` is the file of an answer,
    such as that of `lengthwise bench --out`. `results`, `store`: as in `results`. The columns are those of
    `lengthwise export answers`.

    Raises `ConfigError` if pandas is missing or there is no such answer, and `StoreError` for an unknown study.
    """
    if not isinstance(study, (str, PathLike)):
        raise ConfigError(f"answers() needs the name of a study or the file of an answer, got {study!r}")
    if measurement is None:
        if not Path(study).suffix:
            raise ConfigError(
                f"answers({str(study)!r}) needs the name of a measurement; `lengthwise list probes` lists them"
            )
        return _pandas("answers").DataFrame(file_columns(read(Path(study))))
    name = find(measurement).name
    with _opened("answers", results, store) as (pandas, opened):
        return pandas.DataFrame(answer_columns(opened, study, name))


@contextmanager
def _opened(function: str, results: str | PathLike[str], store: str | None) -> Iterator[tuple[Any, Store]]:
    pandas = _pandas(function)
    with open_results(results, create=False, store=store) as opened:  # type: ignore[arg-type]
        yield pandas, opened


def _pandas(function: str) -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ConfigError(
            f"lengthwise.{function} needs pandas, which cannot be imported ({error}); {install_extra('frames')}"
        ) from error
    return pandas
