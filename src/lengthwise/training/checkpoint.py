"""What a run leaves in its folder: the newest two checkpoints while it trains, `weights.safetensors` at the end."""

import json
import os
import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.config import Run
from lengthwise.training.tensorfile import CheckpointError, CheckpointWarning, DamagedFile, read, write
from lengthwise.values import require_no_address

WEIGHTS = "weights.safetensors"
FORMAT = "1"  # of both kinds of file; another number is refused, never guessed at
_NAME = re.compile(r"checkpoint-(\d{8,})\.safetensors")


class Folder:
    """The files of one run. Only one process works in it at a time (the store's claims see to that)."""

    def __init__(self, path: Path, run: Run):
        require_no_address("the folder of a run", path)
        self.path, self.run = Path(path), run

    @property
    def weights(self) -> Path:
        return self.path / WEIGHTS

    def prepare(self) -> None:
        """Make the folder, and clear away what a killed writer left half done."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for left in self.path.glob(".*.safetensors.*.tmp"):
                left.unlink(missing_ok=True)
        except OSError as error:
            raise CheckpointError(f"cannot use the folder {self.path}: {error.strerror}; give another one") from error

    def checkpoints(self) -> list[Path]:
        """The checkpoints there are, newest first."""
        found = [(int(m[1]), p) for p in self.path.iterdir() if (m := _NAME.fullmatch(p.name))]
        return [p for _, p in sorted(found, reverse=True)]

    def save(self, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Write the checkpoint after `step` steps; then the newest two stay."""
        write(self.path / f"checkpoint-{step:08d}.safetensors", tensors, self._facts(state={"step": step, **state}))
        for old in self.checkpoints()[2:]:
            old.unlink(missing_ok=True)

    def newest(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Tensors and state of the newest whole checkpoint. A damaged one is moved aside, with a warning, and the one
        before it serves."""
        there = self.checkpoints()
        for nth, path in enumerate(there):
            try:
                tensors, facts = read(path)
                return tensors, self._own(path, facts, "state")
            except DamagedFile as error:
                then = "goes on from the one before it" if nth + 1 < len(there) else "begins again"
                _warn(f"{error}; it was moved aside to {_set_aside(path)}, and training {then}")
        return None

    def finish(self, tensors: Mapping[str, Tensor], trained: Mapping[str, Any]) -> None:
        """Write the final weights, after which the checkpoints are not needed any more."""
        write(self.weights, tensors, self._facts(trained=trained))
        self.remove_checkpoints()

    def remove_checkpoints(self) -> None:
        for path in self.checkpoints():
            with suppress(OSError):
                path.unlink()

    def finished(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The final weights, and what `finish` was told. `CheckpointError` when missing, damaged, or of another run."""
        if not os.path.lexists(self.weights):
            raise CheckpointError(f"there is no {self.weights}; run {self.run.key} was not trained to its end: run it")
        tensors, facts = read(self.weights)
        trained = self._own(self.weights, facts, "trained")
        if not _is_outcome(trained):
            raise DamagedFile(f"{self.weights} is damaged: what it says about the training is not what was written")
        return tensors, trained

    def finished_or_none(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Like `finished`; None where there are no weights, or damaged ones, which are moved aside with a warning."""
        if not os.path.lexists(self.weights):
            return None
        try:
            return self.finished()
        except DamagedFile as error:
            _warn(f"{error}; it was moved aside to {_set_aside(self.weights)}, and the run is trained again")
            return None

    def _facts(self, **parts: Any) -> dict[str, str]:
        facts = {"format": FORMAT, "key": self.run.key, "run": self.run.to_data(), "made_with": _made_with(), **parts}
        return {name: value if isinstance(value, str) else json.dumps(value) for name, value in facts.items()}

    def _own(self, path: Path, facts: Mapping[str, str], part: str) -> dict[str, Any]:
        """One of the facts of a whole file as data, once it is certain that it belongs to this run. `DamagedFile` where the file is
        whole and says something else than files of ours do."""
        if facts.get("format") != FORMAT:
            raise CheckpointError(
                f"{path} has format {facts.get('format')!r}, this version reads {FORMAT!r}; remove it to train again"
            )
        if facts.get("key") != self.run.key:
            raise CheckpointError(
                f"{path} belongs to run {facts.get('key')!a}, not to {self.run.key}; give each run a folder of its own"
            )
        was, now = _object(path, facts, "made_with"), _made_with()
        if path != self.weights and was != now:
            changed = ", ".join(f"{n} {was.get(n)} then, {now[n]} now" for n in now if was.get(n) != now[n])
            _warn(f"{path} goes on under other conditions ({changed}); the last digits may differ from an unbroken run")
        return _object(path, facts, part)


def _object(path: Path, facts: Mapping[str, str], part: str) -> dict[str, Any]:
    try:
        found = json.loads(facts[part])
    except (KeyError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise DamagedFile(f"{path} is damaged: it does not say its {part.replace('_', ' ')}")
    return found


def _is_outcome(trained: Mapping[str, Any]) -> bool:
    """Whether this is what `train` knows of a finished training, see `loop.Trained`."""
    kinds = {"seconds": (int, float), "parameters": (int,), "backend": (str,), "loop_overhead": (int, float)}
    curve, columns = trained.get("curve"), {"step", "loss", "learning_rate", "gradient_norm", "tokens_per_second"}
    return all(type(trained.get(name)) in allowed for name, allowed in kinds.items()) and (
        isinstance(curve, list)
        and all(isinstance(row, dict) and set(row) == columns for row in curve)
        and all(type(value) in (int, float) for row in curve for value in row.values())
        and all(type(row["step"]) is int for row in curve)
    )


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name; one that is shared (tied embeddings, an encoding for all layers) appears once."""
    seen: set[int] = set()
    tensors: dict[str, Tensor] = {}
    for name, t in model.state_dict(keep_vars=True).items():
        if id(t) not in seen:
            seen.add(id(t))
            tensors[name] = t.detach()
    return tensors


def put_tensors(model: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Copy `tensors` into the model. `CheckpointError` unless names and shapes are exactly the model's."""
    own = tensors_of(model)
    odd = {(n, t.shape, t.dtype) for n, t in own.items()} ^ {(n, t.shape, t.dtype) for n, t in tensors.items()}
    if odd:
        names = ascii(", ".join(sorted({name for name, *_ in odd})))[1:-1]
        raise CheckpointError(f"{path} does not fit the model of this version ({names}); remove it to train again")
    for name, t in own.items():
        t.copy_(tensors[name])


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The moments and counts of every parameter: "exp_avg:NAME" and so on."""
    return {
        f"{what}:{name}": torch.as_tensor(value)
        for name, p in model.named_parameters()
        for what, value in optimizer.state.get(p, {}).items()
    }


def put_optimizer(
    optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor], path: Path
) -> None:
    """Undo `optimizer_tensors`. A count stays where AdamW keeps it; a moment goes to its parameter's device.

    `CheckpointError` unless each parameter has its count and moments of its shape, or nothing.
    """
    parameters = dict(model.named_parameters())
    there = {name for key in tensors if (name := key.partition(":")[2]) in parameters}
    shapes = {f"{what}:{name}": parameters[name].shape for name in there for what in ("exp_avg", "exp_avg_sq")}
    shapes |= {f"step:{name}": torch.Size() for name in there}
    if shapes != {key: t.shape for key, t in tensors.items()}:
        raise CheckpointError(f"{path} does not fit the optimizer of this version; remove it to train again")
    optimizer.state.clear()
    for key, t in tensors.items():
        what, _, name = key.partition(":")
        p = parameters[name]
        t = t.clone() if what == "step" and p.device.type == "cpu" else t.to(p.device, copy=True)
        optimizer.state[p][what] = t


@dataclass(frozen=True)
class Parts:
    """The tensors of a checkpoint, under one roof: "model/", "optimizer/", "history/"."""

    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    history: dict[str, Tensor]

    def joined(self) -> dict[str, Tensor]:
        return {f"{part}/{name}": t for part, tensors in vars(self).items() for name, t in tensors.items()}

    @classmethod
    def split(cls, tensors: Mapping[str, Tensor], path: Path) -> "Parts":
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}, "history": {}}
        for key, t in tensors.items():
            part, _, name = key.partition("/")
            if part not in parts:
                raise CheckpointError(f"{path} has tensors that no checkpoint has; remove it to train again")
            parts[part][name] = t
        return cls(**parts)


def _made_with() -> dict[str, str | int]:
    """What the bits of a result depend on, besides the run."""
    return {"torch": str(torch.__version__), "threads": torch.get_num_threads()}


def _set_aside(path: Path) -> Path:
    aside = path.with_name(f"{path.name}.damaged")
    try:
        path.replace(aside)
    except OSError as error:
        raise CheckpointError(f"{path} is damaged and cannot be moved aside ({error.strerror}); remove it") from error
    return aside


def _warn(text: str) -> None:
    warnings.warn(text, CheckpointWarning, stacklevel=3)
