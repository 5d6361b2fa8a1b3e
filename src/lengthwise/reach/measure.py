"""Measure part by part: a task with a method at one length and depth. A kill loses at most the running part."""

import gc
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from random import Random
from typing import Any

import torch

from lengthwise.config import ConfigError
from lengthwise.evaluation.pretrained import Pretrained
from lengthwise.evaluation.pretrained.loading import read_settings
from lengthwise.evaluation.pretrained.rope_values import require_values
from lengthwise.evaluation.pretrained.transformers_calls import offline, silent
from lengthwise.machine_memory import is_out_of_memory
from lengthwise.measurements.answer_file import FileAnswer
from lengthwise.measurements.reach import FUNCTIONS, RETRIEVAL, TEXT, Reach, ReachOptions
from lengthwise.measurements.table import Row
from lengthwise.reach.functions import boolean_functions, predictions, prompts_of
from lengthwise.reach.loading import chat_of, encoder, subject_of
from lengthwise.reach.methods import applied
from lengthwise.reach.model import Reader, position_limit
from lengthwise.reach.program_flags import program_flags
from lengthwise.reach.tasks import TASKS, Chat, Prompt, assemble
from lengthwise.reach.tasks.prompts import form_for
from lengthwise.reach.text import Text, windows
from lengthwise.studies.provenance import facts

KEYS = ("method", "task", "length", "depth", "function", "prompts", "shots")  # that tell parts apart
FIRST_BIN = 64  # positions
OUT_OF_MEMORY = "out of memory on this machine"
TOO_SLOW = "not within --max-minutes"
Show = Callable[[str, float, float], None]  # receives a description, the finished part and the total


