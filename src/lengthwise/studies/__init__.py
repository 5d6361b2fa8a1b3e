"""Studies: each is a Python file with a question, which is expanded into runs and executed.

    study = Study(
        name="shift",
        question="Which encoding still copies at four times the training length?",
        runs=grid(["nope", "rope", "fire-s"], ["copy"], seeds=3, training=TrainingConfig(train_length=8, steps=500)),
        evaluation=EvaluationConfig(lengths=(8, 16, 32)),
    )

`lengthwise run FILE` executes the `study` that a file defines; `execute(study, results)` is the same from Python.
"""

from lengthwise.studies.compute import Compute
from lengthwise.studies.events import Event
from lengthwise.studies.execution import Interrupted, Outcome, RunOptions, execute
from lengthwise.studies.loading import StudyError, load
from lengthwise.studies.stages import best_runs
from lengthwise.studies.study import Study, continued, encoding, grid, task

__all__ = [
    "Compute",
    "Event",
    "Interrupted",
    "Outcome",
    "RunOptions",
    "Study",
    "StudyError",
    "best_runs",
    "continued",
    "encoding",
    "execute",
    "grid",
    "load",
    "task",
]
