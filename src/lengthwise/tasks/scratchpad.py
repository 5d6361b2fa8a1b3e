"""Scratchpads: the steps that lead to an answer. They are written before it, parsed and graded."""

import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool
from torch import Tensor

from lengthwise.config import ConfigError, near_miss
from lengthwise.tasks.base import Batch, GradedAnswers
from lengthwise.tasks.pairs import NO_WORD, Pairs, pad_rows, split
from lengthwise.tasks.sequences import SequenceTask

COMPONENTS = ("input", "computation", "output", "variables", "remaining")
MARKS = {"input": "in", "computation": "comp", "output": "out", "variables": "[", "remaining": "re"}
CLOSE, NEXT_STEP, THUS = "]", "#", "thus"
MARK_WORDS = (*MARKS.values(), CLOSE, NEXT_STEP, THUS)
NAMES = {
    "full": COMPONENTS,
    "minimal": ("computation", "output"),
    **{f"no-{name}": tuple(other for other in COMPONENTS if other != name) for name in COMPONENTS},
}
FAILED = "failed steps"

Words = tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """One step in words: its input, the computation, the output, intermediate variables, and the remaining input."""

    input: Words = ()
    computation: Words = ()
    output: Words = ()
    variables: Words = ()
    remaining: Words = ()


@dataclass(frozen=True)
class ParsedAnswer:
    """The steps and the answer of a generated text. Any of them is None if it cannot be read."""

    steps: tuple[Step | None, ...]
    answer: Words | None


def parse_components(task: str, scratchpad: str, available: Sequence[str] = COMPONENTS) -> Words | None:
    """Return the components that a scratchpad setting selects, or None for no scratchpad.

    Settings: `none`, `full`, `minimal` (computation and output), `no-input` and so on (all but one), or bits such as
    `i1c0o1v0r1`.
    `available`: the components that the task has. Raises `ConfigError` for an unknown setting, for one that selects
    nothing, and for one that names a component which the task does not have.
    """
    if scratchpad == "none":
        return None
    bits = re.fullmatch("i([01])c([01])o([01])v([01])r([01])", scratchpad)
    if not bits and scratchpad not in NAMES:
        names = ["none", *NAMES, "i1c0o1v0r1"]
        raise ConfigError(
            f"{task} has no scratchpad {scratchpad!r}{near_miss(scratchpad, names)}; available: {', '.join(names)} "
            "(any five bits of input, computation, output, variables, remaining)"
        )
    named = (
        NAMES[scratchpad] if not bits else [n for n, bit in zip(COMPONENTS, bits.groups(), strict=True) if bit == "1"]
    )
    selected = tuple(name for name in named if name in available)
    # The bits and `no-NAME` name single components, which the task must have.
    unavailable = [n for n in COMPONENTS if n not in available and (n in named if bits else scratchpad == f"no-{n}")]
    if unavailable:
        raise ConfigError(
            f"{task}.scratchpad is {scratchpad!r}, but its steps have no {unavailable[0]}; leave {unavailable[0]} out "
            + ("(v0)" if bits else "(take full)")
        )
    if not selected:
        raise ConfigError(
            f"{task}.scratchpad must have at least one component, got {scratchpad!r}; for no steps take none"
        )
    return selected


def write(steps: Sequence[Step], answer: Sequence[str], components: Sequence[str]) -> list[str]:
    """Return the words of steps and answer: `in 7 8 comp 7 + 8 + 0 = 1 5 out 5 [ 1 ] re 5 + 6 # in ... thus 1 2 5`."""
    words: list[str] = []
    for index, step in enumerate(steps):
        if index:
            words.append(NEXT_STEP)
        for name in components:
            words.append(MARKS[name])
            words += getattr(step, name)
            if name == "variables":
                words.append(CLOSE)
    return [*words, THUS, *answer]


