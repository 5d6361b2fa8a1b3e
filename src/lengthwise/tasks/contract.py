"""A look at a few examples of a user's task, before anything is trained on it.

Without it a mistake would silently assign scores to the wrong length, or end a training hours later.
"""

from typing import Any

import torch
from torch import Tensor

from lengthwise.tasks.base import Batch, Task, generator
from lengthwise.tasks.pairs import NO_WORD, require_pairs
from lengthwise.tasks.sequences import SequenceTask
from lengthwise.user_classes import is_builtin_class, not_repeatable, wrong_return

CHECKED_EXAMPLES = 4


def require_consistent(task: Task, length: int) -> None:
    """Raise `ConfigError`, with the file and line of the class, if examples of this length contradict the task.

    The task's methods `draw`, `widths` and `length_of`, or `sample` and `tokens`, have to agree about a few examples,
    and the same state of the generator has to give the same examples. Lengthwise's own tasks are not checked here,
    because the tests do that.
    """
    if is_builtin_class(type(task)):
        return
    if isinstance(task, SequenceTask):
        task.check_length(length)
        pairs, again = (task.draw(generator(0, "contract", length), CHECKED_EXAMPLES, length) for _ in range(2))
        require_pairs(task, "draw", pairs, CHECKED_EXAMPLES)
        _require_repeatable(task, "draw", (pairs.questions, pairs.answers), (again.questions, again.answers))
        widths = task.widths(length)
        for rows in zip(pairs.questions.tolist(), pairs.answers.tolist(), strict=True):
            question, answer = ([task.words[n] for n in row if n != NO_WORD] for row in rows)
            if (counted_length := task.length_of(question, answer)) != length:
                raise wrong_return(task, "draw", f"examples of length {length}, as `length_of` counts", counted_length)
            words = (len(question), len(answer))
            if words[0] > widths[0] or words[1] > widths[1]:
                expected = f"at most {widths} words in a question and its answer, as `widths` says"
                raise wrong_return(task, "draw", expected, words)
        return
    batch: Any
    batch, other = (task.sample(generator(0, "contract", length), CHECKED_EXAMPLES, length) for _ in range(2))
    if not isinstance(batch, Batch):
        raise wrong_return(task, "sample", "a lengthwise.tasks.Batch", batch)
    _require_repeatable(task, "sample", (batch.inputs, batch.targets), (other.inputs, other.targets))
    slots = task.tokens(length)
    for name in ("targets", "scored"):
        shape = getattr(batch, name).shape
        if len(shape) != 2 or shape[0] != CHECKED_EXAMPLES or shape[1] != batch.inputs.shape[1] or shape[1] > slots:
            expected = f"a Batch of {CHECKED_EXAMPLES} examples with at most {slots} token slots, as `tokens` says"
            raise wrong_return(task, "sample", expected, getattr(batch, name))


def _require_repeatable(task: Task, method: str, first: tuple[Tensor, ...], second: tuple[Tensor, ...]) -> None:
    """Raise `ConfigError` if two calls with the same state of the generator gave different examples."""
    if not all(torch.equal(a, b) for a, b in zip(first, second, strict=True)):
        raise not_repeatable(task, method, "examples")
