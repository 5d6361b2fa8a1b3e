"""Which parameters of a model its folder does not contain, by the names of the tensors in its safetensors."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from lengthwise.evaluation.pretrained.loading import json_object
from lengthwise.evaluation.pretrained.stored_weights import Tensor
from lengthwise.huggingface.folder import ModelFolder

LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.(.+)")
OTHER_INPUTS = re.compile("vision|visual|audio")  # layers that are not part of the language model
LAYERS_BEYOND = ("num_nextn_predict_layers", "num_mtp_layers")
"""Settings with the number of stored layers that predict further tokens, and that transformers does not build."""


class MissingTensors:
    """The comparison of a model's parameters with the stored tensors.

    Names are compared without what stands before the number of a layer, because folders differ in it. Where the names inside of
    layers are others than those of the model's class (packed weights, experts that transformers joins), only layers are compared
    with each other. `compared`: the number of parameters that were looked for by name.
    """

    def __init__(self, folder: ModelFolder, stored: dict[str, Tensor]):
        self.folder, self.stored = folder, stored
        self.in_layers = _by_layer(stored)
        tied = getattr(folder.model, "_tied_weights_keys", None) or ()
        is_tied = bool(getattr(folder.config, "tie_word_embeddings", False))
        names = [name for name, _ in folder.model.named_parameters() if not (is_tied and name in tied)]
        self.expected = _by_layer(names)
        self.others = [n for n in names if LAYER.search(n) is None and OTHER_INPUTS.search(n) is None]
        further = [n for n in self.in_layers if n not in self.expected]
        computed = {
            n for name, t in stored.items() if t.is_computed(name) and (m := LAYER.search(name)) for n in [m[2]]
        }
        self.has_own_names = not set(further) <= computed
        self.compared = 0 if self.has_own_names else len(names)

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
            if there or not self.has_own_names:
                lost += [full for layer, full in layers.items() if layer not in there]
        if not self.has_own_names:
            ends = {_end(name) for name in self.stored}
            lost += [name for name in self.others if _end(name) not in ends]
        if lost:
            more = f" and {len(lost) - 1:,} more" if len(lost) > 1 else ""
            yield f"{lost[0]}{more} of the model's parameters are not stored, and would be random; download the whole model"
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


def _end(name: str) -> str:
    return ".".join(name.split(".")[-2:])
