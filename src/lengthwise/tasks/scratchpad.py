"""Scratchpads: the steps that lead to an answer, written before it, read back, and graded step by step."""

import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool
from torch import Tensor

from lengthwise.config import ConfigError, near_miss
from lengthwise.tasks.base import Batch, Graded
from lengthwise.tasks.pairs import NOTHING, Pairs
from lengthwise.tasks.sequences import SequenceTask

COMPONENTS = ("input", "computation", "output", "variables", "remaining")
MARKS = {"input": "in", "computation": "comp", "output": "out", "variables": "[", "remaining": "re"}
CLOSE, NEXT_STEP, THUS = "]", "#", "thus"
OWN_WORDS = (*MARKS.values(), CLOSE, NEXT_STEP, THUS)
NAMES = {
    "full": COMPONENTS,
    "minimal": ("computation", "output"),
    **{f"no-{name}": tuple(other for other in COMPONENTS if other != name) for name in COMPONENTS},
}
FAILED = "failed steps"

Words = tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """One step in words: what it reads, how it reckons, what comes out, what is kept in mind, and what is left to read."""

    input: Words = ()
    computation: Words = ()
    output: Words = ()
    variables: Words = ()
    remaining: Words = ()

    def only(self, components: Sequence[str]) -> "Step":
        """The step with these components alone; the others are empty."""
        return Step(**{name: getattr(self, name) for name in components})


@dataclass(frozen=True)
class Read:
    """An answer with a scratchpad, read back. A step is None where it cannot be read, and so is the answer."""

    steps: tuple[Step | None, ...]
    answer: Words | None


def components_of(task: str, scratchpad: str, there: Sequence[str] = COMPONENTS) -> Words | None:
    """Which components a scratchpad of that name has; None: there is no scratchpad.

    `none`, `full`, `minimal` (computation and output), `no-input` and so on (all but one), or bits: `i1c0o1v0r1`. `there`:
    the components that the task has. `ConfigError` for another name, for no component at all, and for what makes no
    difference: a component that the task has not got.
    """
    if scratchpad == "none":
        return None
    bits = re.fullmatch("i([01])c([01])o([01])v([01])r([01])", scratchpad)
    missing = [name for name in COMPONENTS if name not in there]
    if bits:
        on = tuple(name for name, bit in zip(COMPONENTS, bits.groups(), strict=True) if bit == "1")
        asked = [name for name in missing if name in on]
    else:
        on = tuple(name for name in NAMES.get(scratchpad, ()) if name in there)
        asked = [name for name in missing if scratchpad == f"no-{name}"]
        if scratchpad not in NAMES:
            names = [*(("none", *NAMES)), "i1c0o1v0r1"]
            raise ConfigError(
                f"{task} has no scratchpad {scratchpad!r}{near_miss(scratchpad, names)}; there are: {', '.join(names)} "
                "(any five bits of input, computation, output, variables, remaining)"
            )
    if asked:
        raise ConfigError(
            f"{task}.scratchpad is {scratchpad!r}, but its steps have no {asked[0]}; leave {asked[0]} out "
            + ("(v0)" if bits else "(full is without them)")
        )
    if not on:
        raise ConfigError(f"{task}.scratchpad is {scratchpad!r}, steps without anything in them; write none")
    return on


def one_name(task: str, scratchpad: str, there: Sequence[str] = COMPONENTS) -> str:
    """The one spelling of a scratchpad: its name where it has one, else its bits."""
    on = components_of(task, scratchpad, there)
    if on is None:
        return "none"
    for name in NAMES:
        if tuple(c for c in NAMES[name] if c in there) == on:
            return name
    return "".join(f"{name[0]}{int(name in on)}" for name in COMPONENTS)


def write(steps: Sequence[Step], answer: Sequence[str], components: Sequence[str]) -> list[str]:
    """The words of steps and answer: `in 7 8 comp 7 + 8 + 0 = 1 5 out 5 [ 1 ] re 5 + 6 # in ... thus 1 2 5`."""
    words: list[str] = []
    for nth, step in enumerate(steps):
        if nth:
            words.append(NEXT_STEP)
        for name in components:
            words.append(MARKS[name])
            words += getattr(step, name)
            if name == "variables":
                words.append(CLOSE)
    return [*words, THUS, *answer]


