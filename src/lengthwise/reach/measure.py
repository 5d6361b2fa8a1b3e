"""Measure a plan unit by unit. A kill loses at most the running unit, because each one is stored when it is finished."""

import gc
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import torch

from lengthwise.config import ConfigError
from lengthwise.evaluation.pretrained import Pretrained
from lengthwise.evaluation.pretrained.loading import read_settings
from lengthwise.evaluation.pretrained.rope_values import require_values
from lengthwise.evaluation.pretrained.transformers_calls import offline, silent
from lengthwise.machine_memory import is_out_of_memory, machine_memory
from lengthwise.reach.loading import chat_of, encoder, record
from lengthwise.reach.methods import applied
from lengthwise.reach.model import Reader, position_limit
from lengthwise.reach.plan import TEXT, Plan
from lengthwise.reach.program_flags import program_flags
from lengthwise.reach.results import Results, Skipped, Unit, read, require_same
from lengthwise.reach.tasks import TASKS, Prompt, assemble
from lengthwise.reach.text import Text, windows
from lengthwise.studies.provenance import facts

Show = Callable[[str, float, float], None]  # receives a description, the finished part and the total
Save = Callable[[Results], None]
MEMORY_INFORMATION = Path("/proc/meminfo")
FIRST_BIN = 64  # positions
OUT_OF_MEMORY = "out of memory on this machine"
TOO_SLOW = "not within --max-minutes"


