"""Answers said token by token: greedy decoding with the key-value cache, for tasks that grade what was said."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.config import ConfigError
from lengthwise.positions import Consecutive, PositionScheme, RandomPositions
from lengthwise.tasks.base import AnsweringTask, Batch, Graded, Task

KEPT = 3  # answers of a kind that are kept for reading, per length: unreadable ones, and others with such steps
LONGEST = 2000  # characters of a kept answer

PADDING, OWN = -1, 0  # documents of left padding, and of what is read


def decodable(task: Task, scheme: PositionScheme) -> AnsweringTask:
    """Return the task as one whose answers can be decoded token by token.

    Raises `ConfigError` if the task has no answers, or if the position scheme does not assign 0, 1, 2, ... in evaluation:
    decoded tokens get consecutive positions.
    """
    if not isinstance(task, AnsweringTask):
        raise ConfigError(f"{type(task).__name__} has no answers that could be decoded; evaluate it with decode=False")
    is_consecutive = isinstance(scheme, Consecutive) or (
        isinstance(scheme, RandomPositions) and not scheme.draws(training=False)
    )
    if not is_consecutive:
        raise ConfigError(
            f"{type(task).__name__} is scored by decoding, which needs the positions 0, 1, 2, ..., and {type(scheme).__name__} "
            "assigns others in evaluation; leave the position scheme out, or take a task without a scratchpad"
        )
    return task


def greedy_decode(
    model: nn.Module,
    task: AnsweringTask,
    batch: Batch,
    length: int,
    before_token: Callable[[], None] | None = None,
) -> tuple[list[list[str]], Tensor]:
    """What the model says greedily to each prompt (BOS question SEP) in words, and whether a logit on the way was NaN [b].

    It ends at EOS, or at the most tokens that an answer of that length has. Prompts shorter than the longest are padded on
    the left by a document of their own: one decoding for all, the same to rounding as each by itself.
    """
    prompts, documents = left_padded(batch)
    bad: list[Tensor] = []

    def listen(_: nn.Module, __: Any, logits: Float[Tensor, "b t v"]) -> None:
        bad.append(logits[:, -1].isnan().any(-1))
        if before_token is not None:
            before_token()

    handle = model.register_forward_hook(listen)
    try:
        made = model.generate(prompts, task.answer_tokens(length), documents=documents, stop=task.stop)  # type: ignore[operator]
    finally:
        handle.remove()
    said = made.tolist()
    sizes = [
        row.index(task.stop) + 1 if task.stop in row else len(row) for row in said
    ]  # what counts: to the first stop
    counts = torch.arange(made.shape[1], device=made.device) < torch.tensor(sizes, device=made.device)[:, None]
    nan = (torch.stack(bad[: made.shape[1]], 1) & counts).any(1)
    return [task.answer_words(row) for row in said], nan


def left_padded(batch: Batch) -> tuple[Int[Tensor, "b p"], Int[Tensor, "b p"] | None]:
    """The prompts of a batch, each ending in the last column, and the documents that mark the padding (None: there is none)."""
    sizes = batch.scored.int().argmax(1) + 1
    longest = int(sizes.max())
    if bool((sizes == longest).all()):
        return batch.inputs[:, :longest], None
    places = torch.arange(longest, device=sizes.device) - (longest - sizes[:, None])  # negative: padding
    prompts = batch.inputs.gather(1, places.clamp(min=0))
    return prompts, torch.where(places < 0, PADDING, OWN)


def detailed(task: Task, said: list[list[str]], examples: Batch, graded: Graded) -> dict[str, Any]:
    """Means of the further numbers over all examples and their order (a store keeps none), how many answers were unreadable,
    and for reading some of those, and of others some whose steps are ("broken", where there are any)."""
    means = {name: float(values.double().mean()) for name, values in graded.details.items()}
    kept, broken = (
        [
            {"question": _short(task.render(examples[n : n + 1])[0]["input"]), "generated": _short(" ".join(said[n]))}
            for n in some[:KEPT]
        ]
        for some in (graded.unreadable, graded.broken)
    )
    found = {"means": means, "order": list(means), "unreadable": len(graded.unreadable), "kept": kept}
    return found | ({"broken": broken} if broken else {})


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
