"""What every encoding, task and position scheme of lengthwise computes, in a few numbers, beside its version.

    python tests/versions.py

writes `versions.json` anew. It refuses where a class gives other numbers than before under the same version: runs that
are stored would then be taken for what they are not. New classes, settings and cases are written down without that.
"""

import hashlib
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lengthwise.config import Choice, ConfigError, Registry, annotation, choose, settings_of
from lengthwise.conformance import vectors
from lengthwise.conformance.cases import HEAD_DIM, HEADS, EncodingCase, Layer, guesses, numbers
from lengthwise.encodings import ENCODINGS
from lengthwise.positions import POSITION_SCHEMES, Coupled, Grid
from lengthwise.tasks import TASKS, Addition, CopyColumn, generator
from lengthwise.tasks.base import Batch, Task
from lengthwise.tasks.sequences import SequenceTask

FILE = Path(__file__).with_suffix(".json")
SOURCE = Path(__file__).parent.parent / "src"
TOKENS = 24  # half again as many as the encodings are told of
LENGTHS = 2  # of a task: the first ones that both splits have
LABELS = ("name", "from", "source", "atol", "rtol", "approximation", "expected")  # of a case of the vectors
# By which share of the norm of what is summed a sum may differ between machines, because instruction sets round
# differently.
EPSILON = torch.finfo(torch.float32).eps
FLOAT64 = 1e-9  # also of integers, whose sums are in float64: measured differences are below 1e-14
FLOAT32_LOSS = 8 * EPSILON  # of a loss in float32: half a unit in the last place of logits up to 24; measured 1.3
FLOAT32_NUMBERS = 64 * EPSILON  # of normal numbers in float32 (22 times epsilon) and squares of their sums (15 times)
TEXT = "Call me Ishmael. Some years ago, never mind how long precisely, I thought I would sail about a little.\n" * 40


@dataclass(frozen=True)
class Record:
    """The numbers of one case, and by how much they may differ between machines."""

    values: list[Any]
    tolerance: float = 0.0


Numbers = dict[str, Record]


def summary(values: Tensor, share: float = FLOAT64) -> Record:
    """Three numbers that change when any value, its place, or the shape changes. `share`: of the norm of the values."""
    given = values.detach().flatten().double().nan_to_num(-7.0)
    flat = torch.cat([torch.tensor([float(n) for n in values.shape]), given])
    place = torch.arange(len(flat), dtype=torch.float64)
    sums = [float((flat * torch.cos(1.7 * place + shift)).sum()) for shift in (0.3, 1.1)]
    return Record([*sums, float(flat.norm())], share * max(1.0, float(given.norm())))


# ---- encodings ----------------------------------------------------------------------------------------------------


def of_encoding(make: type) -> Numbers:
    """Outputs of a layer for every variant, the parameters as they are drawn, and the reference values.

    Parameters are drawn in float64, because normal numbers in float32 depend on the instruction set.
    """
    found: Numbers = {}
    for case in EncodingCase.of(make).variants():
        with float64_by_default():
            encoding = case.build()
        x = numbers(3, 1, TOKENS, HEADS * HEAD_DIM)
        layer = Layer(encoding, "reference")
        found[f"{case.label}: output"] = summary(layer(x))
        scattered = torch.arange(TOKENS)[None] ** 2
        if encoding.max_length is None or encoding.max_length > int(scattered.max()):
            found[f"{case.label}: output at scattered positions"] = summary(layer(x, positions=scattered))
        if parameters := [parameter.flatten() for parameter in encoding.parameters()]:
            found[f"{case.label}: parameters"] = summary(torch.cat(parameters))
    for case in vectors.load(make):
        given = {k: v for k, v in case.items() if k not in LABELS}
        found[f"vectors {_digest(given)}"] = Record([_digest(case["expected"])])
    return found


@contextmanager
def float64_by_default() -> Iterator[None]:
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(usual)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(_rounded(value), sort_keys=True).encode()).hexdigest()[:12]


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_rounded(v) for v in value]
    return f"{value:.10g}" if isinstance(value, float) else value


# ---- tasks --------------------------------------------------------------------------------------------------------


