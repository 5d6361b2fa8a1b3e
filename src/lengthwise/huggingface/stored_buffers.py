"""Compare the tensors in a folder's safetensors that have to do with positions with its settings. No pickle is ever read."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import torch

from lengthwise.config import ConfigError
from lengthwise.encodings import PI, ALiBi, RotaryEncoding
from lengthwise.evaluation.pretrained.loading import CONVERSION
from lengthwise.evaluation.pretrained.stored_weights import Tensor, tensors
from lengthwise.evaluation.pretrained.transformers_calls import transformers_call
from lengthwise.huggingface.angles import RELATIVE
from lengthwise.huggingface.cases import Finding
from lengthwise.huggingface.description import TABLES, LayerGroup, build
from lengthwise.huggingface.folder import ModelFolder
from lengthwise.huggingface.missing_tensors import MissingTensors, stored_parameters

PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
NAMES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64"}
ROUNDED = 2.0**-7  # largest relative error of a frequency that was rounded to bfloat16
SLOPES = ("slopes", "alibi_slopes")
MAX_NUMBERS = 1 << 16  # of a tensor that is read
LAYER = re.compile(r"\.(?:layers|h|blocks)\.(\d+)\.")


def stored_tensors(folder: ModelFolder) -> dict[str, Tensor]:
    """Return the types and shapes of all stored tensors by name. Raise `ConfigError` if there are only pickles, or nothing."""
    if not any(folder.path.glob("*.safetensors")):
        pickled = sorted(file.name for pattern in PICKLES for file in folder.path.glob(pattern))
        if pickled:
            raise ConfigError(
                f"{folder.path} has no *.safetensors, and {pickled[0]} is not read, because a pickle can run code; convert it "
                f"where you trust it: {CONVERSION}"
            )
        raise ConfigError(f"{folder.path} has no *.safetensors; omit --weights, or download the whole model")
    for file in folder.path.glob("*.safetensors"):
        if not file.is_file():
            raise ConfigError(f"{file} is not a regular file; download the whole folder again")
    return tensors(folder.path)


@dataclass(frozen=True)
class CheckedWeights:
    """What was found in the stored tensors, and what was compared: numbers of tensors.

    `parameters`: those of the model that were looked for by their names, 0 if the folder has other names. `shapes`: of parameters
    that were compared. `frequencies`, `slopes`, `tables`: stored numbers and tables of positions.
    """

    findings: list[Finding]
    files: int
    tensors: int
    parameters: int
    shapes: int
    frequencies: int
    slopes: int
    tables: int

    def numbers(self) -> dict[str, int]:
        """Return what was compared as plain data."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "findings"}

    def in_words(self) -> str:
        names = (
            f"{self.parameters:,} parameters by name"
            if self.parameters
            else "no parameters by name, because they have other names"
        )
        return (
            f"Weights: {self.tensors:,} tensors in {self.files:,} files. Compared with the settings: {names}, the shapes of "
            f"{self.shapes:,} parameters, {self.frequencies:,} tensors of frequencies, {self.slopes:,} of slopes, and "
            f"{self.tables:,} tables of positions."
        )


def check_weights(folder: ModelFolder, groups: list[LayerGroup]) -> CheckedWeights:
    """Return what in the stored tensors contradicts the settings, with a note if they have another dtype, and what was compared."""
    stored = stored_tensors(folder)
    missing = MissingTensors(folder, stored)
    found = [*(Finding("weights", text) for text in missing.texts()), *differences(folder, groups)]
    dtype = str(folder.dtype).removeprefix("torch.")
    weights = [t for name, t in stored.items() if len(t.shape) > 1 and not t.is_computed(name)]
    dtypes = sorted({NAMES.get(tensor.dtype, tensor.dtype) for tensor in weights})
    if dtypes and dtype not in dtypes:
        found.append(
            Finding("weights", f"the weights are {', '.join(dtypes)}, and config.json says {dtype}", is_problem=False)
        )
    last = [name.removesuffix(".weight").rpartition(".")[2] for name in stored]
    return CheckedWeights(
        found, len(list(folder.path.glob("*.safetensors"))), len(stored), missing.compared,
        len(list(_comparable(folder, stored))), last.count("inv_freq"), sum(map(last.count, SLOPES)), sum(map(last.count, TABLES)),
    )  # fmt: skip


