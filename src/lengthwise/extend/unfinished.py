"""Extend a model in a folder beside the final one, in which the same call continues after an interruption.

`OUT.unfinished` has `retention.jsonl` with the settings and the rows, `work/` with the drafts and checkpoints of each
method, and `out/`, which gets the name OUT when everything is in it. Each model gets its name when it is complete.
"""

import gc
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from lengthwise import cache_folder
from lengthwise.analysis.answer_files import of_files
from lengthwise.config import ConfigError
from lengthwise.evaluation.pretrained import Pretrained
from lengthwise.evaluation.pretrained.loading import DTYPES
from lengthwise.extend.apply import NATIVE, load_written, require_applicable, write_folder, write_start
from lengthwise.extend.tune import Show, Windows, tune
from lengthwise.measurements.answer_file import FileAnswer, Recording, recording
from lengthwise.measurements.reach import OWN
from lengthwise.measurements.retention import Retention, RetentionOptions
from lengthwise.measurements.table import Row
from lengthwise.new_folder import copy_folder_permissions
from lengthwise.reach.loading import encoder, load_folder
from lengthwise.reach.measure import MeasuredModel, answer_of
from lengthwise.reach.program_flags import program_flags
from lengthwise.reach.text import Text
from lengthwise.report.pictures import content
from lengthwise.training.memory import PeakMemory

ANSWER, PAGE = "retention.jsonl", "retention.html"


def unfinished_folder(out: Path) -> Path:
    return out.with_name(f"{out.name}.unfinished")


def slugs(methods: tuple[str, ...]) -> dict[str, str]:
    """Return a different folder name for each method.

    >>> slugs(("yarn:factor=4", "rope*3+nope"))
    {'yarn:factor=4': 'yarn-factor-4', 'rope*3+nope': 'rope-3-nope'}
    """
    slugs_by_method: dict[str, str] = {}
    for method in methods:
        slug = re.sub(r"[^a-z0-9.]+", "-", method.lower()).strip("-.")[:60] or "method"
        slugs_by_method[method] = slug if slug not in slugs_by_method.values() else f"{slug}-{len(slugs_by_method)}"
    return slugs_by_method


@contextmanager
def opened(out: Path) -> Iterator[Path]:
    """Yield the unfinished folder, locked. Raise `ConfigError` if it has no answer and other files."""
    folder = unfinished_folder(out)
    folder.mkdir(exist_ok=True)
    with cache_folder.locked(folder / "lock", 0.0, what="extending this model") as is_locked:
        if not is_locked:
            raise ConfigError(f"another process is working in {folder}; wait for it, or name another --out")
        if not (folder / ANSWER).exists() and any(child.name != "lock" for child in folder.iterdir()):
            raise ConfigError(f"{folder} is no unfinished work of lengthwise extend; delete it, or name another --out")
        yield folder


@contextmanager
def _draft(path: Path) -> Iterator[Path]:
    """Yield a draft, which replaces the path at the end."""
    draft = path.with_name(f"{path.name}.draft")
    if draft.exists():
        shutil.rmtree(draft)
    yield draft
    if path.exists():
        shutil.rmtree(path)
    os.rename(draft, path)


