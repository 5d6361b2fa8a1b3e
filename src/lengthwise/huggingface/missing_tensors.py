"""Which parameters of a model its folder does not contain, by the names of the tensors in its safetensors."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from torch import nn

from lengthwise.evaluation.pretrained.loading import json_object
from lengthwise.evaluation.pretrained.stored_weights import Tensor
from lengthwise.huggingface.folder import ModelFolder

LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.(.+)")
OTHER_INPUTS = re.compile("vision|visual|audio")  # layers that are not part of the language model
LAYERS_BEYOND = ("num_nextn_predict_layers", "num_mtp_layers")
"""Settings with the number of stored layers that predict further tokens, and that transformers does not build."""


def stored_parameters(model: nn.Module, stored: Mapping[str, Tensor]) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield the names under which parameters of a model are stored, without those that are stored under several or none."""
    in_layers: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name in stored:
        if (match := LAYER.search(name)) is not None and OTHER_INPUTS.search(name) is None:
            in_layers[match.groups()].append(name)
    for name, parameter in model.named_parameters():
        match = LAYER.search(name)
        names = [name.partition(".")[2]] if match is None else in_layers[match.groups()]
        if name in stored:
            yield name, parameter
        elif OTHER_INPUTS.search(name) is None and len(names) == 1 and names[0] in stored:
            yield names[0], parameter


class MissingTensors:
    """The comparison of a model's parameters with the stored tensors.

    Names are compared without what stands before the number of a layer, because folders differ in it. Where the names inside of
    a part of the layers, such as "mlp", are others than those of the model's class (packed weights, experts that transformers
    joins), only layers are compared with each other. `compared`: the number of parameters that were looked for by name.
    """

    def __init__(self, folder: ModelFolder, stored: dict[str, Tensor]):
        self.folder, self.stored = folder, stored
        self.in_layers = _by_layer(stored)
        tied = getattr(folder.model, "_tied_weights_keys", None) or ()
        is_tied = bool(getattr(folder.config, "tie_word_embeddings", False))
        names = [name for name, _ in folder.model.named_parameters() if not (is_tied and name in tied)]
        self.expected = _by_layer(names)
        self.others = [n for n in names if LAYER.search(n) is None and OTHER_INPUTS.search(n) is None]
        computed = {
            n for name, t in stored.items() if t.is_computed(name) and (m := LAYER.search(name)) for n in [m[2]]
        }
        self.further = {n for n in self.in_layers if n not in self.expected} - computed
        parts, further_parts = {_part(n) for n in self.expected}, {_part(n) for n in self.further}
        has_other_parts = not further_parts <= parts
        self.renamed = {
            n for n in self.expected if n not in self.in_layers and (has_other_parts or _part(n) in further_parts)
        }
        self.compared = 0 if self.renamed else len(names)

    def texts(self) -> Iterator[str]:
        """Yield what is missing, each in one line. If a file is missing, its tensors are not listed too."""
        indexed = list(self._of_the_index())
        yield from indexed
        if not indexed:
            yield from self._of_the_model()

    def _of_the_index(self) -> Iterator[str]:
        for index in sorted(self.folder.path.glob("*.safetensors.index.json")):
            shards = json_object(index).get("weight_map")
            if not isinstance(shards, dict):
                yield f"{index.name} has no weight_map"
                continue
            missing: dict[str, list[str]] = defaultdict(list)
            for name, file in shards.items():
                if name not in self.stored:
                    missing[str(file)].append(name)
            for file, names in missing.items():
                is_there = (self.folder.path / file).is_file()
                what = f"{file} does not contain {names[0]}" if is_there else f"{file} is missing, with {names[0]}"
                more = f" and {len(names) - 1:,} more tensors" if len(names) > 1 else ""
                yield f"{index.name}: {what}{more}; download this file again"

    def _of_the_model(self) -> Iterator[str]:
        lost = []
        for name, layers in self.expected.items():
            there = self.in_layers.get(name, {})
            if there or name not in self.renamed:
                lost += [full for layer, full in layers.items() if layer not in there]
        if not self.further:
            ends = {_end(name) for name in self.stored}
            lost += [name for name in self.others if _end(name) not in ends]
        if lost:
            more = f" and {len(lost) - 1:,} more of the model's parameters are" if len(lost) > 1 else " is"
            yield f"{lost[0]}{more} not stored, and would be random; download the whole model"
        allowed = sum(int(self.folder.settings.get(name) or 0) for name in LAYERS_BEYOND)
        number = 1 + max((layer for name in self.expected for layer in self.in_layers.get(name, ())), default=-1)
        if self.expected and number > self.folder.layers + allowed:
            yield f"the weights have {number:,} layers, and config.json says {self.folder.layers:,}; correct num_hidden_layers"


def _by_layer(names: Iterable[str]) -> dict[str, dict[int, str]]:
    """Return the names of tensors by what follows the number of their layer, and by this number."""
    found: dict[str, dict[int, str]] = defaultdict(dict)
    for name in names:
        if (match := LAYER.search(name)) is not None and OTHER_INPUTS.search(name) is None:
            found[match[2]][int(match[1])] = name
    return dict(found)


def _part(name: str) -> str:
    return name.partition(".")[0]


def _end(name: str) -> str:
    return ".".join(name.split(".")[-2:])