def of_task(make: type) -> Numbers:
    """Examples of both splits, and their loss and scores, for every variant of the settings."""
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        text.write_text(TEXT, encoding="utf-8")
        own = {"path": str(text), "glob": "*.txt"} if "glob" in settings_of(make) else {}
        found: Numbers = {}
        for choice in variants(make, **own):
            task: Task = choice.build()
            for length in _lengths(task):
                label = f"{_label(choice)}: length {length}"
                train = task.sample(generator(0, "train", length), 3, length)
                stepped = task.training_batch(generator(1), 3, length, length)
                test = task.examples(0, 4, length)
                parts = [part for b in (train, stepped, test) for part in (b.inputs, b.targets, b.scored)]
                real = any(part.is_floating_point() for part in parts)
                examples = torch.cat([part.flatten().double() for part in parts])
                found[f"{label}, examples"] = summary(examples, FLOAT32_NUMBERS if real else FLOAT64)
                found[f"{label}, scores"] = summary(_scores(task, test), FLOAT32_NUMBERS if real else FLOAT32_LOSS)
    return found


def _scores(task: Task, batch: Batch) -> Tensor:
    """The scores of a model that is right on every second example and guesses on the others, and its loss."""
    logits = numbers(5, *batch.targets.shape, task.output_size)
    if not batch.targets.is_floating_point():
        right = torch.nn.functional.one_hot(batch.targets.long().clamp(min=0), task.output_size)
        logits[::2] += 20 * right[::2]
    return torch.cat([task.score(logits, batch).flatten().double(), task.loss(logits, batch).double()[None]])


def _lengths(task: Task) -> Iterator[int]:
    given = task.lengths() if isinstance(task, SequenceTask) else None
    found = 0
    for length in given or range(1, 65):
        try:
            for split in ("train", "test"):
                task.check_length(length, split)
        except ConfigError:
            continue
        if given or length != 1:
            yield length
            found += 1
        if found == LENGTHS:
            return


def variants(make: type, **own: Any) -> Iterator[Choice]:
    """The class under its defaults, and with one setting changed: every value of a Literal, of a number the first that
    it takes.
    """
    usual = choose(make, **own)
    yield usual
    for name, parameter in settings_of(make).items():
        if name in own or name == "sha256":
            continue
        now = dict(usual.settings)[name]
        for value in guesses(now, annotation(make, parameter)):
            if value == now:
                continue
            try:
                other = choose(make, **{**own, name: value})
                other.build()
            except ValueError:
                continue
            yield other
            if isinstance(now, (int, float)) and not isinstance(now, bool):
                break


def _label(choice: Choice) -> str:
    """The settings that differ from their defaults, so that a setting that is new leaves the other cases what they are
    called.
    """
    odd = [f"{k}={v}" for k, v in choice.settings if v != settings_of(choice.cls)[k].default]
    return ", ".join(word for word in odd if word.partition("=")[0] not in ("path", "glob", "sha256")) or "defaults"


# ---- position schemes ------------------------------------------------------------------------------------------------


def of_position_scheme(make: type) -> Numbers:
    """The positions of sums and of bytes, in training and in evaluation, in one document and in two."""
    sums, reversed_sums = Addition(), Addition(reverse=True, pad=True)
    rows = {
        "sums": (sums, sums.sample(generator(0), 2, 4).inputs),
        "reversed sums": (reversed_sums, reversed_sums.sample(generator(0), 2, 4).inputs),
        "bytes": (None, torch.randint(44, 60, (2, 14), generator=generator(1))),
    }
    columns = CopyColumn()
    if make is Grid:
        rows = {"columns": (columns, columns.sample(generator(0), 2, 4).inputs)}
    found: Numbers = {}
    for choice in variants(make):
        for of_what, (task, inputs) in rows.items():
            two = (torch.arange(inputs.shape[1]) >= 5).long().expand(inputs.shape)
            for training in (True, False):
                for name, documents in (("one document", None), ("two documents", two)):
                    try:
                        scheme = choice.build() if task is None else choice.build().for_task(task)
                        positions = scheme.positions(inputs, documents, generator(3), training)
                    except ConfigError:  # such settings cannot lay these out
                        continue
                    label = f"{_label(choice)}: {of_what}, {'training' if training else 'evaluation'}, {name}"
                    found[label] = Record(["consecutive" if positions is None else _digest(positions.tolist())])
        scheme = choice.build()
        of_its_task = {Coupled: reversed_sums, Grid: columns}
        scheme = scheme.for_task(of_its_task[make]) if make in of_its_task else scheme
        numbers_of_positions = [scheme.num_positions(20, training) for training in (True, False)]
        found[f"{_label(choice)}: positions in all"] = Record(numbers_of_positions)
    return found


