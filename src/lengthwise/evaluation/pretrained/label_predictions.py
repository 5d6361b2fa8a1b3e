"""Predict labels with a pretrained model, and measure its accuracy by the number of examples in a prompt."""

import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lengthwise.config import Choice, ConfigError, near_miss
from lengthwise.evaluation.pretrained.loading import Pretrained
from lengthwise.evaluation.pretrained.prompts import FORMS, LABELS, SETTINGS, prompt_text
from lengthwise.evaluation.pretrained.transformers_calls import transformers_call
from lengthwise.evaluation.score_checks import EvaluationError
from lengthwise.tasks import TASKS
from lengthwise.tasks.functions import BooleanFunction
from lengthwise.values import require_integer

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """The prompts to evaluate: tasks, settings and numbers of examples.

    Each task draws `prompts` functions with the examples of the longest prompt, and one more example. This one is the query at
    every number of examples.
    """

    tasks: tuple[Choice, ...]
    settings: tuple[str, ...]
    examples: tuple[int, ...]
    form: str
    prompts: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        _require_named("setting", self.settings, SETTINGS)
        _require_named("form", [self.form], FORMS)
        require_integer("a check of a pretrained model", 1, prompts=self.prompts)
        if not self.examples or min(self.examples) < 0:
            raise ConfigError(f"numbers of examples must be at least 0, and at least one, got {list(self.examples)}")
        if not self.tasks or not self.settings:
            raise ConfigError("at least one task and one setting must be named")
        for choice in self.tasks:
            if not issubclass(choice.cls, BooleanFunction):
                names = ", ".join(task.__name__ for task in boolean())
                raise ConfigError(f"{choice.name} does not have the labels 0 and 1; tasks with these labels: {names}")


@dataclass(frozen=True)
class LabelPredictions:
    """The labels that a model predicts after the prompts of one task, setting and number of examples.

    `log_probabilities[p]`: those of the labels 0 and 1 after prompt p, in nats. `labels`: the correct labels. The more probable
    label is the prediction; if both are equally probable, it counts as wrong.
    """

    task: str
    setting: str
    examples: int
    tokens: int  # of the longest prompt
    log_probabilities: list[tuple[float, float]] = field(repr=False)
    labels: list[int] = field(repr=False)

    @property
    def n(self) -> int:
        return len(self.labels)

    @property
    def correct(self) -> int:
        pairs = zip(self.log_probabilities, self.labels, strict=True)
        return sum(log_p[label] > log_p[1 - label] for log_p, label in pairs)

    @property
    def accuracy(self) -> float:
        return self.correct / self.n

    @property
    def constant_accuracy(self) -> float:
        """The accuracy of a constant prediction: the more frequent label."""
        return max(sum(self.labels), self.n - sum(self.labels)) / self.n

    @property
    def label_mass(self) -> float:
        """The mean probability of the two labels together; near 0 the model predicts other text."""
        return math.fsum(math.exp(a) + math.exp(b) for a, b in self.log_probabilities) / self.n


@dataclass(frozen=True)
class TokenizedPrompt:
    """A prompt in tokens: those that the texts with label 0 and label 1 share, and the remaining tokens of each text."""

    shared: Tokens
    labels: tuple[Tokens, Tokens]

    @property
    def rows(self) -> tuple[Tokens, Tokens]:
        """The model's inputs: the prompt with all but the last token of each label."""
        zero, one = self.labels
        return self.shared + zero[:-1], self.shared + one[:-1]


