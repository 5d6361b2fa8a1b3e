"""Measure the forward pass and the training step of every encoding, side by side.

In every round each encoding is measured once, in random order, and its time is divided by that of NoPE in the same round. What
disturbs the machine for seconds or minutes slows down both, and leaves the ratio as it is.
"""

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch

from lengthwise.config import ConfigError
from lengthwise.machine_memory import is_out_of_memory
from lengthwise.speed.clocks import Clock, clock_for
from lengthwise.speed.memory import NoMemory, measure_memory
from lengthwise.speed.model import EncodingPlan, Subject, encoding_plans, order
from lengthwise.speed.plan import Question
from lengthwise.speed.results import BASELINE, Cell, Origin, Results
from lengthwise.studies.provenance import facts
from lengthwise.training.numerics import reproducible, torch_threads

MEMORY_PARTS = 4  # the duration of one measurement of memory, in steps of training with the forward pass
Show = Callable[[str, float, float], None]  # receives a description, the finished part and the total


class _Length:
    """The measurement at one length: the subjects, their times, and why others have none."""

    def __init__(self, question: Question, plans: Sequence[EncodingPlan], length: int):
        self.question, self.plans, self.length = question, plans, length
        self.subjects: dict[int, Subject] = {}
        self.refusals: dict[int, str] = {}
        self.memory: dict[int, tuple[int | None, str | None]] = {}
        self.backends: dict[int, tuple[str, ...]] = {}
        self.rounds: list[dict[int, tuple[float, float]]] = []  # of each finished round, the times of each encoding

    def build(self, number: int) -> None:
        """Build a subject and train one step with it, so that the moments of the shared weights exist."""
        if number in self.refusals:
            return

        def create() -> None:
            subject = Subject(self.plans[number], self.question, self.length, self.subjects.get(0))
            subject.training()
            self.subjects[number] = subject
            self.backends[number] = tuple(sorted(subject.model.backends_used))

        self._attempt(number, create)

    def measure_memory(self, number: int) -> None:
        try:
            self.memory[number] = measure_memory(self.plans[number], self.question, self.length)
        except NoMemory as error:
            self.refuse(number, str(error))
        except ConfigError as error:
            self.memory[number] = (None, str(error))
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            self.memory[number] = (None, "not enough memory")

    def measure_round(self, number: int, clock: Clock, show: Callable[[], None], *, store: bool) -> None:
        """Measure each subject once. The round counts only when all of them are finished."""
        times: dict[int, tuple[float, float]] = {}
        for encoding in order(len(self.plans), self.question.seed, self.length, number):
            show()
            if (subject := self.subjects.get(encoding)) is None:
                continue

            def measure(encoding: int = encoding, subject: Subject = subject) -> None:
                subject.model.eval()
                forward = clock.seconds(subject.forward)
                subject.model.train()
                times[encoding] = forward, clock.seconds(subject.training)

            self._attempt(encoding, measure)
        if store and 0 in times:
            self.rounds = [*self.rounds, times]

    def refuse(self, number: int, reason: str) -> None:
        """Record why an encoding has no times. Without NoPE, no other has a ratio."""
        self.refusals[number] = reason
        self.subjects.pop(number, None)
        if number == 0:
            self.subjects.clear()
            for other in range(1, len(self.plans)):
                self.refusals.setdefault(other, f"{BASELINE}, to which it is compared, could not be measured: {reason}")

    def cells(self) -> list[Cell]:
        """Return a cell for each encoding, with the rounds in which it was measured."""
        return [self._cell(number, plan) for number, plan in enumerate(self.plans)]

    def _cell(self, number: int, plan: EncodingPlan) -> Cell:
        refusal = self.refusals.get(number)
        rounds = [] if refusal is not None else [times[number] for times in self.rounds]
        size, reason = self.memory.get(number, (None, None))
        if reason is None and size is None and refusal is None:
            reason = "not measured"
        return Cell(
            encoding=plan.label,
            settings=plan.settings(),
            length=self.length,
            batch=self.question.batch(self.length),
            backends=self.backends.get(number, ()),
            forward=tuple(forward for forward, _ in rounds),
            training=tuple(training for _, training in rounds),
            refusal=refusal if rounds or refusal is not None else "stopped before the first round was finished",
            memory_bytes=size,
            memory_refusal=reason,
        )

    def _attempt(self, number: int, action: Callable[[], None]) -> None:
        """Run an action. If the encoding refuses this length or memory runs out, record why."""
        reason = None
        try:
            action()
        except ConfigError as error:
            reason = str(error)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            reason = "not enough memory"
        if reason is not None:  # outside of the handler, whose traceback would keep the tensors
            if (subject := self.subjects.get(number)) is not None:
                subject.release()
            self.refuse(number, reason)
            if torch.device(self.question.device).type == "cuda":
                torch.cuda.empty_cache()


