"""Extend a model in a folder beside the final one. A kill loses at most the running step or unit, and the same call continues.

`OUT.unfinished` has `plan.json`, the measurements, `work/` with the drafts and checkpoints of each method, and `out/`, which gets
the name OUT when everything is in it. Each model and each file gets its name when it is complete.
"""

import gc
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from lengthwise import cache_folder
from lengthwise.config import ConfigError
from lengthwise.evaluation.pretrained import Pretrained
from lengthwise.evaluation.pretrained.loading import DTYPES
from lengthwise.extend.apply import NATIVE, load_written, original_length, require_applicable, write_folder, write_start
from lengthwise.extend.plan import Plan
from lengthwise.extend.report import Built, Extended, Report, extended, write
from lengthwise.extend.tune import Show, Windows, tune
from lengthwise.new_folder import copy_folder_permissions
from lengthwise.reach.loading import encoder, load_folder
from lengthwise.reach.measure import Measurement, stored_results
from lengthwise.reach.program_flags import program_flags
from lengthwise.reach.results import Results
from lengthwise.reach.results import write as write_results
from lengthwise.reach.text import Text
from lengthwise.training.memory import PeakMemory
from lengthwise.values import shown

PLAN = "plan.json"


def unfinished_folder(out: Path) -> Path:
    return out.with_name(f"{out.name}.unfinished")


def slugs(methods: tuple[str, ...]) -> dict[str, str]:
    """Return a different folder name for each method.

    >>> slugs(("yarn:factor=4", "rope*3+nope"))
    {'yarn:factor=4': 'yarn-factor-4', 'rope*3+nope': 'rope-3-nope'}
    """
    found: dict[str, str] = {}
    for method in methods:
        slug = re.sub(r"[^a-z0-9.]+", "-", method.lower()).strip("-.")[:60] or "method"
        found[method] = slug if slug not in found.values() else f"{slug}-{len(found)}"
    return found


@contextmanager
def opened(out: Path, plan: Plan) -> Iterator[Path]:
    """Yield the unfinished folder of a plan, which no other process uses. Raises `ConfigError` if it belongs to another plan."""
    folder = unfinished_folder(out)
    folder.mkdir(exist_ok=True)
    with cache_folder.locked(folder / "lock", 0.0, what="extending this model") as is_locked:
        if not is_locked:
            raise ConfigError(f"another process is working in {folder}; wait for it, or name another --out")
        _require_same(folder, plan)
        yield folder


