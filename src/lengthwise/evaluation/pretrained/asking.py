"""Ask a pretrained model for labels, and count how often it is right by the number of examples."""

import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lengthwise.config import Choice, ConfigError, near_miss
from lengthwise.evaluation.pretrained.calling import calling
from lengthwise.evaluation.pretrained.loading import Pretrained
from lengthwise.evaluation.pretrained.wording import FORMS, LABELS, SETTINGS, prompt
from lengthwise.evaluation.scores import EvaluationError
from lengthwise.tasks import TASKS
from lengthwise.tasks.functions import BooleanFunction
from lengthwise.values import require_whole

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """What is asked. Each task draws `prompts` functions and as many examples as the longest prompt has, and one more, which is
    asked for at every number of examples."""

    tasks: tuple[Choice, ...]
    settings: tuple[str, ...]
    examples: tuple[int, ...]
    form: str
    prompts: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        _require_named("setting", self.settings, SETTINGS)
        _require_named("form", [self.form], FORMS)
        require_whole("a check of a pretrained model", 1, prompts=self.prompts)
        if not self.examples or min(self.examples) < 0:
            raise ConfigError(f"numbers of examples are {list(self.examples)}; name at least one, none of them below 0")
        if not self.tasks or not self.settings:
            raise ConfigError("there is nothing to ask; name at least one task and one setting")
        for choice in self.tasks:
            if not issubclass(choice.make, BooleanFunction):
                raise ConfigError(
                    f"{choice.name} has no labels 0 and 1; the tasks that have are: {', '.join(m.__name__ for m in boolean())}"
                )


