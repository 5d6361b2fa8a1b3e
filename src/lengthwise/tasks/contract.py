"""Consistency checks of user-defined tasks: the examples must agree with what the task's methods declare.

Without these checks a mistake would silently assign scores to the wrong length, or train each encoding on different data.
"""

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.tasks.base import Batch, Task, generator
from lengthwise.tasks.pairs import NO_WORD, require_pairs
from lengthwise.tasks.sequences import SequenceTask
from lengthwise.user_classes import is_builtin_class, source_location, wrong_return

CHECKED_EXAMPLES = 4


def require_consistent(task: Task, length: int) -> None:
    """Raise `ConfigError`, with the file and line of the class, if examples of this length contradict the task.

    A few examples are checked: the type and shape of what `draw` returns, the word ids, `widths`, `length_of`, and that the same
    generator state gives the same examples. Lengthwise's own tasks are not checked here, because the tests do that.
    """
    task_class = type(task)
    if is_builtin_class(task_class):
        return
    where = f"{source_location(task_class)}: {task_class.__name__}"
    if isinstance(task, SequenceTask):
        task.check_length(length)
        first, second = (task.draw(generator(0, "contract", length), CHECKED_EXAMPLES, length) for _ in range(2))
        _require_pairs(where, task, first, length)
        same = torch.equal(first.questions, second.questions) and torch.equal(first.answers, second.answers)
        method = "draw"
    else:
        one, other = (task.sample(generator(0, "contract", length), CHECKED_EXAMPLES, length) for _ in range(2))
        if not isinstance(one, Batch):
            raise wrong_return(task, "sample", "a lengthwise.tasks.Batch", one)
        same = all(_equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
        method = "sample"
    if not same:
        raise ConfigError(
            f"{where}.{method} must return the same examples for the same generator state; pass its generator to every random "
            "function, as in torch.randint(10, (count, length), generator=generator)"
        )


def _require_pairs(where: str, task: SequenceTask, pairs: Any, length: int) -> None:
    require_pairs(task, "draw", pairs, CHECKED_EXAMPLES, CHECKED_EXAMPLES)
    widths = task.checked_widths(length)
    for question, answer in zip(pairs.questions.tolist(), pairs.answers.tolist(), strict=True):
        words = [[task.words[n] for n in row if n != NO_WORD] for row in (question, answer)]
        for name, row, width in zip(("a question", "an answer"), words, widths, strict=True):
            if len(row) > width:
                raise ConfigError(
                    f"{where}.draw returned {name} of {len(row)} words at length {length}, but widths({length}) "
                    f"allows at most {width}; correct one of the two methods"
                )
        if (returned := task.length_of(*words)) != length:
            raise ConfigError(
                f"{where}.draw was called with length {length}, but length_of returns {returned} for its example "
                f"({' '.join(words[0])} → {' '.join(words[1])}); correct one of the two methods"
            )


def _equal(first: Any, second: Any) -> bool:
    return torch.equal(first, second) if isinstance(first, Tensor) and isinstance(second, Tensor) else first == second