def parse(words: Sequence[str], components: Sequence[str]) -> Read:
    """What `write` wrote, from any words at all: what cannot be read is None, and nothing is an error.

    A step has the marks of its components, each once and in their order, and nothing before the first. The answer is what
    comes after the one `thus`; it has at least one word, and no mark.
    """
    words = list(words)
    end = words.index(THUS) if THUS in words else len(words)
    steps: list[list[str]] = [[]]
    for word in words[:end]:
        if word == NEXT_STEP:
            steps.append([])
        else:
            steps[-1].append(word)
    answer = tuple(words[end + 1 :])
    readable = bool(answer) and not set(answer) & set(OWN_WORDS)
    return Read(tuple(_step(step, components) for step in steps), answer if readable else None)


def _step(words: list[str], components: Sequence[str]) -> Step | None:
    marks = [mark for name in components for mark in ([MARKS[name], CLOSE] if name == "variables" else [MARKS[name]])]
    places = [n for n, word in enumerate(words) if word in OWN_WORDS]
    if [words[n] for n in places] != marks or not places or places[0] != 0:
        return None
    parts = {words[a]: tuple(words[a + 1 : b]) for a, b in zip(places, [*places[1:], len(words)], strict=True)}
    if parts.get(CLOSE):
        return None  # words between a bracket and the next mark
    return Step(**{name: parts[MARKS[name]] for name in components})


def correctness(said: Sequence[Step | None], right: Sequence[Step], components: Sequence[str]) -> dict[str, float]:
    """The share of steps that are right in each component, and how many cannot be read (`failed steps`).

    All shares are 0 if a step cannot be read or if there are more or fewer steps than there should be.
    """
    failed = sum(step is None for step in said)
    comparable = not failed and len(said) == len(right)
    pairs = list(zip(said, right, strict=True)) if comparable else []
    shares = {n: sum(getattr(a, n) == getattr(b, n) for a, b in pairs) / len(right) for n in components}
    return {**shares, FAILED: float(failed)}


def published_text(steps: Sequence[dict[str, str]], sentence: str, components: Sequence[str]) -> str:
    """Steps, a text for each component, and the sentence of the answer, as the study of Kazemnejad et al. writes them."""
    written = []
    for step in steps:
        parts = (f"{MARKS[n]} {step[n]} " + (f"{CLOSE} " if n == "variables" else "") for n in components)
        written.append("".join(parts))
    return f"Thinking step by step:  {' # '.join(written)} . Thus,  {sentence}"


