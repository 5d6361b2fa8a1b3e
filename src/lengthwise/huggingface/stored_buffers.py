"""Compare the tensors in a folder's safetensors with its settings. No pickle is ever read."""

import copy
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import torch

from lengthwise.encodings import PI, ALiBi, RotaryEncoding
from lengthwise.evaluation.pretrained.loading import import_transformers, require_safetensors
from lengthwise.evaluation.pretrained.stored_weights import Tensor, items, tensors, unused_tensors
from lengthwise.evaluation.pretrained.transformers_calls import CORRECT, transformers_call
from lengthwise.huggingface.angles import RELATIVE
from lengthwise.huggingface.cases import Finding
from lengthwise.huggingface.description import TABLES, LayerGroup, build
from lengthwise.huggingface.folder import ModelFolder

NAMES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64"}
ROUNDED = 2.0**-7  # largest relative error of a frequency that was rounded to bfloat16
SLOPES = ("slopes", "alibi_slopes")
MAX_NUMBERS = 1 << 16  # of a tensor that is read
LAYER = re.compile(r"\.(?:layers|h|blocks)\.(\d+)\.")


@dataclass(frozen=True)
class CheckedWeights:
    """What was found in the stored tensors, and what was compared: numbers of tensors.

    `parameters`: those of the model, whose names and shapes transformers compared with the stored ones; 0 if they are
    quantized.
    `frequencies`, `slopes`, `tables`: stored numbers and tables of positions.
    """

    findings: list[Finding]
    files: int
    tensors: int
    parameters: int
    frequencies: int
    slopes: int
    tables: int

    def numbers(self) -> dict[str, int]:
        """Return what was compared as plain data."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "findings"}

    def in_words(self) -> str:
        names = f"{self.parameters:,} parameters" if self.parameters else "no parameters, because they are quantized"
        return (
            f"Weights: {self.tensors:,} tensors in {self.files:,} files. Compared with the settings: {names}, "
            f"{self.frequencies:,} tensors of frequencies, {self.slopes:,} of slopes, and {self.tables:,} tables of "
            "positions."
        )


def check_weights(folder: ModelFolder, groups: list[LayerGroup]) -> CheckedWeights:
    """Return what in the stored tensors contradicts the settings or has another dtype, and what was compared.

    Raise `ConfigError` if there are only pickles, or nothing.
    """
    require_safetensors(folder.path, "omit --weights, or download the whole model")
    stored = tensors(folder.path)
    is_quantized = "quantization_config" in dict(items(folder.whole))
    parameters = [] if is_quantized else list(folder.model.parameters())
    texts = [] if is_quantized else list(_parameters(folder, stored))
    findings = [*(Finding("weights", text) for text in texts), *differences(folder, groups, stored)]
    dtype = str(folder.dtype).removeprefix("torch.")
    weights = [t for name, t in stored.items() if len(t.shape) > 1 and not t.is_computed(name)]
    dtypes = sorted({NAMES.get(tensor.dtype, tensor.dtype) for tensor in weights})
    if dtypes and dtype not in dtypes:
        findings.append(
            Finding("weights", f"the weights are {', '.join(dtypes)}, and config.json says {dtype}", is_problem=False)
        )
    last = [name.removesuffix(".weight").rpartition(".")[2] for name in stored]
    return CheckedWeights(
        findings, len(list(folder.path.glob("*.safetensors"))), len(stored), len(parameters),
        last.count("inv_freq"), sum(map(last.count, SLOPES)), sum(map(last.count, TABLES)),
    )  # fmt: skip


def _parameters(folder: ModelFolder, stored: dict[str, Tensor]) -> Iterator[str]:
    """Yield where the names and shapes of stored tensors are not those of the model's parameters.

    transformers loads tensors without values on the device meta, so it renames and joins them like real ones.
    """
    state = {
        name: torch.empty(tensor.shape, dtype=getattr(torch, NAMES.get(tensor.dtype, "uint8")), device="meta")
        for name, tensor in stored.items()
    }
    declared = str((folder.whole.get("architectures") or [""])[0])
    cls: Any = getattr(import_transformers(), declared, type(folder.model))
    config = copy.deepcopy(folder.top if isinstance(folder.top, cls.config_class) else folder.model.config)
    with transformers_call(folder.path, "compare its weights", advice=CORRECT):
        _, report = cls.from_pretrained(
            None,
            config=config,
            state_dict=state,
            device_map="meta",
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            attn_implementation="eager",
            experts_implementation="eager",
        )
    if missing := sorted(map(str, report["missing_keys"])):
        more = f" and {len(missing) - 1:,} more of the model's parameters are" if len(missing) > 1 else " is"
        yield f"{missing[0]}{more} not stored, and would be random; download the whole model"
    for name, saved, expected in sorted(report["mismatched_keys"])[:1]:
        yield (
            f"{name} has shape {list(saved)}, but the settings mean {list(expected)}"
            f"{_others(len(report['mismatched_keys']) - 1)}; use the config.json that belongs to the weights"
        )
    if unused := unused_tensors(report["unexpected_keys"], stored):
        yield (
            f"the model does not use {unused[0]}{_others(len(unused) - 1)}; use the config.json that belongs to the "
            "weights"
        )


def differences(folder: ModelFolder, groups: list[LayerGroup], stored: dict[str, Tensor]) -> Iterator[Finding]:
    """Yield stored frequencies and slopes that contradict the settings, each in one line."""
    by_layer = {layer: group for group in groups for layer in group.layers}
    for kind, text in _once(_frequencies(folder, stored, by_layer)):
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
                f"{name} differs from the frequencies of the settings by up to {error:.2g} of their size: the model "
                "was trained with other settings (transformers ignores these stored numbers)",
            )
        elif error > RELATIVE:
            yield (
                "rounded",
                f"{name} was rounded to {dtype if dtype != 'float32' else 'a smaller type'} (error {error:.2g}), so an "
                f"angle at position {(folder.length or 1) - 1:,} was off by up to "
                f"{error * float(ours.max()) * (folder.length or 1):.3g} "
                "radians when the model was saved; transformers computes unrounded ones",
            )


def _once(problems: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the first text of each kind, with the number of further tensors of which the same is true."""
    texts: dict[str, list[str]] = {}
    for kind, text in problems:
        texts.setdefault(kind, []).append(text)
    for kind, (first, *more) in texts.items():
        yield kind, first + _others(len(more))


def _others(number: int) -> str:
    return f" (and so of {number:,} more tensor{'s' if number > 1 else ''})" if number else ""


def _values(folder: ModelFolder, name: str, tensor: Tensor) -> Any:
    from safetensors import safe_open

    if tensor.size > MAX_NUMBERS or tensor.dtype not in NAMES:
        return None
    for file in sorted(folder.path.glob("*.safetensors")):
        with transformers_call(folder.path, "read its weights"), safe_open(file, "pt") as opened:
            if name in opened.keys():  # noqa: SIM118 - it is not a dictionary
                return opened.get_tensor(name).double().flatten()
    return None
