"""The task `functions`: does a model learn Boolean functions from the examples of a prompt?"""

import inspect
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lengthwise.config import Choice, ConfigError
from lengthwise.evaluation.pretrained import Pretrained
from lengthwise.evaluation.pretrained.transformers_calls import transformers_call
from lengthwise.reach.tasks.prompts import KINDS, LABELS, prompt_text
from lengthwise.tasks import TASKS
from lengthwise.tasks.functions import BooleanFunction

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class TokenizedPrompt:
    """A prompt in tokens: those that the texts with label 0 and 1 share, and the remaining ones of each text."""

    shared: Tokens
    labels: tuple[Tokens, Tokens]

    @property
    def rows(self) -> tuple[Tokens, Tokens]:
        """The model's inputs: the prompt with all but the last token of each label."""
        zero, one = self.labels
        return self.shared + zero[:-1], self.shared + one[:-1]


def boolean_functions(specs: Sequence[str] = (), dims: int = 8) -> tuple[Choice, ...]:
    """Return the functions of specifications such as conjunction or threshold:noise=0.1, with `dims` unless one sets
    it.

    Without specifications, returns all Boolean functions. Raises `ConfigError` for a task of another kind.
    """
    names = [task.__name__ for task in TASKS if issubclass(task, BooleanFunction)]
    choices = [
        TASKS.parse(spec if "dims=" in spec else f"{spec}{',' if ':' in spec else ':'}dims={dims}")
        for spec in specs or names
    ]
    for choice in choices:
        if not issubclass(choice.cls, BooleanFunction):
            raise ConfigError(f"{choice.name} does not have the labels 0 and 1; available: {', '.join(names)}")
    return tuple(dict.fromkeys(choices))


def prompts_of(
    choice: Choice, kind: str, count: int, most: int, form: str, examples: int, seed: int
) -> tuple[list[str], list[int]]:
    """Return the prompts with `count` examples before the question, and their correct labels.

    Each of the `examples` prompts has a function of its own, of which `most` inputs and one more are drawn. That last
    one is the question at every number of examples.
    """
    task: BooleanFunction = choice.build()
    xs, ys = (tensor.tolist() for tensor in task.examples_of(task.examples(seed, examples, most + 1)))
    order = KINDS[kind](count, most)
    drawn = [([x[n] for n in order], [y[n] for n in order]) for x, y in zip(xs, ys, strict=True)]
    return [prompt_text(form, *d) for d in drawn], [int(y[-1] > 0) for _, y in drawn]


def predictions(
    model: Pretrained,
    texts: Sequence[str],
    labels: Sequence[int],
    batch_size: int,
    on_progress: Callable[[int], object] = lambda done: None,
    limit: int | None = None,
) -> dict[str, Any]:
    """Return the cells of a row: how often the more probable label is correct, and the log-probabilities of both.

    If both labels are equally probable, the prediction counts as wrong. `constant` is the share of the more frequent
    label, and `mass` the mean probability of the two labels together; near 0 the model predicts other text. `tokens`:
    of the longest prompt. Raises `ConfigError` for a prompt with more tokens than `limit`.
    """
    prompts = [tokenize_prompt(model, text) for text in texts]
    longest = max(len(row) for prompt in prompts for row in prompt.rows)
    if limit is not None and longest > limit:
        raise ConfigError(f"a prompt has {longest:,} tokens, but the model has {limit:,} positions")
    pairs = log_probabilities(model, prompts, batch_size, on_progress).tolist()
    correct = [float(pair[label] > pair[1 - label]) for pair, label in zip(pairs, labels, strict=True)]
    return {
        "correct": math.fsum(correct) / len(correct),
        "n": len(correct),
        "constant": max(sum(labels), len(labels) - sum(labels)) / len(labels),
        "mass": math.fsum(math.exp(a) + math.exp(b) for a, b in pairs) / len(pairs),
        "tokens": max(len(prompt.shared) for prompt in prompts),
        "labels": list(labels),
        "log_probabilities": [[float(f"{value:.8g}") for value in pair] for pair in pairs],
    }


def tokenize_prompt(model: Pretrained, text: str) -> TokenizedPrompt:
    """Return the tokens of a prompt and of its two labels."""
    zero, one = (_tokens(model, text + label) for label in LABELS)
    shared = next((n for n, (a, b) in enumerate(zip(zero, one, strict=False)) if a != b), min(len(zero), len(one)))
    if not 0 < shared < min(len(zero), len(one)):
        raise ConfigError(
            f"{model.folder}: its tokenizer must give the labels 0 and 1 different tokens after the same prompt; take "
            "another model"
        )
    return TokenizedPrompt(zero[:shared], (zero[shared:], one[shared:]))


def _tokens(model: Pretrained, text: str) -> Tokens:
    tokens = tuple(model.tokens(text))
    if tokens and tokens[-1] == model.tokenizer.eos_token_id:  # some tokenizers add an end token to every text
        tokens = tokens[:-1]
    return tokens


def log_probabilities(
    model: Pretrained,
    prompts: Sequence[TokenizedPrompt],
    batch_size: int,
    on_progress: Callable[[int], object] = lambda done: None,
) -> Tensor:
    """Return the log-probabilities of the labels 0 and 1 after each prompt [p, 2], float64, summed over the label's
    tokens.

    All rows of a forward pass have the same length, so nothing is padded. A row that serves both labels is computed
    once.
    """
    result = torch.empty(len(prompts), 2, dtype=torch.float64)
    rows: dict[Tokens, list[tuple[int, int]]] = {row: [] for prompt in prompts for row in prompt.rows}
    for n, prompt in enumerate(prompts):
        for label in (0, 1):
            rows[prompt.rows[label]].append((n, label))
    done = 0
    for _, group in itertools.groupby(sorted(rows, key=len), key=len):
        same_length = list(group)
        for start in range(0, len(same_length), batch_size):
            batch = same_length[start : start + batch_size]
            num_last = max(len(prompts[n].labels[label]) for row in batch for n, label in rows[row])
            batch_log_p = _last_log_probabilities(model, batch, num_last)
            for row, log_p in zip(batch, batch_log_p, strict=True):
                for n, label in rows[row]:
                    tokens = torch.tensor(prompts[n].labels[label])
                    result[n, label] = log_p[-len(tokens) :].gather(1, tokens[:, None]).sum()
            done += sum(label == 0 for row in batch for _, label in rows[row])
            on_progress(done)
    return result


@torch.no_grad()
def _last_log_probabilities(model: Pretrained, rows: Sequence[Tokens], num_last: int) -> Tensor:
    """Return the log-probabilities [rows, num_last, vocab] of what follows the last token slots, float64."""
    tokens = torch.tensor(rows, device=model.model.device)
    # The logits of whole prompts can take more memory than the model.
    can_omit = "logits_to_keep" in inspect.signature(model.model.forward).parameters
    options = {"logits_to_keep": num_last} if can_omit else {}
    # Some layers load their kernel in the first call.
    with transformers_call(model.folder, "compute its logits", computing=True):
        output = model.model(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False, **options)
        return output.logits[:, -num_last:].double().cpu().log_softmax(-1)