def parse(words: Sequence[str], components: Sequence[str]) -> ParsedAnswer:
    """Invert `write`. Any words are accepted; a step or answer that cannot be read is None.

    A readable step has the marks of its components, each once and in their order, and nothing before the first. The
    answer follows the only `thus`; it has at least one word and no mark.
    """
    words = list(words)
    end = words.index(THUS) if THUS in words else len(words)
    steps = tuple(_parse_step(step, components) for step in split(words[:end], NEXT_STEP))
    answer = tuple(words[end + 1 :])
    readable = bool(answer) and not set(answer) & set(MARK_WORDS)
    return ParsedAnswer(steps, answer if readable else None)


def _parse_step(words: list[str], components: Sequence[str]) -> Step | None:
    marks = [mark for name in components for mark in ([MARKS[name], CLOSE] if name == "variables" else [MARKS[name]])]
    indices = [n for n, word in enumerate(words) if word in MARK_WORDS]
    if [words[n] for n in indices] != marks or not indices or indices[0] != 0:
        return None
    words_by_mark = {
        words[a]: tuple(words[a + 1 : b]) for a, b in zip(indices, [*indices[1:], len(words)], strict=True)
    }
    if words_by_mark.get(CLOSE):
        return None  # words between a bracket and the next mark
    return Step(**{name: words_by_mark[MARKS[name]] for name in components})


def step_accuracy(
    generated: Sequence[Step | None], expected: Sequence[Step], components: Sequence[str]
) -> dict[str, float]:
    """Return the share of correct steps for each component, and the number of unreadable steps (`failed steps`).

    All shares are 0 if a step is unreadable or if the number of steps is wrong.
    """
    failed = sum(step is None for step in generated)
    comparable = not failed and len(generated) == len(expected)
    pairs = list(zip(generated, expected, strict=True)) if comparable else []
    shares = {n: sum(getattr(a, n) == getattr(b, n) for a, b in pairs) / len(expected) for n in components}
    return {**shares, FAILED: float(failed)}