# ---- the file -----------------------------------------------------------------------------------------------------

KINDS: tuple[tuple[Registry, Callable[[type], Numbers]], ...] = (
    (ENCODINGS, of_encoding),
    (TASKS, of_task),
    (POSITION_SCHEMES, of_position_scheme),
)


def classes() -> list[tuple[type, Callable[[type], Numbers]]]:
    return [(make, of) for registry, of in KINDS for make in registry if make.__module__.startswith("lengthwise.")]


def known() -> dict[str, dict[str, Any]]:
    """What the committed file says of each class."""
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}


def name_of(make: Any) -> str:
    return f"{make.kind} {make.__name__}"


def complaint(make: Any, found: Numbers, before: dict[str, Any] | None) -> str | None:
    """What is wrong with a class and what the file says of it; None where both agree."""
    where = f"{make.__name__} ({(Path('src') / Path(*make.__module__.split('.'))).as_posix()}.py)"
    again = "then run `python tests/versions.py` and commit tests/versions.json"
    if before is None:
        return f"{where} is not in tests/versions.json; run `python tests/versions.py` and commit the file"
    changed = [case for case, values in before["cases"].items() if case in found and not alike(found[case], values)]
    if make.version == before["version"] and changed:
        return (
            f"{where} gives other results than version {make.version} did ({changed[0]}; {len(changed)} of "
            f"{len(found)} cases). If that is meant, raise the class attribute `version` to {make.version + 1}, so "
            "that stored runs are not taken for "
            f"new ones; {again}"
        )
    if make.version != before["version"]:
        return (
            f"{where} has version {make.version} and the file has {before['version']}; run `python tests/versions.py`"
        )
    if found.keys() != before["cases"].keys():
        return f"{where} has other cases than the file; run `python tests/versions.py` and commit tests/versions.json"
    return None


def alike(found: Record, known_values: list[Any]) -> bool:
    """Whether a case has its known values, up to the rounding of other machines."""
    if len(found.values) != len(known_values) or not all(isinstance(n, float) for n in found.values):
        return found.values == known_values
    return all(
        math.isclose(a, b, rel_tol=0, abs_tol=found.tolerance) for a, b in zip(found.values, known_values, strict=True)
    )


def main() -> int:
    before, after, refused = known(), {}, []
    for make, of in classes():
        name, found = name_of(make), of(make)
        said = complaint(make, found, before.get(name))
        if said and "gives other results" in said:
            refused.append(said)
        cases = before.get(name, {}).get("cases", {})
        kept = {case: cases[case] for case, record in found.items() if case in cases and alike(record, cases[case])}
        after[name] = {"version": make.version, "cases": {case: kept.get(case, found[case].values) for case in found}}
    if refused:
        print("\n".join(refused), file=sys.stderr)
        return 1
    FILE.write_text(text(after), encoding="utf-8")
    return 0


def text(data: dict[str, Any]) -> str:
    """One case a line, so that a change is seen in the diff."""
    blocks = []
    for name, entry in data.items():
        cases = ",\n".join(
            f"   {json.dumps(case)}: {json.dumps(_short(values))}" for case, values in entry["cases"].items()
        )
        blocks.append(f' {json.dumps(name)}: {{\n  "version": {entry["version"]},\n  "cases": {{\n{cases}\n  }}\n }}')
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def _short(values: list[Any]) -> list[Any]:
    return [float(f"{value:.13g}") if isinstance(value, float) else value for value in values]


if __name__ == "__main__":
    raise SystemExit(main())