class Measurement:
    """A measurement of all encodings of a question. `results` returns what is finished, at any time."""

    def __init__(self, question: Question, *, clock: Clock | None = None):
        self.question, self.plans = question, encoding_plans(question.encodings)
        for plan in self.plans:
            plan.choice.require_layers(question.num_layers)
            if question.encodings:  # of all encodings, those that fit are measured
                plan.require_possible(question)
        self.clock = clock or clock_for(torch.device(question.device), question.threads)
        self._origin = _origin(question, self.clock)
        self._lengths: list[_Length] = []
        self._finished = False

    def run(self, show: Show = lambda text, done, total: None) -> Results:
        """Measure everything and return the results. After a `KeyboardInterrupt`, `results` has the finished rounds."""
        q = self.question
        of_memory = MEMORY_PARTS if q.memory else 0
        parts = of_memory + 1 + q.warmup + q.rounds  # of each encoding at each length
        total, done = parts * len(self.plans) * len(q.lengths), 0

        def advance(text: str, parts: int = 1) -> None:
            nonlocal done
            show(text, done, total)
            done += parts

        device = torch.device(q.device)
        with torch_threads(q.threads), reproducible(device):
            for length in q.lengths:
                part = _Length(q, self.plans, length)
                self._lengths.append(part)
                for number, plan in enumerate(self.plans if q.memory else ()):
                    advance(f"length {length:,}: memory of {plan.label}", MEMORY_PARTS)
                    part.measure_memory(number)
                for number, plan in enumerate(self.plans):
                    advance(f"length {length:,}: first step of {plan.label}")
                    part.build(number)
                for number in range(-q.warmup, q.rounds):
                    name = "warm-up" if number < 0 else f"round {number + 1} of {q.rounds}"
                    begin = partial(advance, f"length {length:,}: {name}")
                    part.measure_round(number, self.clock, begin, store=number >= 0)
                part.subjects.clear()  # frees memory for the next length
        self._finished = True
        return self.results()

    def results(self) -> Results:
        """Return the finished rounds of all lengths that were begun."""
        cells = tuple(cell for part in self._lengths for cell in part.cells())
        return Results(question=self.question, origin=self._origin, complete=self._finished, cells=cells)


def _origin(question: Question, clock: Clock) -> Origin:
    known = facts(question.device, question.threads)
    names = ("device", "platform", "python", "versions", "matmul_library", "commit", "uncommitted_changes")
    return Origin(
        command=shlex.join(["lengthwise", *map(_without_folders, sys.argv[1:])]),
        date=datetime.now(UTC).date().isoformat(),
        cores=os.cpu_count() or 1,
        clock=clock.name,
        **{name: known[name] for name in names if name in known},
    )


def _without_folders(word: str) -> str:
    """Return an argument of which, if it is an absolute path, only the last part stays."""
    option, equals, value = word.rpartition("=") if word.startswith("-") else ("", "", word)
    path = Path(value).expanduser()
    return f"{option}{equals}{path.name}" if path.is_absolute() else word