@dataclass(frozen=True)
class Answers:
    """What the model said to the prompts of one task, setting and number of examples.

    `log_probabilities[p]`: of the labels 0 and 1 after prompt p, in nats; `labels`: the right ones. The greater one counts as the
    answer, and where both are equal there is none.
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
    def right(self) -> int:
        pairs = zip(self.log_probabilities, self.labels, strict=True)
        return sum(said[label] > said[1 - label] for said, label in pairs)

    @property
    def accuracy(self) -> float:
        return self.right / self.n

    @property
    def constant(self) -> float:
        """The accuracy of always saying the label that is the more frequent one among these."""
        return max(sum(self.labels), self.n - sum(self.labels)) / self.n

    @property
    def mass(self) -> float:
        """The mean probability that the model gives to the two labels together: near 0 it says something else."""
        return math.fsum(math.exp(a) + math.exp(b) for a, b in self.log_probabilities) / self.n


@dataclass(frozen=True)
class Question:
    """A prompt as tokens: what the two texts with label 0 and label 1 share, and how each goes on."""

    shared: Tokens
    labels: tuple[Tokens, Tokens]

    @property
    def rows(self) -> tuple[Tokens, Tokens]:
        """What the model has to read: all but the last token of each label."""
        zero, one = self.labels
        return self.shared + zero[:-1], self.shared + one[:-1]


def _require_named(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise ConfigError(f"there is no {what} {name!r}{near_miss(name, known)}; there are: {', '.join(known)}")


def boolean() -> list[type[BooleanFunction]]:
    return [make for make in TASKS if issubclass(make, BooleanFunction)]


def boolean_tasks(words: Sequence[str] = (), dims: int = 8) -> tuple[Choice, ...]:
    """The tasks of these words, such as conjunction or threshold:noise=0.1, with `dims` where a word says nothing of it; all
    classes of Boolean functions, when none is named."""
    named = list(words) or [make.__name__ for make in boolean()]
    return tuple(
        TASKS.parse(word if "dims=" in word else f"{word}{',' if ':' in word else ':'}dims={dims}") for word in named
    )


def answers(
    model: Pretrained,
    plan: Plan,
    *,
    batch_size: int = 8,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[Answers]:
    """What the model says to everything that is planned, by task, setting and number of examples.

    A prompt and its label are made tokens together, once with each label. What both texts begin with is the prompt (with a space
    before the label, where the tokenizer has one by itself); the rest is the label, one token or several, whose
    log-probabilities are added up. `on_progress(done, all)` counts prompts.

    `ConfigError` before anything is asked where a prompt is longer than the model has positions; `EvaluationError` for
    log-probabilities that are no numbers.
    """
    require_whole("a check of a pretrained model", 1, batch_size=batch_size)
    asked = [(choice, setting, count) for choice in plan.tasks for setting in plan.settings for count in plan.examples]
    drawn = {choice: _texts(plan, choice) for choice in plan.tasks}
    questions = {}
    for choice, setting, count in asked:
        texts, labels = drawn[choice][setting, count]
        questions[choice, setting, count] = [question(model, text) for text in texts], labels
        _require_room(model, questions[choice, setting, count][0], count)
    found: list[Answers] = []

    def told(done: int) -> None:
        if on_progress is not None:
            on_progress(len(found) * plan.prompts + done, len(asked) * plan.prompts)

    for (choice, setting, count), (those, labels) in questions.items():
        said = log_probabilities(model, those, batch_size, told)
        if not bool(said.isfinite().all()):
            raise EvaluationError(
                f"log-probabilities of {choice.label} with {count} examples are no finite numbers; try --dtype float32"
            )
        longest = max(len(q.shared) for q in those)
        found.append(Answers(choice.label, setting, count, longest, [(a, b) for a, b in said.tolist()], labels))
    return found


def _texts(plan: Plan, choice: Choice) -> dict[tuple[str, int], tuple[list[str], list[int]]]:
    """Prompts and right labels of a task, by setting and number of examples."""
    task: BooleanFunction = choice.build()
    last = max(plan.examples)
    xs, ys = (part.tolist() for part in task.examples_of(task.examples(plan.seed, plan.prompts, last + 1)))
    found = {}
    for setting, count in itertools.product(plan.settings, plan.examples):
        places = SETTINGS[setting](count, last)
        texts = [prompt(plan.form, [x[n] for n in places], [y[n] for n in places]) for x, y in zip(xs, ys, strict=True)]
        found[setting, count] = texts, [int(y[places[-1]] > 0) for y in ys]
    return found


def question(model: Pretrained, text: str) -> Question:
    """The tokens of a prompt and of its labels."""
    zero, one = (_tokens(model, text + label) for label in LABELS)
    same = next((n for n, (a, b) in enumerate(zip(zero, one, strict=False)) if a != b), min(len(zero), len(one)))
    if not 0 < same < min(len(zero), len(one)):
        raise ConfigError(
            f"{model.folder}: its tokenizer makes nothing different of the labels 0 and 1, or nothing the same of one prompt; "
            "the model cannot be asked"
        )
    return Question(zero[:same], (zero[same:], one[same:]))


def _tokens(model: Pretrained, text: str) -> Tokens:
    with calling(model.folder, "use its tokenizer"):
        found = tuple(model.tokenizer(text)["input_ids"])
    if found and found[-1] == model.tokenizer.eos_token_id:  # some tokenizers end every text
        found = found[:-1]
    known = model.model.get_input_embeddings().weight.shape[0]
    if found and max(found) >= known:
        raise ConfigError(
            f"{model.folder}: its tokenizer has a token {max(found)} and the model knows {known}; copy the tokenizer that the "
            "model was trained with into the folder"
        )
    return found


def _require_room(model: Pretrained, questions: Sequence[Question], count: int) -> None:
    longest = max(len(row) for q in questions for row in q.rows)
    if model.most is not None and longest > model.most:
        raise ConfigError(
            f"{count} examples make a prompt of {longest} tokens, and {model.folder} has {model.most} positions; ask for fewer "
            f"examples than {count}"
        )


def log_probabilities(
    model: Pretrained,
    questions: Sequence[Question],
    batch_size: int,
    on_progress: Callable[[int], object] = lambda done: None,
) -> Tensor:
    """Of the labels 0 and 1 after each prompt [p, 2], float64: the sum over the label's tokens.

    Rows of one forward are equally long, so nothing is padded; one that serves both labels is read once.
    """
    found = torch.empty(len(questions), 2, dtype=torch.float64)
    rows: dict[Tokens, list[tuple[int, int]]] = {row: [] for q in questions for row in q.rows}
    for n, q in enumerate(questions):
        for label in (0, 1):
            rows[q.rows[label]].append((n, label))
    done = 0
    for _, alike in itertools.groupby(sorted(rows, key=len), key=len):
        for batch in _batched(list(alike), batch_size):
            keep = max(len(questions[n].labels[label]) for row in batch for n, label in rows[row])
            said = _last(model, batch, keep)
            for row, log_p in zip(batch, said, strict=True):
                for n, label in rows[row]:
                    tokens = torch.tensor(questions[n].labels[label])
                    found[n, label] = log_p[-len(tokens) :].gather(1, tokens[:, None]).sum()
            done += sum(label == 0 for row in batch for _, label in rows[row])
            on_progress(done)
    return found


def _batched(rows: list[Tokens], size: int) -> list[list[Tokens]]:
    return [rows[n : n + size] for n in range(0, len(rows), size)]


@torch.no_grad()
def _last(model: Pretrained, rows: Sequence[Tokens], keep: int) -> Tensor:
    """Log-probabilities [rows, keep, tokens] of what comes after the last `keep` places, float64."""
    tokens = torch.tensor(rows, device=model.model.device)
    # The logits of whole prompts would be larger than many a model.
    few = {"logits_to_keep": keep} if "logits_to_keep" in inspect.signature(model.model.forward).parameters else {}
    with calling(model.folder, "compute its logits", asked=True):  # some layers load their kernel at the first call
        said = model.model(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False, **few)
        return said.logits[:, -keep:].double().cpu().log_softmax(-1)
