"""Measure the forward pass, the training step and the decoding of every encoding, side by side.

In every round each encoding is measured once, in random order, and its time is divided by that of NoPE in the same
round. What disturbs the machine for seconds or minutes slows down both, and leaves the ratio as it is.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import torch

from lengthwise.config import ConfigError
from lengthwise.machine_memory import is_out_of_memory
from lengthwise.measurements import MEASUREMENTS
from lengthwise.measurements.answer_file import FileAnswer
from lengthwise.measurements.speed import BASELINE, KINDS, Kind, SpeedOptions
from lengthwise.measurements.table import Row
from lengthwise.speed.clock import Clock
from lengthwise.speed.memory import NoMemory, measure_memory
from lengthwise.speed.model import Subject, encoding_plans, order
from lengthwise.studies.provenance import facts
from lengthwise.training.numerics import reproducible, torch_threads

MEMORY_STEPS = 4  # the duration of one measurement of memory, in steps of training with the forward pass
MIB = 2**20
Show = Callable[[str, float, float], None]  # receives a description, the finished part and the total


class Benchmark:
    """The measurement of all encodings of a question."""

    def __init__(self, options: SpeedOptions, *, clock: Clock | None = None):
        self.options, self.plans = options, encoding_plans(options.encodings)
        for plan in self.plans:
            plan.choice.require_layers(options.num_layers)
            if options.encodings:  # of all encodings, those that fit are measured
                plan.require_possible(options)
        self.clock = clock or Clock(torch.device(options.device), options.threads)

    def answer(self) -> FileAnswer:
        """Return the answer without rows. Its subject is this program on this machine."""
        subject = facts(self.options.device, self.options.threads)
        subject |= {"cores": os.cpu_count() or 1, "clock": self.clock.name}
        origin = {"date": datetime.now(UTC).date().isoformat()}
        question = self.options.to_data()
        return FileAnswer(measurement=MEASUREMENTS["speed"], subject=subject, question=question, origin=origin)

    def rows(self, finished_rows: Sequence[Row], show: Show = lambda text, done, total: None) -> Iterator[list[Row]]:
        """Measure the missing rows. Yield those that belong together: those of a round once it is finished."""
        o, finished_rows = self.options, list(finished_rows)
        steps = (MEMORY_STEPS if o.memory else 0) + 1 + o.warmup + o.rounds  # of each encoding at each length
        self._show, self._done, self._total = show, 0, steps * len(self.plans) * len(o.lengths)
        with torch_threads(o.threads), reproducible(torch.device(o.device)):
            for length in o.lengths:
                yield from _Length(self, length, [row for row in finished_rows if row["length"] == length]).measure()

    def advance(self, text: str, steps: int = 1) -> None:
        self._show(text, self._done, self._total)
        self._done += steps


class _Length:
    """The measurement at one length: the subjects, and why there are none of others."""

    def __init__(self, benchmark: Benchmark, length: int, finished_rows: Sequence[Row]):
        self.benchmark, self.options, self.length = benchmark, benchmark.options, length
        self.plans = {plan.label: plan for plan in benchmark.plans}
        self.subjects: dict[str, Subject] = {}
        self.reasons: dict[str, str] = {row["encoding"]: row["reason"] for row in finished_rows if row.get("reason")}
        self.described = {row["encoding"] for row in finished_rows if "settings" in row}
        self.has_memory = {row["encoding"] for row in finished_rows if {"memory", "memory_reason"} & set(row)}
        self.finished = {(row["encoding"], row["round"]) for row in finished_rows if row.get("round") is not None}

    def measure(self) -> Iterator[list[Row]]:
        o, at = self.options, f"length {self.length:,}"
        for label in self.plans if o.memory else ():
            self.benchmark.advance(f"{at}: memory of {label}", MEMORY_STEPS)
            if label not in self.has_memory and label not in self.reasons:
                yield self._memory(label)
        # A process that was killed while it wrote a round may have stored some of its rows.
        needed = [label for label in self.plans if label not in self.reasons]
        missing = [n for n in range(o.rounds) if any((label, n) not in self.finished for label in needed)]
        for label in self.plans:
            self.benchmark.advance(f"{at}: first step of {label}")
            if missing and label not in self.reasons:
                yield self._build(label)
        for number in range(-o.warmup, o.rounds):
            name = "warm-up" if number < 0 else f"round {number + 1} of {o.rounds}"
            yield self._round(number, f"{at}: {name}", is_missing=bool(missing) and (number < 0 or number in missing))
        self.subjects.clear()  # frees memory for the next length

    def _memory(self, label: str) -> list[Row]:
        size, reason = None, None
        try:
            size, reason = measure_memory(self.plans[label], self.options, self.length)
        except NoMemory as error:
            return self._record_reason(label, str(error))
        except ConfigError as error:
            reason = str(error)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            reason = "not enough memory"
        return [self._row(label, memory_reason=reason) if size is None else self._row(label, memory=size / MIB)]

    def _build(self, label: str) -> list[Row]:
        """Build a subject and train one step with it, so that the moments of the shared weights exist."""

        def create() -> None:
            self.subjects[label] = Subject(self.plans[label], self.options, self.length, self.subjects.get(BASELINE))
            self.subjects[label].training()

        if reason_rows := self._attempt(label, create):
            return reason_rows
        if label in self.described:
            return []
        about = {
            "batch": self.options.batch(self.length),
            "settings": self.plans[label].settings(),
            "backends": sorted(self.subjects[label].model.backends_used),
        }
        return [self._row(label, **about)]

    def _round(self, number: int, text: str, *, is_missing: bool) -> list[Row]:
        """Measure each subject once, and return their times, but none of a warm-up."""
        times: dict[str, Row] = {}
        reason_rows: list[Row] = []
        clock, labels = self.benchmark.clock, list(self.plans)
        for label in (labels[n] for n in order(len(labels), self.options.seed, self.length, number)):
            self.benchmark.advance(text)
            if not is_missing or (subject := self.subjects.get(label)) is None:
                continue

            def measure(label: str = label, subject: Subject = subject) -> None:
                subject.model.eval()
                seconds: dict[Kind, float] = {"forward": clock.seconds(subject.forward)}
                tokens = subject.prefill()
                seconds["decoding"] = clock.seconds(subject.decoding) / tokens
                subject.model.train()
                seconds["training"] = clock.seconds(subject.training)
                times[label] = self._row(label, round=number, **{kind: 1e3 * seconds[kind] for kind in KINDS})

            reason_rows += self._attempt(label, measure)
        is_stored = number >= 0 and BASELINE in self.subjects
        new = [label for label in times if (label, number) not in self.finished]
        return [*reason_rows, *(times[label] for label in self.plans if is_stored and label in new)]

    def _attempt(self, label: str, action: Callable[[], None]) -> list[Row]:
        """Run an action. If the encoding refuses this length or memory runs out, return why."""
        reason = None
        try:
            action()
        except ConfigError as error:
            reason = str(error)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            reason = "not enough memory"
        if reason is None:
            return []
        # Outside of the handler, whose traceback would keep the tensors.
        if (subject := self.subjects.get(label)) is not None:
            subject.optimizer.zero_grad(set_to_none=True)  # gradients of the failed step
        reason_rows = self._record_reason(label, reason)
        if torch.device(self.options.device).type == "cuda":
            torch.cuda.empty_cache()
        return reason_rows

    def _record_reason(self, label: str, reason: str) -> list[Row]:
        """Record why an encoding has no times. Without NoPE, no other has a ratio."""
        reasons = {label: reason}
        if label == BASELINE:
            because = f"{BASELINE}, to which it is compared, could not be measured: {reason}"
            reasons |= {other: because for other in self.plans if other not in (label, *self.reasons)}
        for other in reasons:
            self.subjects.pop(other, None)
        self.reasons |= reasons
        return [self._row(other, reason=why) for other, why in reasons.items()]

    def _row(self, label: str, **cells: Any) -> Row:
        return {"encoding": label, "length": self.length, **cells}
