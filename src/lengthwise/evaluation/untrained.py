"""What the baselines of a task score on the prompts that a model is asked; worked out once for the same prompts."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from lengthwise.evaluation.baselines import predictions
from lengthwise.evaluation.ngrams import NGRAMS
from lengthwise.tasks.automata import PFA, Sayings
from lengthwise.tasks.base import Batch
from lengthwise.tasks.functions import FunctionTask

KEPT = 256  # curves, the last used ones; a curve has one number for each length
PROMPTS = 64  # fitted one by one (lasso), or counted, between two looks at whether to stop

Curve = dict[int, float]  # the mean score by length
_curves: OrderedDict[tuple[str, ...], Curve] = OrderedDict()


def baseline_scores(
    task: FunctionTask, examples: Batch, lengths: Iterable[int], before: Callable[[], None] = lambda: None
) -> dict[str, Curve]:
    """By baseline, its mean score at each of `lengths`: the prediction of y_n from the n - 1 examples before, as the task scores
    a model's. `before` is called ahead of every piece of work, and may raise.

    A process keeps what it has found: every run of a study is asked the same prompts, and only the first one pays.
    """
    xs, ys = task.examples_of(examples)
    wanted, found = list(lengths), {}
    prompts = _identity(xs, ys) if task.baselines else ""
    for name in task.baselines:
        curve = _kept(prompts, f"{type(task).__module__}.{type(task).__qualname__}", task.metric, name)
        missing = [n for n in wanted if n not in curve]
        if missing:
            # All lengths cost no more than the longest, but where every one is a fit of its own.
            every = missing if name == "lasso" else list(range(1, xs.shape[1] + 1))
            columns = [n - 1 for n in every]
            worth = task.worth(_predicted(name, xs, ys, columns, before), ys.double()[:, columns]).mean(0)
            curve.update(zip(every, (float(f"{value:.6g}") for value in worth.tolist()), strict=True))
        found[name] = {n: curve[n] for n in wanted}
    return found


def ngram_scores(
    task: PFA, examples: Sayings, lengths: Iterable[int], before: Callable[[], None] = lambda: None
) -> dict[str, Curve]:
    """The same for sequences of symbols: by name, the score of what `evaluation.ngrams` says of the next symbol."""
    wanted, found = list(lengths), {}
    sequences = _identity(examples.targets, examples.states, examples.says)  # the same symbols may have another truth
    for name, say in NGRAMS.items():
        curve = _kept(sequences, f"{type(task).__module__}.{type(task).__qualname__}", task.metric, name)
        if not curve:
            sums = torch.zeros(examples.targets.shape[1], dtype=torch.float64)
            for start in range(0, len(examples), PROMPTS):
                before()
                part = examples[start : start + PROMPTS]
                said = torch.from_numpy(say(part.inputs.numpy(), task.output_size))
                sums += task.distance(said, part).sum(0)
            means = (sums / len(examples)).tolist()
            curve.update(enumerate((float(f"{value:.6g}") for value in means), 1))
        found[name] = {n: curve[n] for n in wanted}
    return found


def _predicted(name: str, xs: Tensor, ys: Tensor, columns: list[int], before: Callable[[], None]) -> Tensor:
    size = PROMPTS if name == "lasso" else len(xs)
    parts = []
    for start in range(0, len(xs), size):
        before()
        cut = slice(start, start + size)
        parts.append(torch.from_numpy(predictions(name, xs[cut].numpy(), ys[cut].numpy(), columns)))
    return torch.cat(parts)


def _kept(*key: str) -> Curve:
    """What is known of a curve, to be added to."""
    curve = _curves.setdefault(key, {})
    _curves.move_to_end(key)
    while len(_curves) > KEPT:
        _curves.popitem(last=False)
    return curve


def _identity(*parts: Tensor) -> str:
    """Of the prompts themselves, whatever they were drawn by."""
    digest = hashlib.blake2b(repr(tuple(part.shape for part in parts)).encode(), digest_size=16)
    for part in parts:
        digest.update(part.contiguous().numpy().data)
    return digest.hexdigest()