@dataclass
class Measurement:
    """One call of the command: a loaded model, a plan, and the results so far, which `save` stores after each unit."""

    pretrained: Pretrained
    plan: Plan
    text: Text
    results: Results
    save: Save
    max_minutes: float | None = None
    start: float = field(default_factory=time.perf_counter)
    skipped: list[Skipped] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.encode, self.prefix = encoder(self.pretrained)
        longest = self.plan.lengths[-1]
        self.windows, starts = windows(self.text, self.encode, longest, self.plan.targets, self.plan.examples)
        # A template may contain the date, so that of the first call counts.
        chat = (self.results.chat or chat_of(self.pretrained)) if self.plan.chat else None
        flags = tuple(entry for method in self.plan.methods for entry in program_flags(self.pretrained.model, method))
        self.results = replace(self.results, windows=starts, chat=chat, flags=flags)
        for task in self.plan.tasks:
            if task != TEXT:
                self._require_examples(task)
        for method in self.plan.methods:
            with applied(self.pretrained.model, method, self.plan.seed):
                pass  # raises for an encoding that the model cannot have

    def _require_examples(self, task: str) -> None:
        """Raise `ConfigError` unless the task fits into the shortest length, and the tokenizer has tokens for its answers."""
        try:
            prompts = [self._prompt(task, self.plan.lengths[0], 0.5, n) for n in range(len(self.windows))]
        except ConfigError as error:
            raise ConfigError(
                f"--lengths {self.plan.lengths[0]} is too short for the task {task}: {error}; take longer --lengths, or "
                "other --tasks"
            ) from None
        if any(self.pretrained.tokenizer.unk_token_id in prompt.tokens[-prompt.answer :] for prompt in prompts):
            raise ConfigError(
                f"its tokenizer has no tokens for the names and numbers of the task {task}; measure --tasks text, or another model"
            )

    def run(self, show: Show) -> Results:
        """Measure all units that are not finished, shortest lengths first, and return the results."""
        finished = {unit.key for unit in self.results.units}
        try:
            for length in self.plan.lengths:
                units = [u for u in self.plan.units(length) if (u[0], u[1], length, u[2]) not in finished]
                for method, parts in self._planned(units, length):
                    self._measure(method, length, parts, show)
        finally:
            self._store(())
        return self.results

    def _planned(
        self, units: list[tuple[str, str, float | None]], length: int
    ) -> Iterator[tuple[str, list[tuple[str, float | None]]]]:
        """Yield each method with its tasks and depths, unless it cannot reach the length.

        With `max_minutes`, a length is measured with all methods or with none, so that they can be compared.
        """
        slow = self._too_slow(units, length)
        for method in self.plan.methods:
            own = [(task, depth) for other, task, depth in units if other == method]
            if not own:
                continue
            if (reason := self._obstacle(method, length) or slow) is not None:
                self.skipped.append(Skipped(method=method, length=length, reason=reason))
                continue
            yield method, own

    def _too_slow(self, units: list[tuple[str, str, float | None]], length: int) -> str | None:
        """Return that some units would take too long, or None."""
        if self.max_minutes is None or not units:
            return None
        left = 60 * self.max_minutes - (time.perf_counter() - self.start)
        seconds = sum(self._seconds_estimate(method, length) for method, _, _ in units)
        about = f": it needs about {math.ceil(seconds / 60):,} min" if seconds else ""
        return f"{TOO_SLOW} {self.max_minutes:g}{about}" if seconds > left else None

    def _obstacle(self, method: str, length: int) -> str | None:
        """Return why a method cannot reach a length, apart from the time, or None."""
        for earlier in self.skipped:
            if earlier.method == method and earlier.length < length:
                cut = earlier.reason.startswith((OUT_OF_MEMORY, TOO_SLOW))
                return earlier.reason.partition(":")[0] if cut else earlier.reason  # without the figures of that length
        needed, free = self._cache_estimate(method, length), free_memory(self.pretrained.model.device)
        if needed is not None and free is not None and needed > free:
            return f"{OUT_OF_MEMORY}: the cache needs about {_gib(needed)}, and {_gib(free)} are free"
        return None

    def _cache_estimate(self, method: str, length: int) -> float | None:
        known = [(u.length, u.cache_bytes) for u in self.results.units if u.method == method and u.length < length]
        return None if not known else max(known)[1] / max(known)[0] * length

    def _seconds_estimate(self, method: str, length: int) -> float:
        """Return the mean seconds of a unit at a length, extrapolated from shorter lengths; 0 if nothing was measured yet.

        The growth from one length to the next is that of the last two measured lengths; with one of them, it is quadratic.
        """
        means = {}
        for n in self.plan.lengths:
            if n < length and (times := [u.seconds for u in self.results.units if (u.method, u.length) == (method, n)]):
                means[n] = sum(times) / len(times)
        if not means:
            return 0.0
        *shorter, last = means
        power = 2.0
        if shorter and means[shorter[-1]] > 0:
            power = math.log(max(means[last], 1e-9) / means[shorter[-1]]) / math.log(last / shorter[-1])
        return means[last] * (length / last) ** min(max(power, 1.0), 2.0)

    def _measure(self, method: str, length: int, parts: Sequence[tuple[str, float | None]], show: Show) -> None:
        """Measure the tasks of a method at a length. What the machine or the model cannot do is noted as skipped."""
        reason = None
        with ExitStack() as stack:
            try:
                model = stack.enter_context(applied(self.pretrained.model, method, self.plan.seed))
                limit = position_limit(model, self.pretrained.max_positions)
                if limit is not None and length > limit:
                    raise ConfigError(f"the model has {limit:,} positions")
                reader = Reader(model)
                for task, depth in parts:
                    if self._time_is_over():
                        raise ConfigError(f"{TOO_SLOW} {self.max_minutes:g}")
                    self._store((self._unit(reader, method, task, length, depth, show),))
            except ConfigError as error:
                reason = str(error)
            except OSError:
                raise  # of the results file or the progress, such as a full disk; the model is not to blame
            except Exception as error:
                found = f"the model cannot compute it ({type(error).__name__}: {' '.join(str(error).split())})"
                reason = OUT_OF_MEMORY if is_out_of_memory(error) else found
        if reason is not None:
            # The traceback of the exception, and with it the cache, is gone here.
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            self.skipped.append(Skipped(method=method, length=length, reason=reason[:1000]))

    def _time_is_over(self) -> bool:
        return self.max_minutes is not None and time.perf_counter() - self.start > 60 * self.max_minutes

    def _store(self, units: tuple[Unit, ...]) -> None:
        order = {
            (*unit[:2], length, unit[2]): n
            for n, (length, unit) in enumerate(
                itertools.chain.from_iterable(zip(itertools.repeat(n), self.plan.units(n)) for n in self.plan.lengths)
            )
        }
        found = sorted((*self.results.units, *units), key=lambda unit: order[unit.key])
        self.results = replace(self.results, units=tuple(found), skipped=tuple(self.skipped))
        self.save(self.results)

    def _unit(self, reader: Reader, method: str, task: str, length: int, depth: float | None, show: Show) -> Unit:
        begin = time.perf_counter()
        where = "" if depth is None else f", depth {depth:.0%}"
        scores: list[float] = []
        rows: list[tuple[float, ...]] = []
        bins: dict[str, Any] = {}
        done = sum(unit.length for unit in self.results.units)
        total = sum(length * len(self.plan.units(length)) for length in self.plan.lengths)
        for example in range(len(self.windows)):
            show(f"{method}: {task} at {length:,}{where}", done + length * example / len(self.windows), total)
            with offline(), silent(stderr=False):
                if task == TEXT:
                    score, bins, losses = self._cross_entropy(reader, length, example)
                    rows.append(losses)
                else:
                    prompt = self._prompt(task, length, depth, example)
                    score = float(reader.answers_correctly(prompt.tokens, prompt.answer))
            scores.append(score)
        if not all(map(math.isfinite, [*scores, *itertools.chain.from_iterable(rows)])):
            raise self._not_finite()
        return Unit(
            method=method,
            task=task,
            length=length,
            depth=depth,
            scores=tuple(scores),
            seconds=round(time.perf_counter() - begin, 4),
            cache_bytes=reader.cache_bytes,
            bin_losses=tuple(itertools.chain.from_iterable(rows)),
            **bins,
        )

    def _not_finite(self) -> ConfigError:
        """Return the error for losses that are not finite. It names a RoPE setting that cannot be computed with."""
        folder = self.pretrained.folder
        try:
            require_values(folder, read_settings(folder), has_failed=True)
        except ConfigError as error:
            return ConfigError(f"its losses are not finite, because in {error}; correct it")
        hint = "check its position settings with lengthwise model; if they are right, its weights may be damaged"
        hint = hint if self.plan.dtype == "float32" else "try --dtype float32"
        return ConfigError(f"its losses are not finite in {self.plan.dtype}; {hint}")

    def _cross_entropy(
        self, reader: Reader, length: int, example: int
    ) -> tuple[float, dict[str, Any], tuple[float, ...]]:
        """Return the mean loss of the targets, the ranges of positions with their numbers of tokens, and their mean losses."""
        window = self.windows[example]
        tokens = [*self.prefix, *window[len(window) - length + len(self.prefix) :]]
        rows = reader.sampled_rows(length - 1, self.plan.targets)
        losses = reader.losses(tokens, rows)
        starts = [start for start in bin_starts(length) if any(start <= row + 1 for row in rows)]
        groups = [
            [float(loss) for row, loss in zip(rows, losses, strict=True) if start <= row + 1 < end]
            for start, end in zip(starts, [*starts[1:], length], strict=True)
        ]
        kept = [(start, group) for start, group in zip(starts, groups, strict=True) if group]
        bins = {"bins": tuple(start for start, _ in kept), "bin_tokens": tuple(len(group) for _, group in kept)}
        means = tuple(_short(math.fsum(group) / len(group)) for _, group in kept)
        return _short(float(losses[-self.plan.targets :].mean())), bins, means

    def _prompt(self, task: str, length: int, depth: float | None, example: int) -> Prompt:
        """Return an example. Its names and numbers are the same at every length and depth."""
        random = Random(f"{self.plan.seed} {task} {example}")
        needles = TASKS[task].needles(random, 0.5 if depth is None else depth)
        return assemble(needles, self.windows[example], self.encode, length, self.prefix, self.results.chat)