def differences(folder: ModelFolder, groups: list[LayerGroup]) -> Iterator[Finding]:
    """Yield what in the stored tensors contradicts the settings, each in one line."""
    stored = stored_tensors(folder)
    by_layer = {layer: group for group in groups for layer in group.layers}
    for kind, text in _once([*_shapes(folder, stored), *_frequencies(folder, stored, by_layer)]):
        # transformers computes the frequencies itself, and many checkpoints (Pythia) have them in their own dtype
        yield Finding("weights", text, is_problem=kind != "rounded")
    for name, tensor in stored.items():
        choice = by_layer[0].encoding
        if name.rpartition(".")[2] in SLOPES and choice is not None and choice.cls is ALiBi:
            ours = torch.as_tensor(build(folder, by_layer[0]).slopes, dtype=torch.float64).flatten()
            theirs = _values(folder, name, tensor)
            if theirs is not None and (len(theirs) != len(ours) or not torch.allclose(theirs, ours, rtol=RELATIVE)):
                yield Finding("weights", f"{name} has other slopes than transformers computes for these settings")


def _frequencies(
    folder: ModelFolder, stored: dict[str, Tensor], by_layer: dict[int, LayerGroup]
) -> Iterator[tuple[str, str]]:
    for name, tensor in stored.items():
        if name.rpartition(".")[2] != "inv_freq":
            continue
        layer = LAYER.search(f".{name}")
        group = by_layer.get(int(layer[1]) if layer else 0)
        if group is None or group.encoding is None or not issubclass(group.encoding.cls, RotaryEncoding):
            continue
        theirs = _values(folder, name, tensor)
        ours = build(folder, group).frequencies(torch.tensor(1)).flatten().double()
        if theirs is None or theirs.shape != ours.shape:
            yield "shape", f"{name} has shape {list(tensor.shape)}, but the settings mean {len(ours)} frequencies"
            continue
        # Linear scaling divides either the frequencies, or the positions, as in older versions of transformers.
        factors = {1.0, float(dict(group.encoding.settings)["factor"]) if group.encoding.cls is PI else 1.0}
        error = min(((theirs - ours * f).abs() / (ours * f).abs().clamp(min=1e-30)).max().item() for f in factors)
        dtype = NAMES.get(tensor.dtype, tensor.dtype)
        if not theirs.isfinite().all():
            yield "formula", f"{name} contains NaN or infinity; download this file again"
        elif error > ROUNDED:
            yield (
                "formula",
                f"{name} differs from the frequencies of the settings by up to {error:.2g} of their size: the model was trained "
                "with other settings (transformers ignores these stored numbers)",
            )
        elif error > RELATIVE:
            yield (
                "rounded",
                f"{name} was rounded to {dtype if dtype != 'float32' else 'a smaller type'} (error {error:.2g}), so an angle at "
                f"position {(folder.length or 1) - 1:,} was off by up to {error * float(ours.max()) * (folder.length or 1):.3g} "
                "radians when the model was saved; transformers computes unrounded ones",
            )


def _once(found: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the first text of each kind, with the number of further tensors of which the same is true."""
    texts: dict[str, list[str]] = {}
    for kind, text in found:
        texts.setdefault(kind, []).append(text)
    for kind, (first, *more) in texts.items():
        others = f" (and so of {len(more)} more tensor{'s' if len(more) > 1 else ''})" if more else ""
        yield kind, first + others


def _shapes(folder: ModelFolder, stored: dict[str, Tensor]) -> Iterator[tuple[str, str]]:
    """Yield stored parameters of another shape than the model's, such as projections for other numbers of heads."""
    for name, shape in _comparable(folder, stored):
        if stored[name].shape != shape:
            yield (
                "parameter",
                f"{name} has shape {list(stored[name].shape)}, but the settings mean {list(shape)}; use the config.json that "
                "belongs to the weights",
            )


def _comparable(folder: ModelFolder, stored: dict[str, Tensor]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the names of stored parameters with the shapes of the model's. Quantized weights are packed, and have others.

    Tensors with more axes are left out, because transformers transposes the experts of some models while it loads them.
    """
    for name, parameter in stored_parameters(folder.model, stored):
        if stored[name].dtype in NAMES and parameter.dim() <= 2:
            yield name, tuple(parameter.shape)


def _values(folder: ModelFolder, name: str, tensor: Tensor) -> Any:
    from safetensors import safe_open

    if tensor.size > MAX_NUMBERS or tensor.dtype not in NAMES:
        return None
    for file in sorted(folder.path.glob("*.safetensors")):
        with transformers_call(folder.path, "read its weights"), safe_open(file, "pt") as opened:
            if name in opened.keys():  # noqa: SIM118 - it is not a dictionary
                return opened.get_tensor(name).double().flatten()
    return None
