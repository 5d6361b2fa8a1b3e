"""Checks of tasks that users define: a task's examples must agree with what its methods declare.

A mistake would otherwise put scores under the wrong length, or train each encoding on different data, without an error.
"""

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from lengthwise.class_versions import is_own, place
from lengthwise.config import ConfigError
from lengthwise.tasks.base import Batch, Task, generator
from lengthwise.tasks.pairs import NOTHING, Draft, Pairs
from lengthwise.tasks.sequences import SequenceTask

FEW = 4  # examples that are looked at


def require_kept(task: Task, length: int) -> None:
    """Raise `ConfigError`, with the file and line of the class, if examples of this length contradict the task.

    Checked on a few examples: the type and shape of what `draw` returns, word ids, `widths`, `length_of`, and that the same
    generator state gives the same examples. Tasks of Lengthwise itself are not checked here; the tests do that.
    """
    make = type(task)
    if is_own(make):
        return
    where = f"{place(make)}: {make.__name__}"
    if isinstance(task, SequenceTask):
        task.check_length(length)
        one, other = (task.draw(generator(0, "contract", length), FEW, length) for _ in range(2))
        _require_pairs(where, task, one, length)
        same = torch.equal(one.questions, other.questions) and torch.equal(one.answers, other.answers)
        method = "draw"
    else:
        first, second = (task.sample(generator(0, "contract", length), FEW, length) for _ in range(2))
        if not isinstance(first, Batch):
            raise ConfigError(
                f"{where}.sample returned a {type(first).__name__}; it has to be a lengthwise.tasks.Batch"
            )
        same = all(_equal(getattr(first, f.name), getattr(second, f.name)) for f in fields(first))
        method = "sample"
    if not same:
        raise ConfigError(
            f"{where}.{method} returned other examples for the same generator; draw every random number with the generator that it "
            "is given, as in torch.randint(10, (count, length), generator=generator)"
        )


def _require_pairs(where: str, task: SequenceTask, drawn: Any, length: int) -> None:
    if not isinstance(drawn, (Pairs, Draft)):
        raise ConfigError(f"{where}.draw returned a {type(drawn).__name__}; it has to be Pairs(questions, answers)")
    for name in ("questions", "answers"):
        ids = getattr(drawn, name)
        if not isinstance(ids, Tensor) or ids.is_floating_point() or ids.dtype == torch.bool or ids.ndim != 2:
            shape = f"{ids.dtype} of shape {list(ids.shape)}" if isinstance(ids, Tensor) else f"a {type(ids).__name__}"
            raise ConfigError(
                f"{where}.draw returned {name} that are {shape}; they have to be whole numbers [count, words]"
            )
        if len(ids) != FEW:
            raise ConfigError(f"{where}.draw returned {len(ids)} {name} where {FEW} were asked for")
        if ids.numel() and not NOTHING <= int(ids.min()) <= int(ids.max()) < len(task.words):
            raise ConfigError(
                f"{where}.draw returned {name} with words {int(ids.min())} to {int(ids.max())}; the task has the words 0 to "
                f"{len(task.words) - 1}, and -1 for none"
            )
    widths = task.widths(length)
    for question, answer in zip(drawn.questions.tolist(), drawn.answers.tolist(), strict=True):
        words = [[task.words[n] for n in row if n != NOTHING] for row in (question, answer)]
        for name, row, most in zip(("question", "answer"), words, widths, strict=True):
            if len(row) > most:
                raise ConfigError(
                    f"{where}.draw returned {_a(name)} of {len(row)} words at length {length}, and its method widths says at most "
                    f"{most}; mend one of them"
                )
        if (found := task.length_of(*words)) != length:
            raise ConfigError(
                f"{where}.draw was asked for length {length}, and its method length_of says {found} of what it returned "
                f"({' '.join(words[0])} → {' '.join(words[1])}); mend one of them"
            )


def _a(name: str) -> str:
    return f"an {name}" if name.startswith("a") else f"a {name}"


def _equal(one: Any, other: Any) -> bool:
    return torch.equal(one, other) if isinstance(one, Tensor) and isinstance(other, Tensor) else one == other