def stored_results(path: Path, name: str, pretrained: Pretrained, plan: Plan, device: str, threads: int) -> Results:
    """Return the results that a file has, or new ones without units. Raises `ConfigError` if they are of another plan or model."""
    import transformers

    model = record(name, pretrained)
    if path.exists() and path.stat().st_size:
        old = read(path)
        require_same(path, old, plan, model)
        return old
    found = facts(device, threads)
    origin = {"device": found["device"], "threads": str(threads), "date": datetime.now(UTC).date().isoformat()}
    origin |= {**found["versions"], "transformers": transformers.__version__}
    return Results(plan=plan, model=model, origin=origin)


def bin_starts(length: int) -> list[int]:
    """Return the first positions of ranges of positions: 0, 64, 96, 128, 192, 256, ... below a length.

    >>> bin_starts(200)
    [0, 64, 96, 128, 192]
    """
    starts, step = [0], FIRST_BIN
    while step < length:
        starts += [start for start in (step, step * 3 // 2) if start < length]
        step *= 2
    return starts


def free_memory(device: torch.device) -> int | None:
    """Return the bytes that this process may still use on a device; None if the system does not tell."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    try:
        lines = MEMORY_INFORMATION.read_text(encoding="ascii").splitlines()
        available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return None
    return min(available, machine_memory() or available)  # a control group may allow less than is available


def _gib(size: float) -> str:
    return f"{size / 2**30:.1f} GiB"


def _short(value: float) -> float:
    return float(f"{value:.8g}") if math.isfinite(value) else value
