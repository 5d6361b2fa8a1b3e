"""`lengthwise.results`: the scores of a study as a data frame of pandas."""

from os import PathLike
from typing import TYPE_CHECKING

from lengthwise.exchange.columns import score_columns
from lengthwise.store import open_results
from lengthwise.values import RESULTS, ConfigError, install_extra

if TYPE_CHECKING:
    from pandas import DataFrame


def results(study: str, *, results: str | PathLike[str] = RESULTS, store: str | None = None) -> "DataFrame":
    """Return the scores of a study as a data frame of pandas, with one row for each run and question.

    `results`: the results folder. `store`: the address of its database, if that is elsewhere, such as
    postgresql://user@host/name. The columns are those of `lengthwise export scores`. A standard error that is unknown is NaN.

    Raises `ConfigError` if pandas is missing or the study has no score yet, and `StoreError` for an unknown study.
    """
    try:
        import pandas
    except ImportError as error:
        raise ConfigError(
            f"lengthwise.results needs pandas, which cannot be imported ({error}); {install_extra('frames')}"
        ) from error
    with open_results(results, create=False, store=store) as opened:  # type: ignore[arg-type]
        return pandas.DataFrame(score_columns(opened, study))