class ScratchpadTask(SequenceTask):
    """A task of words whose answer can have a scratchpad before it: the steps that lead to it.

    With `scratchpad` other than `none` the answer is

        in 7 8 comp 7 + 8 + 0 = 1 5 out 5 [ 1 ] re 5 + 6 # in ... thus 1 2 5

    of the components that are on, each after its mark: input (in), computation (comp), output (out), variables ([ ]) and
    remaining input (re). `full` has all, `minimal` computation and output, `no-input` and so on all but one, and bits any
    (`i1c0o1v0r1`). A model is scored by what it says (`decodes`): 1 where the answer after `thus` is right, whatever the
    steps before it. Further numbers are the share of steps that are right in each component (all 0 where their number
    differs, or one cannot be read) and how many cannot be read. An answer that cannot be read is wrong; some of these, and some
    whose steps cannot be read, are kept for reading.

    Source: Kazemnejad et al. 2023, section 6 and their code. Differs: there the marks are those of a text, see `texts`, and
    answers are read as numbers; here they have to be right word for word (`0 1 2 5` is wrong for 125).
    """

    components: ClassVar[Words] = COMPONENTS  # that its steps have
    step_words: ClassVar[Words] = ()  # words of its steps that questions and answers lack

    def __init__(self, words: Sequence[str], scratchpad: str):
        self.on = components_of(type(self).__name__, scratchpad, self.components)
        self.decodes = self.on is not None
        self.plain_words = frozenset(words)
        super().__init__([*words, *((*self.step_words, *OWN_WORDS) if self.on else ())])

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        return {**settings, "scratchpad": one_name(cls.__name__, settings["scratchpad"], cls.components)}

    # ---- what a subclass says ----------------------------------------------------------------------------------

    @abstractmethod
    def steps(self, question: Sequence[str]) -> list[Step]:
        """The steps to the answer of a question, all components."""

    @abstractmethod
    def published_steps(self, question: Sequence[str]) -> list[dict[str, str]]:
        """The same steps as the published study writes them: a text for each component."""

    @abstractmethod
    def step_sizes(self, length: int) -> tuple[int, dict[str, int]]:
        """The most steps of a question of that length, and the most words of all steps together in each component."""

    # ---- what follows from it ----------------------------------------------------------------------------------

    def tokens(self, length: int) -> int:
        return super().tokens(length) + self.scratchpad_width(length)

    def scratchpad_width(self, length: int) -> int:
        """The most words before an answer of that length."""
        if self.on is None:
            return 0
        steps, words = self.step_sizes(length)
        marks = len(self.on) + ("variables" in self.on)
        return steps * (marks + 1) + sum(words[name] for name in self.on)  # a # between steps, and thus after the last

    def pack(self, pairs: Pairs) -> Batch:
        return super().pack(pairs if self.on is None else Pairs(pairs.questions, self._with_steps(pairs)))

    def texts(self, batch: Batch, wording: str = "repository") -> list[dict[str, str]]:
        """As `SequenceTask.texts`; with a scratchpad the target is that of the study's repository, spaces and all."""
        if self.on is None:
            return super().texts(batch, wording)
        if wording != "repository":
            raise ConfigError(
                f"the examples that the paper prints of {type(self).__name__} have no scratchpad; take the wording of its "
                "repository, or leave the scratchpad out"
            )
        found = []
        for question, whole in self.pairs(batch):
            prompt, sentence = self.published(question, parse(whole, self.on).answer or ())
            target = published_text(self.published_steps(question), sentence, self.on)
            found.append({"prompt": prompt, "separator": self.separator, "target": target})
        return found

    def grade(self, said: list[list[str]], batch: Batch) -> Graded:
        if self.on is None:
            return super().grade(said, batch)
        right, unreadable, broken, details = [], [], [], []
        for n, (words, (_, whole)) in enumerate(zip(said, self.pairs(batch), strict=True)):
            found, expected = parse(words, self.on), parse(whole, self.on)
            right.append(float(found.answer == expected.answer))
            if found.answer is None or not self.plain_words >= set(found.answer):
                unreadable.append(n)
            elif None in found.steps:
                broken.append(n)
            details.append(correctness(found.steps, [step for step in expected.steps if step], self.on))
        numbers = {k: torch.tensor([row[k] for row in details], dtype=torch.float64) for k in (*self.on, FAILED)}
        return Graded(torch.tensor(right, dtype=torch.float64), numbers, unreadable, broken)

    def answer_mask(self, batch: Batch) -> Bool[Tensor, "b t"]:
        """The places that say what comes after `thus`."""
        if self.on is None:
            return batch.scored
        thus = (batch.targets == self._id[THUS]) & batch.scored
        return batch.scored & (thus.cumsum(1) > 0) & ~thus

    def _with_steps(self, pairs: Pairs) -> Tensor:
        """The answers with their steps before them."""
        assert self.on is not None
        rows = []
        for question, answer in zip(pairs.questions.tolist(), pairs.answers.tolist(), strict=True):
            steps = self.steps([self.words[t] for t in question if t != NOTHING])
            lead = [self._id[word] for word in write(steps, (), self.on)]
            rows.append(lead + [t for t in answer if t != NOTHING])
        width = max(map(len, rows), default=0)
        filled = [row + [NOTHING] * (width - len(row)) for row in rows]
        return torch.tensor(filled, dtype=torch.int64).view(len(rows), width)