class ScratchpadTask(SequenceTask):
    """A task in words whose answer can follow a scratchpad: the steps that lead to it.

    With `scratchpad` other than `none` the answer is

        in 7 8 comp 7 + 8 + 0 = 1 5 out 5 [ 1 ] re 5 + 6 # in ... thus 1 2 5

    with the selected components, each after its mark: input (in), computation (comp), output (out), variables ([ ]) and
    remaining input (re). `full` selects all, `minimal` computation and output, `no-input` and so on all but one, and
    five bits select any (`i1c0o1v0r1`).

    A model is scored on its generated answer (`decodes`): 1 if the answer after `thus` is correct, whatever the steps
    before it. Further numbers are the share of correct steps for each component (all 0 if the number of steps is wrong
    or a step is unreadable) and the number of unreadable steps. An unreadable answer is wrong. Some unreadable answers,
    and some answers with unreadable steps, are stored so that people can look at them.

    Source: Kazemnejad et al. 2023, section 6 and their code. Differs: there the marks are part of a text, see `texts`,
    and answers are compared as numbers; here they must match word for word (`0 1 2 5` is wrong for 125).
    """

    components: ClassVar[Words] = COMPONENTS  # the components that the task's steps have
    step_words: ClassVar[Words] = ()  # words that occur in steps only

    def __init__(self, words: Sequence[str], scratchpad: str):
        self.selected = parse_components(type(self).__name__, scratchpad, self.components)
        self.decodes = self.selected is not None
        self.plain_words = frozenset(words)
        super().__init__([*words, *((*self.step_words, *MARK_WORDS) if self.selected else ())])

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Replace the scratchpad by its unique spelling: its name if it has one, otherwise its bits."""
        selected = parse_components(cls.__name__, settings["scratchpad"], cls.components)
        if selected is None:
            return settings
        bits = "".join(f"{name[0]}{int(name in selected)}" for name in COMPONENTS)
        names = {
            tuple(c for c in components if c in cls.components): name for name, components in reversed(NAMES.items())
        }
        return {**settings, "scratchpad": names.get(selected, bits)}

    # ---- defined by a subclass ---------------------------------------------------------------------------------

    @abstractmethod
    def steps(self, question: Sequence[str]) -> list[Step]:
        """Return the steps to the answer of a question, with all components."""

    @abstractmethod
    def repository_steps(self, question: Sequence[str]) -> list[dict[str, str]]:
        """Return the same steps as the study's repository writes them: a text for each component."""

    @abstractmethod
    def step_sizes(self, length: int) -> tuple[int, dict[str, int]]:
        """Return the largest number of steps at a length, and that of words in all steps for each component."""

    # ---- derived from these methods ----------------------------------------------------------------------------

    def tokens(self, length: int) -> int:
        return super().tokens(length) + self.scratchpad_width(length)

    def scratchpad_width(self, length: int) -> int:
        """Return the largest number of words before an answer of this length."""
        if self.selected is None:
            return 0
        steps, words = self.step_sizes(length)
        marks = len(self.selected) + ("variables" in self.selected)
        # Each step is followed by one more word: # between steps, `thus` after the last.
        return steps * (marks + 1) + sum(words[name] for name in self.selected)

    def pack(self, pairs: Pairs) -> Batch:
        return super().pack(pairs if self.selected is None else Pairs(pairs.questions, self._prepend_steps(pairs)))

    def texts(self, batch: Batch, wording: str = "repository") -> list[dict[str, str]]:
        """Like `SequenceTask.texts`. With a scratchpad the target is exactly that of the study's repository."""
        if self.selected is None:
            return super().texts(batch, wording)
        if wording != "repository":
            raise ConfigError(
                f"the examples that the paper prints of {type(self).__name__} have no scratchpad; take the wording of "
                "its repository, or leave the scratchpad out"
            )
        texts = []
        for question, target_words in self.pairs(batch):
            prompt, sentence = self.repository_text(question, parse(target_words, self.selected).answer or ())
            steps = []
            for step in self.repository_steps(question):
                fields = (f"{MARKS[n]} {step[n]} " + (f"{CLOSE} " if n == "variables" else "") for n in self.selected)
                steps.append("".join(fields))
            target = f"Thinking step by step:  {' # '.join(steps)} . Thus,  {sentence}"
            texts.append({"prompt": prompt, "separator": self.separator, "target": target})
        return texts

    def grade(self, generated: list[list[str]], batch: Batch) -> GradedAnswers:
        if self.selected is None:
            return super().grade(generated, batch)
        correct, unreadable, unreadable_steps, details = [], [], [], []
        for n, (words, (_, target_words)) in enumerate(zip(generated, self.pairs(batch), strict=True)):
            answer, expected = parse(words, self.selected), parse(target_words, self.selected)
            correct.append(float(answer.answer == expected.answer))
            if answer.answer is None or not self.plain_words >= set(answer.answer):
                unreadable.append(n)
            elif None in answer.steps:
                unreadable_steps.append(n)
            details.append(step_accuracy(answer.steps, [step for step in expected.steps if step], self.selected))
        columns = {k: torch.tensor([row[k] for row in details], dtype=torch.float64) for k in (*self.selected, FAILED)}
        return GradedAnswers(torch.tensor(correct, dtype=torch.float64), columns, unreadable, unreadable_steps)

    def answer_mask(self, batch: Batch) -> Bool[Tensor, "b t"]:
        """Return a mask of the slots that predict what follows `thus`."""
        if self.selected is None:
            return batch.scored
        thus = (batch.targets == self._word_id[THUS]) & batch.scored
        return batch.scored & (thus.cumsum(1) > 0) & ~thus

    def _prepend_steps(self, pairs: Pairs) -> Tensor:
        """Return the answers with their steps before them, as word ids padded with -1."""
        assert self.selected is not None
        rows = []
        for question, answer in zip(pairs.questions.tolist(), pairs.answers.tolist(), strict=True):
            steps = self.steps([self.words[t] for t in question if t != NO_WORD])
            step_ids = [self._word_id[word] for word in write(steps, (), self.selected)]
            rows.append(step_ids + [t for t in answer if t != NO_WORD])
        return pad_rows(rows)