@dataclass
class Extension:
    """One call of the command.

    `original`: the loaded model of the folder `source`. It is dropped while another one is in memory, and loaded again
    if needed.
    """

    source: str
    options: RetentionOptions
    text: Text
    training_text: Text | None
    out: Path
    device: str
    threads: int
    show: Show
    original: Pretrained | None

    def __post_init__(self) -> None:
        pretrained = self._original()
        self.name = Path(self.source).resolve().name
        self.tokenizer, self.max_positions = pretrained.tokenizer, pretrained.max_positions
        for method in self.options.methods:
            require_applicable(pretrained.model, method)
        self.flags = [row for method in self.options.methods for row in program_flags(pretrained.model, method)]
        self.windows: Windows | None = None
        self.tuning = self.options.tuning
        if self.tuning is not None and self.training_text is not None:
            encode, prefix = encoder(pretrained)
            self.windows = Windows(encode(self.training_text.content), prefix, self.tuning, self.options.seed)
        model = MeasuredModel(pretrained, self.options.reach, self.text)  # raises for a text that is too short
        answer = answer_of(self.name, model, self.device, self.threads)
        self.answer = replace(answer, measurement=Retention(), question=self.options.to_data())

    def run(self) -> FileAnswer:
        """Do what is left to do, give the folder its name, and return the answer."""
        with opened(self.out) as folder:
            with recording(folder / ANSWER, self.answer) as record:
                self._measure(record, OWN, self._original())
                if not any("n" in row for row in record.answer.rows):
                    reasons = "; ".join(dict.fromkeys(row["reason"] for row in record.answer.rows))
                    fix = "" if ";" in reasons else "; take shorter --lengths"
                    raise ConfigError(f"the model cannot be measured: {reasons}{fix}")
                for method, slug in slugs(self.options.methods).items():
                    self._extend(folder, record, method, slug)
                    gc.collect()
                if not any("program" in row for row in record.answer.rows):
                    record.add(self.flags)
            write(folder, record.answer)
            self._finish(folder)
        return record.answer

    def _original(self) -> Pretrained:
        if self.original is None:
            gc.collect()
            self.original = load_folder(self.source, self.device, self.options.dtype)
        return self.original

    def _extend(self, folder: Path, record: Recording, method: str, slug: str) -> None:
        place = "" if len(self.options.methods) == 1 else slug
        target = folder / "out" / place
        built = [row for row in record.answer.rows if row["method"] == method and "form" in row]
        if not (target.exists() and built):
            work = folder / "work" / slug
            work.mkdir(parents=True, exist_ok=True)
            built = [*built, self._build(work, method, place)]
            record.add(built[-1:])
            target.parent.mkdir(exist_ok=True)
            os.rename(work / "model", target)
            shutil.rmtree(work)
        self.original = None
        gc.collect()
        model = load_written(target, self.device, self.options.dtype)
        claimed = model.config.max_position_embeddings if built[-1]["form"] == NATIVE else self.max_positions
        self._measure(record, method, Pretrained(target, model, self.tokenizer, type(model).__name__, claimed))

    def _build(self, work: Path, method: str, place: str) -> Row:
        """Write the model of a method, trained if that is asked for, as `work / "model"`. Return the row about it."""
        memory = PeakMemory(torch.device(self.device))
        start, final, tuning = work / "start", work / "model", self.tuning
        applied = work / "applied.json"  # the form, and the seconds
        if not (start.exists() and applied.exists()):
            self.show(f"{method}: applying", 0, 1)
            self._original()  # its loading does not count
            begin, longest = time.perf_counter(), 0 if tuning is None else tuning.length
            with _draft(start) as draft:
                form = write_start(self._original(), method, self.options.seed, longest, draft)
                cache_folder.write(applied, json.dumps([form, time.perf_counter() - begin]).encode())
        form, seconds = json.loads(applied.read_text(encoding="ascii"))
        losses: list[tuple[int, float]] = []
        if tuning is None or self.windows is None:
            if final.exists():
                shutil.rmtree(final)
            os.rename(start, final)
        else:
            self.original = None
            gc.collect()
            model = load_written(start, self.device, "float32")
            bfloat16 = self.options.dtype == "bfloat16"
            tuned = tune(model, method, self.windows, tuning, work / "training", bfloat16, self.show)
            seconds, losses = seconds + tuned.seconds, tuned.losses
            with _draft(final) as draft:
                write_folder(tuned.model.to(DTYPES[self.options.dtype]), start, draft, None, self.options.dtype)
        peak = memory.bytes()
        return {
            "method": method,
            "folder": place or "this folder",
            "form": form,
            "build_seconds": round(seconds, 3),
            "peak_gib": None if peak is None else round(peak / 2**30, 2),
            "train_steps": [step for step, _ in losses],
            "train_losses": [loss for _, loss in losses],
        }

    def _measure(self, record: Recording, method: str, pretrained: Pretrained) -> None:
        """Measure what is missing of the model of a method, as it is; its rows have the method's name."""
        rows: list[Row] = [{**row, "method": OWN} for row in record.answer.rows if row["method"] == method]
        model = MeasuredModel(pretrained, self.options.reach, self.text, rows)
        model.show = lambda text, done, total: self.show(f"{method}: {text.partition(': ')[2]}", done, total)
        for row in model.measure():
            record.add([{**row, "method": method}])

    def _finish(self, folder: Path) -> None:
        """Give the complete folder its name, and delete the rest, the answer last: it says whose folder this is."""
        copy_folder_permissions(folder / "out")
        os.rename(folder / "out", self.out)
        for child in sorted(folder.iterdir(), key=lambda child: child.name == ANSWER):
            shutil.rmtree(child) if child.is_dir() else child.unlink()
        folder.rmdir()


def write(folder: Path, answer: FileAnswer) -> None:
    """Write the answer and its page into the complete folder `out`."""
    shutil.copyfile(folder / ANSWER, folder / "out" / ANSWER)
    cache_folder.write(folder / "out" / PAGE, content(of_files([answer]), "html"))
