"""The trained models of a results folder."""

import torch

from lengthwise.config import ConfigError, Run
from lengthwise.measurements.inside.trained import TrainedRun, load_trained_run
from lengthwise.store import ResultsFolder, RunRow
from lengthwise.studies.stored import described, stored_run
from lengthwise.training.tensor_file import CheckpointError, DamagedFile
from lengthwise.values import WEIGHTS


def require_trained(files: ResultsFolder, row: RunRow) -> Run:
    """Return the run of a row. Raises `ConfigError` if it is not finished, or if its weights are not in the folder."""
    if row.finished is None:
        raise ConfigError(
            f"run {described(row)} is {row.status}, and only a finished run has a trained model; run its study"
        )
    run = stored_run(row)
    if row.key not in files.trained([row.key]):
        raise ConfigError(
            f"run {described(row)} has no weights here ({files}/runs/{row.key}/{WEIGHTS}); copy them from where it was "
            "trained, or run its study again to retrain it"
        )
    return run


def load_model(files: ResultsFolder, row: RunRow, device: str = "cpu") -> TrainedRun:
    """Return the run of a row with its trained model. Raise `ConfigError` or `CheckpointError` if it has none."""
    run, folder = require_trained(files, row), files.run_folder(row.key)
    files.fetch(row.key)
    try:
        return load_trained_run(run, folder, device=torch.device(device))
    except DamagedFile as error:
        raise CheckpointError(
            f"{error}; copy it again from where it was trained, or delete it and run its study again to retrain it"
        ) from error
