"""Whether this machine has enough memory for the evaluations of a study that have no score yet."""

from lengthwise.config import ConfigError, EvaluationConfig
from lengthwise.evaluation import questions, shifted, together
from lengthwise.evaluation.memory import ALWAYS_FITS, require_memory
from lengthwise.evaluation.questions import num_examples, prompt_length
from lengthwise.store import Store
from lengthwise.studies.study import Study
from lengthwise.tasks.base import PrefixTask, Task


def require_enough_memory(store: Store, study: Study) -> None:
    """Raise `ConfigError` for the first length without a score that surely needs more memory than this machine has."""
    tasks: dict[object, Task] = {run.task: run.task.build() for run in study.runs}
    for run in study.runs:
        config = study.evaluation_of(run)
        if all(tasks[run.task].tokens(length) <= ALWAYS_FITS for length, _ in _amounts(tasks[run.task], config)):
            continue
        for missing, shift in together(store.missing(run.key, questions(run.task, config))):
            choice = shifted(run.task, shift) if shift else run.task
            if choice not in tasks:
                tasks[choice] = choice.build()
            task = tasks[choice]
            try:
                require_memory(run, task, _amounts(task, missing), in_parts=True)
            except ConfigError as error:
                raise ConfigError(f"{run.label} on {run.task.label}: {error}") from error


def _amounts(task: Task, config: EvaluationConfig) -> list[tuple[int, int]]:
    """Return each length for which examples are drawn, with their number."""
    lengths = config.lengths
    if isinstance(task, PrefixTask) and task.prefixes_are_examples():
        lengths = (prompt_length(config),)
    return [(length, num_examples(task, config, length)) for length in lengths]