@dataclass
class MeasuredModel:
    """A loaded model, and what was measured about it.

    `rows`: those of earlier calls, which are not measured again. `windows`: of the text, one for each example. `facts`:
    what the file says about windows and chats.
    """

    pretrained: Pretrained
    options: ReachOptions
    text: Text | None
    rows: list[Row] = field(default_factory=list)
    batch_size: int = 8
    max_minutes: float | None = None
    show: Show = lambda *_: None
    start: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        options = self.options
        self.skipped, self.windows = list[Row](), list[Sequence[int]]()
        self.facts: dict[str, Any] = {}
        if self.text is not None:
            self.encode, self.prefix = encoder(self.pretrained)
            self.windows, starts = windows(
                self.text, self.encode, options.lengths[-1], options.targets, options.examples
            )
            self.facts["windows"] = starts
        self.chat = chat_of(self.pretrained) if options.chat else None
        if self.chat is not None:
            self.facts["chat"] = self.chat.to_data()
        for task in options.tasks:
            if task in RETRIEVAL:
                self._require_examples(task)
        self.functions = boolean_functions(options.functions, options.dims) if FUNCTIONS in options.tasks else ()
        for method in options.methods:
            with applied(self.pretrained.model, method, options.seed):
                pass  # raises for an encoding that the model cannot have

    def _require_examples(self, task: str) -> None:
        """Raise `ConfigError` unless the task fits into the shortest length and its answers have tokens."""
        shortest = self.options.lengths[0]
        try:
            prompts = [self._prompt(task, shortest, 0.5, n) for n in range(len(self.windows))]
        except ConfigError as error:
            raise ConfigError(
                f"--lengths {shortest} is too short for the task {task}: {error}; take longer --lengths, or other "
                "--tasks"
            ) from None
        if any(self.pretrained.tokenizer.unk_token_id in prompt.tokens[-prompt.answer :] for prompt in prompts):
            raise ConfigError(
                f"its tokenizer has no tokens for the names and numbers of the task {task}; measure --tasks text, or "
                "another model"
            )

    def continue_from(self, answer: FileAnswer) -> None:
        """Do not measure these rows again. Keep the format of their chats, because a template may contain the date."""
        self.rows = list(answer.rows)
        if "chat" in answer.origin:
            self.chat = Chat.from_data(answer.origin["chat"])

    # ---- what is measured, and what is left out ----------------------------------------------------------------------

    def row_keys(self) -> Iterator[tuple[str, int, list[Row]]]:
        """Yield what each method measures: the column `length` or `shots`, its value, and the keys of the rows."""
        options = self.options
        tasks = [task for task in options.tasks if task != FUNCTIONS]
        for length in options.lengths if tasks else ():
            depths = [(task, depth) for task in tasks for depth in options.depths_of(task)]
            yield "length", length, [{"task": t} if d is None else {"task": t, "depth": d} for t, d in depths]
        for shots in options.shots if self.functions else ():
            pairs = [(choice.label, kind) for choice in self.functions for kind in options.prompts]
            yield "shots", shots, [{"task": FUNCTIONS, "function": label, "prompts": kind} for label, kind in pairs]

    def measure(self) -> Iterator[Row]:
        """Yield the missing rows, shortest lengths first, why a length is not reached, and flags."""
        finished = {_key(row) for row in self.rows if "reason" not in row}
        for axis, size, of_method in self.row_keys():
            row_keys = [{"method": m, **row_key, axis: size} for m in self.options.methods for row_key in of_method]
            row_keys = [row_key for row_key in row_keys if _key(row_key) not in finished]
            slow = self._too_slow(axis, size, row_keys)
            for method in dict.fromkeys(row_key["method"] for row_key in row_keys):
                reason = self._unsupported_reason(method, axis, size) or slow
                if reason is None:
                    reason = yield from self._measured(
                        method, [row_key for row_key in row_keys if row_key["method"] == method]
                    )
                if reason is not None:
                    self.skipped.append({"method": method, axis: size, "reason": reason[:1000]})
                    yield self.skipped[-1]
        finished_flags = {(row.get("method"), row.get("program")) for row in self.rows}
        flags = (row for method in self.options.methods for row in program_flags(self.pretrained.model, method))
        yield from (row for row in flags if (row["method"], row["program"]) not in finished_flags)

    def _unsupported_reason(self, method: str, axis: str, size: int) -> str | None:
        """Return why a method cannot reach a length, because it did not reach a shorter one, or None."""
        for row in self.skipped:
            if row["method"] == method and row.get(axis, size) < size:
                return str(row["reason"]).partition(":")[0] if row["reason"].startswith(TOO_SLOW) else row["reason"]
        return None

    def _too_slow(self, axis: str, size: int, row_keys: Sequence[Row]) -> str | None:
        """Return that these rows would take too long, or None. A length is measured with all methods or with none."""
        if self.max_minutes is None or not row_keys:
            return None
        left = 60 * self.max_minutes - (time.perf_counter() - self.start)
        seconds = sum(self._seconds_estimate(row_key["method"], axis, size) for row_key in row_keys)
        about = f": it needs about {math.ceil(seconds / 60):,} min" if seconds else ""
        return f"{TOO_SLOW} {self.max_minutes:g}{about}" if seconds > left else None

    def _seconds_estimate(self, method: str, axis: str, size: int) -> float:
        """Return the mean seconds of a row at a length, extrapolated from shorter lengths; 0 if nothing was measured
        yet.

        The growth from one length to the next is that of the last two measured lengths; with one of them, it is
        quadratic.
        """
        times: dict[int, list[float]] = {}
        for row in self.rows:
            if row.get("method") == method and row.get(axis) is not None and row[axis] < size and "seconds" in row:
                times.setdefault(row[axis] + (axis == "shots"), []).append(row["seconds"])
        means = {n: sum(seconds) / len(seconds) for n, seconds in sorted(times.items())}
        if not means:
            return 0.0
        *shorter, last = means
        power = 2.0
        if shorter and means[shorter[-1]] > 0:
            power = math.log(max(means[last], 1e-9) / means[shorter[-1]]) / math.log(last / shorter[-1])
        return means[last] * ((size + (axis == "shots")) / last) ** min(max(power, 1.0), 2.0)

    # ---- one method at one length ------------------------------------------------------------------------------------

    def _measured(self, method: str, row_keys: Sequence[Row]) -> Generator[Row, None, str | None]:
        """Yield the rows with these keys. Return why the machine or the model cannot compute the others, or None."""
        reason = None
        with ExitStack() as stack:
            try:
                model = stack.enter_context(applied(self.pretrained.model, method, self.options.seed))
                limit, length = position_limit(model, self.pretrained.max_positions), row_keys[0].get("length", 0)
                if limit is not None and length > limit:
                    raise ConfigError(f"the model has {limit:,} positions")
                reader = Reader(model)
                for row_key in row_keys:
                    if self.max_minutes is not None and time.perf_counter() - self.start > 60 * self.max_minutes:
                        raise ConfigError(f"{TOO_SLOW} {self.max_minutes:g}")
                    row = self._row(reader, row_key, limit)
                    self.rows.append(row)
                    yield row
            except ConfigError as error:
                reason = str(error)
            except OSError:
                raise  # of the progress, such as a closed terminal; the model is not to blame
            except Exception as error:
                problem = f"the model cannot compute it ({type(error).__name__}: {' '.join(str(error).split())})"
                reason = OUT_OF_MEMORY if is_out_of_memory(error) else problem
        if reason is not None:
            # The traceback of the exception, and with it the cache, is gone here.
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
        return reason

    def _row(self, reader: Reader, row_key: Row, limit: int | None) -> Row:
        begin = time.perf_counter()
        if row_key["task"] == FUNCTIONS:
            cells = self._functions(reader.model, row_key, limit)
        elif row_key["task"] == TEXT:
            cells = self._cross_entropy(reader, row_key)
        else:
            cells = self._retrieval(reader, row_key)
        numbers = [*cells.get("losses", ()), *(pair for pairs in cells.get("log_probabilities", ()) for pair in pairs)]
        if not all(map(math.isfinite, [*numbers, *(x for row in cells.get("bin_losses", ()) for x in row)])):
            raise self._not_finite()
        return {**row_key, **cells, "seconds": round(time.perf_counter() - begin, 4)}

    def _progress(self, row_key: Row, share: float) -> None:
        """Show how much is done, in tokens of the lengths; a row with functions counts as its number of examples."""
        done = sum(row.get("length", row.get("shots", 0)) for row in self.rows if "reason" not in row)
        total = sum(size * len(row_keys) * len(self.options.methods) for _, size, row_keys in self.row_keys())
        about = row_key.get("function", row_key["task"])
        at = f" at {row_key['length']:,}" if "length" in row_key else f" with {row_key['shots']} examples"
        depth = f", depth {row_key['depth']:.0%}" if "depth" in row_key else ""
        size = row_key.get("length", row_key.get("shots", 0))
        self.show(f"{row_key['method']}: {about}{at}{depth}", done + size * share, max(total, 1))

    def _examples(self, row_key: Row) -> Iterator[int]:
        for example in range(len(self.windows)):
            self._progress(row_key, example / len(self.windows))
            with offline(), silent(stderr=False):
                yield example

    def _cross_entropy(self, reader: Reader, row_key: Row) -> dict[str, Any]:
        """Return the mean loss of each text's targets, and for ranges of positions their tokens and mean losses."""
        length, losses, bin_losses = row_key["length"], [], []
        rows = reader.sampled_rows(length - 1, self.options.targets)
        starts = [start for start in bin_starts(length) if any(start <= row + 1 for row in rows)]
        groups = {
            start: [n for n, row in enumerate(rows) if start <= row + 1 < end]
            for start, end in zip(starts, [*starts[1:], length], strict=True)
        }
        groups = {start: places for start, places in groups.items() if places}
        for example in self._examples(row_key):
            window = self.windows[example]
            of_rows = reader.losses([*self.prefix, *window[len(window) - length + len(self.prefix) :]], rows)
            losses.append(_short(float(of_rows[-self.options.targets :].mean())))
            means = [math.fsum(float(of_rows[n]) for n in places) / len(places) for places in groups.values()]
            bin_losses.append([_short(mean) for mean in means])
        return {
            "loss": math.fsum(losses) / len(losses),
            "losses": losses,
            "n": len(losses),
            "bins": list(groups),
            "bin_tokens": list(map(len, groups.values())),
            "bin_losses": [list(column) for column in zip(*bin_losses, strict=True)],
        }

    def _retrieval(self, reader: Reader, row_key: Row) -> dict[str, Any]:
        answers = []
        for example in self._examples(row_key):
            prompt = self._prompt(row_key["task"], row_key["length"], row_key.get("depth"), example)
            answers.append(float(reader.answers_correctly(prompt.tokens, prompt.answer)))
        return {"correct": math.fsum(answers) / len(answers), "answers": answers, "n": len(answers)}

    def _functions(self, model: Any, row_key: Row, limit: int | None) -> dict[str, Any]:
        options, count = self.options, row_key["shots"]
        (choice,) = (choice for choice in self.functions if choice.label == row_key["function"])
        form = form_for(self.pretrained.model_type) if options.form == "auto" else options.form
        texts, labels = prompts_of(
            choice, row_key["prompts"], count, options.shots[-1], form, options.examples, options.seed
        )
        progress = lambda done: self._progress(row_key, done / len(texts))  # noqa: E731
        pretrained = replace(self.pretrained, model=model)
        return {**predictions(pretrained, texts, labels, self.batch_size, progress, limit), "form": form}

    def _not_finite(self) -> ConfigError:
        """Return the error for losses that are not finite. It names a RoPE setting that cannot be computed with."""
        folder = self.pretrained.folder
        try:
            require_values(folder, read_settings(folder), has_failed=True)
        except ConfigError as error:
            return ConfigError(f"its losses are not finite, because in {error}; correct it")
        hint = "check its position settings with lengthwise model; if they are right, its weights may be damaged"
        hint = hint if self.options.dtype == "float32" else "try --dtype float32"
        return ConfigError(f"its losses are not finite in {self.options.dtype}; {hint}")

    def _prompt(self, task: str, length: int, depth: float | None, example: int) -> Prompt:
        """Return an example. Its names and numbers are the same at every length and depth."""
        random = Random(f"{self.options.seed} {task} {example}")
        needles = TASKS[task](random, 0.5 if depth is None else depth)
        return assemble(needles, self.windows[example], self.encode, length, self.prefix, self.chat)


def answer_of(name: str, model: MeasuredModel, device: str, threads: int) -> FileAnswer:
    """Return the answer without rows: the model, the question, and the origin of the numbers."""
    import transformers

    origin = facts(device, threads)
    origin["versions"]["transformers"] = transformers.__version__
    return FileAnswer(
        measurement=Reach(),
        subject=subject_of(name, model.pretrained),
        question=model.options.to_data(),
        origin={"date": datetime.now(UTC).date().isoformat(), **origin, **model.facts},
    )


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in KEYS)


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


def _short(value: float) -> float:
    return float(f"{value:.8g}") if math.isfinite(value) else value
