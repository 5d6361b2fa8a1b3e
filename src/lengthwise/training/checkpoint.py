"""The files of a run: the newest two checkpoints during training, and `weights.safetensors` at the end."""

import json
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lengthwise.config import Run
from lengthwise.training.parallel import divided_like, whole
from lengthwise.training.tensor_file import CheckpointError, CheckpointWarning, DamagedFile, read, write
from lengthwise.values import CHECKPOINT, WEIGHTS, require_no_address

ENCODINGS = "encodings."  # begins the names of the encodings' tensors in a model
QK_NORMS = (".q_norm.weight", ".k_norm.weight")  # ends of the names of the norms of queries and keys
FORMAT = "1"  # of both kinds of file; files with another format are refused


class RunFolder:
    """The folder with the files of one run. Only one process uses it at a time (the store's claims ensure that)."""

    def __init__(self, path: Path, run: Run):
        require_no_address("the folder of a run", path)
        self.path, self.run = Path(path), run

    @property
    def weights(self) -> Path:
        return self.path / WEIGHTS

    def prepare(self) -> None:
        """Create the folder, and delete partial files that a killed process left."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for partial in self.path.glob(".lengthwise-*"):  # drafts of `cache_folder.writing`
                partial.unlink(missing_ok=True)
        except OSError as error:
            raise CheckpointError(f"cannot use the folder {self.path}: {error.strerror}; give another one") from error

    def require_unchanged(self) -> None:
        """Raise `CheckpointError` if the folder was deleted."""
        if not self.path.is_dir():
            raise deleted(self.path)

    def checkpoints(self) -> list[Path]:
        """Return the paths of all checkpoints, newest first."""
        numbered = [(int(m[1]), p) for p in self.path.iterdir() if (m := CHECKPOINT.fullmatch(p.name))]
        return [p for _, p in sorted(numbered, reverse=True)]

    def save(self, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Write the checkpoint after `step` steps, and delete all but the newest two."""
        self.require_unchanged()
        write(self.path / f"checkpoint-{step:08d}.safetensors", tensors, self._facts(state={"step": step, **state}))
        for old in self.checkpoints()[2:]:
            old.unlink(missing_ok=True)

    def load_newest(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return tensors and state of the newest intact checkpoint. Damaged ones are moved aside with a warning."""
        paths = self.checkpoints()
        for index, path in enumerate(paths):
            try:
                tensors, facts = read(path)
                return tensors, self._verified_fact(path, facts, "state")
            except DamagedFile as error:
                consequence = "continues from the one before it" if index + 1 < len(paths) else "starts again"
                _warn(f"{error}; it was moved aside to {_move_aside(path)}, and training {consequence}")
        return None

    def save_final(self, tensors: Mapping[str, Tensor], trained: Mapping[str, Any]) -> None:
        """Write the final weights with facts about the training, and delete the checkpoints."""
        self.require_unchanged()
        write(self.weights, tensors, self._facts(trained=trained))
        self.remove_checkpoints()

    def remove_checkpoints(self) -> None:
        for path in self.checkpoints():
            with suppress(OSError):
                path.unlink()

    def load_final(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the final weights and the facts about the training that `save_final` wrote.

        Raises `CheckpointError` if they are missing, damaged, or those of another run.
        """
        if not self.weights.exists():
            raise CheckpointError(f"there is no {self.weights}; run {self.run.key} is not finished: train it first")
        tensors, facts = read(self.weights)
        return tensors, self._verified_fact(self.weights, facts, "trained")

    def load_final_or_none(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Like `load_final`, but return None without intact weights. Move damaged ones aside with a warning."""
        if not self.weights.exists():
            return None
        try:
            return self.load_final()
        except DamagedFile as error:
            _warn(f"{error}; it was moved aside to {_move_aside(self.weights)}, and the run is trained again")
            return None

    def _facts(self, **further_facts: Any) -> dict[str, str]:
        facts = {
            "format": FORMAT,
            "key": self.run.key,
            "run": self.run.to_data(),
            "made_with": _environment(),
            **further_facts,
        }
        return {name: value if isinstance(value, str) else json.dumps(value) for name, value in facts.items()}

    def _verified_fact(self, path: Path, facts: Mapping[str, str], name: str) -> dict[str, Any]:
        """Return one fact of an intact file as data, after checking that the file belongs to this run.

        Raises `CheckpointError` for another format or run. Warns if a checkpoint was written with another version of
        torch, or another number of threads or devices.
        """
        if facts.get("format") != FORMAT:
            raise CheckpointError(
                f"{path} must have format {FORMAT!r}, got {facts.get('format')!r}; remove it to train again"
            )
        if facts.get("key") != self.run.key:
            raise CheckpointError(
                f"{path} belongs to run {facts.get('key')!a}, not to {self.run.key}; give each run its own folder"
            )
        written_with, environment = json.loads(facts["made_with"]), _environment()
        if path != self.weights and written_with != environment:
            then = {name: written_with.get(name) for name in environment}
            changed = ", ".join(f"{n} {then[n]} then, {now} now" for n, now in environment.items() if then[n] != now)
            _warn(
                f"{path} was written under other conditions ({changed}); the last digits may differ from an "
                "uninterrupted run"
            )
        fact: dict[str, Any] = json.loads(facts[name])
        return fact


def deleted(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path} was deleted or replaced during the run; run the same command again to train it again"
    )


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers by name. A shared one (tied embeddings, one encoding for all layers) appears once.

    What FSDP2 has divided among ranks stays divided; see `whole_tensors`.
    """
    by_id: dict[int, tuple[str, Tensor]] = {}
    for name, t in model.state_dict(keep_vars=True).items():
        by_id.setdefault(id(t), (name, t.detach()))
    return dict(by_id.values())


def whole_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return `model_tensors` as files store them. Collective if FSDP2 has divided the model among ranks."""
    return {name: whole(t) for name, t in model_tensors(model).items()}


def load_model(model: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Copy `tensors` into the model. Raise `CheckpointError` unless names, shapes and dtypes are the model's."""
    targets = model_tensors(model)
    mismatch = {(n, t.shape, t.dtype) for n, t in targets.items()} ^ {(n, t.shape, t.dtype) for n, t in tensors.items()}
    if mismatch:
        names = ascii(", ".join(sorted({name for name, *_ in mismatch})))[1:-1]
        raise CheckpointError(f"{path} does not fit the model of this version ({names}); remove it to train again")
    for name, t in targets.items():
        t.copy_(divided_like(tensors[name], t))


def inherit_weights(model: nn.Module, run: Run, parent: RunFolder, tensors: Mapping[str, Tensor]) -> None:
    """Copy the trained weights of the parent, which come from its folder, into the model of a run.

    If both have the same classes of encodings in the same layers, the encodings' tensors are copied too, where name and
    shape are equal. All other tensors of the run's encodings keep their initial values, because equal names in two
    classes may have different meanings, and so do the norms of queries and keys that only the run has. Raises
    `CheckpointError` if the weights do not fit.
    """
    initial, inherited = model_tensors(model), {n: t for n, t in tensors.items() if not n.startswith(ENCODINGS)}
    if _encoding_classes(run) == _encoding_classes(parent.run):
        inherited |= {n: t for n, t in tensors.items() if n in initial and initial[n].shape == t.shape}
    added = QK_NORMS if run.model.qk_norm and not parent.run.model.qk_norm else ()
    fresh = {n: t for n, t in initial.items() if (n.startswith(ENCODINGS) or n.endswith(added)) and n not in inherited}
    load_model(model, inherited | fresh, parent.weights)


def _encoding_classes(run: Run) -> tuple[bool | None, list[type]]:
    return run.model.share_encoding, [component.cls for choice in run.encoding.layers for component in choice.parts]


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """Return the moments and step counts of every parameter: "exp_avg:NAME" and so on. Collective, see `whole`."""
    return {
        f"{key}:{name}": whole(torch.as_tensor(value))
        for name, p in model.named_parameters()
        for key, value in optimizer.state.get(p, {}).items()
    }


def load_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Invert `optimizer_tensors`. Moments and step counts go to their parameter's device."""
    parameters = dict(model.named_parameters())
    optimizer.state.clear()
    for full_key, t in tensors.items():
        key, _, name = full_key.partition(":")
        p = parameters[name]
        if key == "step":
            optimizer.state[p][key] = t.clone() if p.device.type == "cpu" else t.to(p.device, copy=True)
        else:
            optimizer.state[p][key] = divided_like(t.to(p.device, copy=True), p)


def flatten(**groups: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint's parts as a file has them: "model/NAME", "optimizer/NAME" and so on."""
    return {f"{group}/{name}": t for group, tensors in groups.items() for name, t in tensors.items()}


def split(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Invert `flatten`."""
    groups: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}, "history": {}}
    for key, t in tensors.items():
        group, _, name = key.partition("/")
        groups[group][name] = t
    return groups


def _environment() -> dict[str, str | int]:
    """Return everything besides the run that the bits of a result depend on."""
    devices = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    return {"torch": str(torch.__version__), "threads": torch.get_num_threads(), "devices": devices}


def _move_aside(path: Path) -> Path:
    damaged = path.with_name(f"{path.name}.damaged")
    try:
        path.replace(damaged)
    except OSError as error:
        raise CheckpointError(f"{path} is damaged and cannot be moved aside ({error.strerror}); remove it") from error
    return damaged


def _warn(text: str) -> None:
    warnings.warn(text, CheckpointWarning, stacklevel=3)