def _require_named(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise ConfigError(f"there is no {kind} {name!r}{near_miss(name, known)}; available: {', '.join(known)}")


def boolean() -> list[type[BooleanFunction]]:
    """Return all tasks of Boolean functions."""
    return [task for task in TASKS if issubclass(task, BooleanFunction)]


def boolean_tasks(specs: Sequence[str] = (), dims: int = 8) -> tuple[Choice, ...]:
    """Return the tasks of specifications such as conjunction or threshold:noise=0.1, with `dims` unless one sets it.

    Without specifications, returns all tasks of Boolean functions.
    """
    specs = list(specs) or [task.__name__ for task in boolean()]
    return tuple(
        TASKS.parse(spec if "dims=" in spec else f"{spec}{',' if ':' in spec else ':'}dims={dims}") for spec in specs
    )


def predict_labels(
    model: Pretrained,
    plan: Plan,
    *,
    batch_size: int = 8,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[LabelPredictions]:
    """Return the model's label predictions for all prompts of the plan, by task, setting and number of examples.

    Each prompt is tokenized together with each of the two labels. The common beginning of the two token lists is the prompt
    (including the space before the label, if that is a token of its own). The rest is the label: one or more tokens,
    whose log-probabilities are summed. `on_progress(done, total)` counts prompts.

    Raises `ConfigError` before the first forward pass if a prompt is longer than the model's positions, and `EvaluationError` for
    log-probabilities that are not finite.
    """
    require_integer("a check of a pretrained model", 1, batch_size=batch_size)
    cells = []
    for choice, setting, count, texts, labels in _prompts(plan):
        prompts = [tokenize_prompt(model, text) for text in texts]
        _require_positions(model, prompts, count)
        cells.append((choice, setting, count, prompts, labels))
    results: list[LabelPredictions] = []

    def report(done: int) -> None:
        if on_progress is not None:
            on_progress(len(results) * plan.prompts + done, len(cells) * plan.prompts)

    for choice, setting, count, prompts, labels in cells:
        log_p = log_probabilities(model, prompts, batch_size, report)
        if not bool(log_p.isfinite().all()):
            raise EvaluationError(
                f"log-probabilities of {choice.label} with {count} examples are not finite; try --dtype float32"
            )
        longest = max(len(prompt.shared) for prompt in prompts)
        pairs = [(zero, one) for zero, one in log_p.tolist()]
        results.append(LabelPredictions(choice.label, setting, count, longest, pairs, labels))
    return results


def _prompts(plan: Plan) -> Iterator[tuple[Choice, str, int, list[str], list[int]]]:
    """Yield each task, setting and number of examples with its prompts and their correct labels."""
    last = max(plan.examples)
    for choice in dict.fromkeys(plan.tasks):
        task: BooleanFunction = choice.build()
        xs, ys = (part.tolist() for part in task.examples_of(task.examples(plan.seed, plan.prompts, last + 1)))
        for setting, count in dict.fromkeys(itertools.product(plan.settings, plan.examples)):
            order = SETTINGS[setting](count, last)
            drawn = [([x[n] for n in order], [y[n] for n in order]) for x, y in zip(xs, ys, strict=True)]
            yield (
                choice,
                setting,
                count,
                [prompt_text(plan.form, *d) for d in drawn],
                [int(y[-1] > 0) for _, y in drawn],
            )


def tokenize_prompt(model: Pretrained, text: str) -> TokenizedPrompt:
    """Return the tokens of a prompt and of its two labels."""
    zero, one = (_tokens(model, text + label) for label in LABELS)
    shared = next((n for n, (a, b) in enumerate(zip(zero, one, strict=False)) if a != b), min(len(zero), len(one)))
    if not 0 < shared < min(len(zero), len(one)):
        raise ConfigError(
            f"{model.folder}: its tokenizer must give the labels 0 and 1 different tokens after the same prompt; take another "
            "model"
        )
    return TokenizedPrompt(zero[:shared], (zero[shared:], one[shared:]))


def _tokens(model: Pretrained, text: str) -> Tokens:
    with transformers_call(model.folder, "use its tokenizer"):
        tokens = tuple(model.tokenizer(text)["input_ids"])
    if tokens and tokens[-1] == model.tokenizer.eos_token_id:  # some tokenizers add an end token to every text
        tokens = tokens[:-1]
    vocab = model.model.get_input_embeddings().weight.shape[0]
    if tokens and max(tokens) >= vocab:
        raise ConfigError(
            f"{model.folder}: its tokenizer has a token {max(tokens)}, but the model has only {vocab} tokens; copy the tokenizer "
            "that the model was trained with into the folder"
        )
    return tokens


def _require_positions(model: Pretrained, prompts: Sequence[TokenizedPrompt], count: int) -> None:
    longest = max(len(row) for prompt in prompts for row in prompt.rows)
    if model.max_positions is not None and longest > model.max_positions:
        raise ConfigError(
            f"a prompt with {count} examples has {longest} tokens, but {model.folder} has {model.max_positions} positions; take "
            f"fewer examples than {count}"
        )


def log_probabilities(
    model: Pretrained,
    prompts: Sequence[TokenizedPrompt],
    batch_size: int,
    on_progress: Callable[[int], object] = lambda done: None,
) -> Tensor:
    """Return the log-probabilities of the labels 0 and 1 after each prompt [p, 2], float64, summed over the label's tokens.

    All rows of a forward pass have the same length, so nothing is padded. A row that serves both labels is computed once.
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
    """Return the log-probabilities [rows, num_last, vocab] of the tokens that follow the last `num_last` token slots, float64."""
    tokens = torch.tensor(rows, device=model.model.device)
    # The logits of whole prompts can take more memory than the model.
    can_omit = "logits_to_keep" in inspect.signature(model.model.forward).parameters
    options = {"logits_to_keep": num_last} if can_omit else {}
    # Some layers load their kernel in the first call.
    with transformers_call(model.folder, "compute its logits", computing=True):
        output = model.model(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False, **options)
        return output.logits[:, -num_last:].double().cpu().log_softmax(-1)