def _require_same(folder: Path, plan: Plan) -> None:
    file = folder / PLAN
    if not file.exists():
        if any(child.name != "lock" for child in folder.iterdir()):
            raise ConfigError(f"{folder} is no unfinished work of lengthwise extend; delete it, or name another --out")
        cache_folder.write(file, (json.dumps(plan.to_data(), indent=2) + "\n").encode())
        return
    try:
        old = Plan.read(file, "lengthwise extend")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read ({shown(error)}); delete {folder}, or name another --out") from None
    if differences := old.differences(plan):
        raise ConfigError(
            f"{folder} has unfinished work with other settings: {'; '.join(differences)}; give the same settings, name another "
            "--out, or delete the folder"
        )


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

    `original`: the loaded model of the folder `source`. It is dropped while another one is in memory, and loaded again if needed.
    """

    source: str
    plan: Plan
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
        self.length = original_length(pretrained.model)
        for method in self.plan.methods:
            require_applicable(pretrained.model, method)
        self.flags = tuple(flag for method in self.plan.methods for flag in program_flags(pretrained.model, method))
        self.windows: Windows | None = None
        if self.plan.tuning is not None and self.training_text is not None:
            encode, prefix = encoder(pretrained)
            self.windows = Windows(encode(self.training_text.content), prefix, self.plan.tuning, self.plan.seed)
        self._measurement(pretrained, None)  # raises for a text that is too short

    def run(self) -> Report:
        """Do what is left to do, give the folder its name, and return the report."""
        with opened(self.out, self.plan) as folder:
            before = self._measured(folder / "before.json", self.name, self._original())
            before.require_units("the model cannot be measured", "take shorter --lengths")
            models = []
            for method, slug in slugs(self.plan.methods).items():
                models.append(self._extended(folder, method, slug, before))
                gc.collect()
            report = Report(plan=self.plan, original=self.length, before=before, models=tuple(models), flags=self.flags)
            write(folder / "out", report)
            self._finish(folder)
        return report

    def _original(self) -> Pretrained:
        if self.original is None:
            gc.collect()
            self.original = load_folder(self.source, self.device, self.plan.dtype)
        return self.original

    def _extended(self, folder: Path, method: str, slug: str, before: Results) -> Extended:
        place = "" if len(self.plan.methods) == 1 else slug
        target, record = folder / "out" / place, folder / f"{slug}.built.json"
        if not (target.exists() and record.exists()):
            work = folder / "work" / slug
            work.mkdir(parents=True, exist_ok=True)
            built = self._build(work, method, place)
            cache_folder.write(record, json.dumps(built.to_data()).encode())
            target.parent.mkdir(exist_ok=True)
            os.rename(work / "model", target)
            shutil.rmtree(work)
        built = Built.read(record, "lengthwise extend")
        self.original = None
        gc.collect()
        model = load_written(target, self.device, self.plan.dtype)
        claimed = model.config.max_position_embeddings if built.form == NATIVE else self.max_positions
        pretrained = Pretrained(target, model, self.tokenizer, type(model).__name__, claimed)
        results = self._measured(folder / f"{slug}.after.json", f"{self.name}, {method}", pretrained)
        return extended(before, results, built)

    def _build(self, work: Path, method: str, place: str) -> Built:
        """Write the model of a method, trained if the plan says so, as `work / "model"`."""
        memory = PeakMemory(torch.device(self.device))
        start, final, tuning = work / "start", work / "model", self.plan.tuning
        applied = work / "applied.json"  # the form, and the seconds
        if not (start.exists() and applied.exists()):
            self.show(f"{method}: applying", 0, 1)
            self._original()  # its loading does not count
            begin, longest = time.perf_counter(), 0 if tuning is None else tuning.length
            with _draft(start) as draft:
                form = write_start(self._original(), method, self.plan.seed, longest, draft)
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
            bfloat16 = self.plan.dtype == "bfloat16"
            tuned = tune(model, method, self.windows, tuning, work / "training", bfloat16, self.show)
            seconds, losses = seconds + tuned.seconds, tuned.losses
            with _draft(final) as draft:
                write_folder(tuned.model.to(DTYPES[self.plan.dtype]), start, draft, None, self.plan.dtype)
        return Built(
            method=method,
            folder=place,
            form=form,
            seconds=round(seconds, 3),
            peak_bytes=memory.bytes(),
            loss_steps=tuple(step for step, _ in losses),
            losses=tuple(loss for _, loss in losses),
        )

    def _measured(self, file: Path, name: str, pretrained: Pretrained) -> Results:
        measurement = self._measurement(pretrained, file, name)
        return measurement.run(lambda text, done, total: self.show(f"{name}: {text.partition(': ')[2]}", done, total))

    def _measurement(self, pretrained: Pretrained, file: Path | None, name: str = "") -> Measurement:
        plan = self.plan.measurement()
        results = stored_results(file or Path(os.devnull), name, pretrained, plan, self.device, self.threads)
        save = (lambda found: None) if file is None else (lambda found: write_results(file, found))
        return Measurement(pretrained, plan, self.text, results, save)

    def _finish(self, folder: Path) -> None:
        """Give the complete folder its name, and delete the rest; the plan last, because it says whose folder this is."""
        copy_folder_permissions(folder / "out")
        os.rename(folder / "out", self.out)
        for child in sorted(folder.iterdir(), key=lambda child: child.name == PLAN):
            shutil.rmtree(child) if child.is_dir() else child.unlink()
        folder.rmdir()
