"""Greedy decoding of answers with the key-value cache, for tasks that grade generated answers."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.config import ConfigError
from lengthwise.positions import Consecutive, PositionScheme
from lengthwise.tasks.base import AnswerTask, Batch, GradedAnswers, Task

MAX_STORED = 3  # stored answers per length and kind (unreadable answers, and answers with unreadable steps)
MAX_CHARACTERS = 2000  # of a stored answer

MAX_LOGITS = (
    1 << 29
)  # logits of a prompt that are computed at once, 2 GiB in float32; a longer prompt is processed in parts

CONSECUTIVE = Consecutive()

PADDING, PROMPT = -1, 0  # document IDs of the left padding and of the prompt


def decodable(task: Task, scheme: PositionScheme) -> AnswerTask:
    """Return the task as one whose answers can be decoded token by token.

    Raises `ConfigError` if the task has no answers, or if the position scheme cannot assign positions to generated
    tokens.
    """
    if not isinstance(task, AnswerTask):
        raise ConfigError(f"{type(task).__name__} has no answers to decode; evaluate it with decode=False")
    if not scheme.can_decode():
        raise ConfigError(
            f"{type(task).__name__} is scored by decoding, which needs the position of every token as soon as it is "
            f"generated, but {type(scheme).__name__} assigns positions to whole sequences in evaluation; leave the "
            "position scheme out, or take a "
            "task without a scratchpad"
        )
    return task


def greedy_decode(
    model: nn.Module,
    task: AnswerTask,
    batch: Batch,
    length: int,
    before_token: Callable[[], None] | None = None,
    scheme: PositionScheme = CONSECUTIVE,
) -> tuple[list[list[str]], Tensor]:
    """Return the model's greedy answer to each prompt (BOS question SEP) in words, and whether a logit was NaN before
    its end [b].

    An answer ends at EOS, or at the largest number of tokens that an answer of this length has. All prompts are decoded
    together: shorter ones are padded on the left with tokens of another document, so each answer is the same as alone,
    up to rounding.
    `scheme`: the position scheme of this task, which assigns positions to the prompt and to every generated token.
    `before_token` is called after each forward pass, and may raise. The prompts are processed in parts if they have too
    many logits for one pass and no encoding depends on the current length.
    """
    prompts, documents = left_padded(batch)
    nan_steps: list[Tensor] = []

    def check_logits(_: nn.Module, __: Any, logits: Float[Tensor, "b t v"]) -> None:
        nan_steps.append(logits[:, -1].isnan().any(-1))
        if before_token is not None:
            before_token()

    def positions(tokens: Tensor, documents: Tensor | None) -> Tensor | None:
        return scheme.positions(tokens, documents, torch.Generator(), training=False)

    encodings: list[Any] = [module for module in model.modules() if getattr(module, "kind", None) == "encoding"]
    chunk_size = max(1, MAX_LOGITS // (len(batch) * task.output_size))
    is_chunked = prompts.shape[1] > chunk_size and not any(encoding.depends_on_length() for encoding in encodings)
    prefill = {"prefill_chunk_size": chunk_size} if is_chunked else {}
    generate: Any = model.generate
    handle = model.register_forward_hook(check_logits)
    try:
        tokens = generate(
            prompts, task.answer_tokens(length), documents=documents, positions=positions, stop=task.eos, **prefill
        )
    finally:
        handle.remove()
    ends = (tokens == task.eos).int()
    in_answer = ends.cumsum(1) == ends  # up to the first EOS
    has_nan = (torch.stack(nan_steps[-tokens.shape[1] :], 1) & in_answer).any(1)
    return [task.answer_words(row) for row in tokens.tolist()], has_nan


def left_padded(batch: Batch) -> tuple[Int[Tensor, "b p"], Int[Tensor, "b p"] | None]:
    """Return right-aligned prompts, and document IDs that mark the padding (None without padding)."""
    sizes = batch.scored.int().argmax(1) + 1
    longest = int(sizes.max())
    if bool((sizes == longest).all()):
        return batch.inputs[:, :longest], None
    columns = torch.arange(longest, device=sizes.device) - (longest - sizes[:, None])  # negative in the padding
    prompts = batch.inputs.gather(1, columns.clamp(min=0))
    return prompts, torch.where(columns < 0, PADDING, PROMPT)


def answer_details(task: Task, generated: list[list[str]], examples: Batch, graded: GradedAnswers) -> dict[str, Any]:
    """Return the details that are stored with a score of generated answers.

    "means" of the task's further numbers and their "order" (a store does not keep the order of keys); the number of
    "unreadable" answers and some of them ("kept"); and, if there are any, some answers with unreadable steps
    ("broken").
    """
    means = {name: float(values.double().mean()) for name, values in graded.details.items()}

    def stored(n: int) -> dict[str, str]:
        question = task.render(examples[n : n + 1])[0]["input"]
        return {"question": _shorten(question), "generated": _shorten(" ".join(generated[n]))}

    unreadable, broken = (
        [stored(n) for n in some[:MAX_STORED]] for some in (graded.unreadable, graded.unreadable_steps)
    )
    details = {"means": means, "order": list(means), "unreadable": len(graded.unreadable), "kept": unreadable}
    return details | ({"broken": broken} if broken else {})


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]} ..."
