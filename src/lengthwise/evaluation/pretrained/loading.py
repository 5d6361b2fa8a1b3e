"""A pretrained causal model from a folder, with what can be wrong about a folder said in one line.

A folder made by somebody else is data. Its files can name code that transformers would fetch or run: an attention implementation
on the hub, modules beside the weights, an adapter, a quantization method, shards that are pickles. `load` refuses these or names
its own choice, and Hugging Face's hub is switched off while a model is loaded or asked.
"""

import copy
import hashlib
import json
import reprlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lengthwise import regular_file
from lengthwise.config import ConfigError, near_miss
from lengthwise.evaluation.pretrained.calling import calling
from lengthwise.evaluation.pretrained.stored import (
    items,
    require_a_layer,
    require_all_used,
    require_layers_stored,
    require_numbers_stored,
    require_parameters_stored,
    tensors,
)

REFUSED = {
    "quantization_config": "quantized weights, which other packages and kernels from the hub would compute",
    "compression_config": "compressed weights, which another package would compute",
    "fusion_config": "fusions, which replace parts of transformers for the whole process",
}
"""Settings that make transformers run more than the model itself, wherever they stand in a config.json."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
VOCABULARIES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt")
LIMITS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length")
MOST_SETTINGS = 64 << 20  # bytes of a file of settings; the index of a model of 10^5 tensors has 10^7
MARGIN = 1000  # units of rounding: what two rows of a batch may differ by where a model sees the same


@dataclass(frozen=True)
class Pretrained:
    """A model and its tokenizer. `most`: the positions it has; None: without limit."""

    folder: Path
    model: Any
    tokenizer: Any
    architecture: str
    most: int | None

    @property
    def model_type(self) -> str:
        return self.model.config.model_type

    def described(self) -> dict[str, Any]:
        """What has to be known to load it again, and to see that it is the same."""
        parameters = list(self.model.parameters())
        return {
            "folder": str(self.folder),
            "architecture": self.architecture,
            "parameters": sum(p.numel() for p in parameters),
            "max_positions": self.most,
            "dtype": str(parameters[0].dtype).removeprefix("torch."),
            "attention": self.model.config._attn_implementation,
            "device": str(parameters[0].device),
            "sha256": {path.name: _digest(path) for path in _read(self.folder)},
        }


def load(folder: str | Path, *, device: str = "cpu", dtype: str = "float32") -> Pretrained:
    """The causal model in a folder, in evaluation mode.

    Raise `ConfigError`, in one line, for a folder that has no tokenizer, no safetensors or no causal model, and for weights that do
    not fill the model, that it does not use, or that are too large for the memory.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"there is no dtype {dtype!r}{near_miss(dtype, DTYPES)}; there are: {', '.join(DTYPES)}")
    path = Path(folder)
    settings = _settings(path)
    _require_files(path)
    _require_model_alone(path, settings)
    transformers = _library()
    architecture = _architecture(path, settings, transformers)
    stored = tensors(path)
    require_layers_stored(path, settings, stored)
    require_numbers_stored(path / "config.json", settings, stored)
    if (file := path / "tokenizer_config.json").exists():
        require_numbers_stored(file, _json_object(file), stored)
    local = {"local_files_only": True, "trust_remote_code": False}
    with calling(path, "read its config.json"):
        config = transformers.AutoConfig.from_pretrained(path, **local)
        _return_objects(config)
        # With these names `config` has to be given too: what transformers reads from the file itself would come after them.
        computed = {"attn_implementation": _attention(transformers, architecture), "experts_implementation": "eager"}
    require_a_layer(path, config)
    most = _most(path, config)
    with calling(path, "read its tokenizer"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, config=config, **local)
    with calling(path, "build the model of its config.json"), torch.device("meta"):  # which takes no memory
        empty = transformers.AutoModelForCausalLM.from_config(
            copy.deepcopy(config), trust_remote_code=False, **computed
        )
    require_parameters_stored(path, empty, stored)
    with calling(path, "read its weights"):
        model, report = transformers.AutoModelForCausalLM.from_pretrained(
            path,
            config=config,
            use_safetensors=True,
            use_kernels=False,
            dtype=DTYPES[dtype],
            output_loading_info=True,
            **local,
            **computed,
        )
        model = model.to(device).eval()
    for name in ("missing_keys", "mismatched_keys"):
        if lost := sorted(map(str, report.get(name) or ())):
            raise ConfigError(
                f"{path}: {len(lost)} of the weights of {architecture} are not in its safetensors, such as {lost[0]}; they "
                "would be random: get the whole model"
            )
    require_all_used(path, architecture, report.get("unexpected_keys") or (), stored)
    _require_causal(path, model)
    return Pretrained(path, model, tokenizer, architecture, most)


def _settings(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        what = "a file" if path.exists() else "nothing"
        raise ConfigError(
            f"{path} is {what}; name a folder that holds config.json, a tokenizer and *.safetensors (nothing is fetched)"
        )
    if not (path / "config.json").exists():
        raise ConfigError(f"{path} has no config.json, so it is no model of transformers; name the folder that has it")
    return _json_object(path / "config.json")


def _json_object(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(regular_file.read(file, MOST_SETTINGS))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read ({error.strerror}); get it again") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is no JSON ({error}); get it again") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{file} is no JSON object; get it again")
    return found


def _require_files(path: Path) -> None:
    for file in (*path.iterdir(), *path.glob("additional_chat_templates/*")):
        if file.exists() and not file.is_file() and not file.is_dir():  # a pipe would block, and a device may not end
            raise ConfigError(f"{file} is no regular file; get the whole folder again")
    if not any(path.glob("*.safetensors")):
        pickled = sorted(file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in path.glob(pattern))
        has = f"; {pickled[0]} is pickled, which runs what is in it, and is not read" if pickled else ""
        raise ConfigError(f"{path} has no *.safetensors{has}; get or convert the weights as safetensors")
    if not any((path / name).exists() for name in VOCABULARIES):
        raise ConfigError(
            f"{path} has no tokenizer ({', '.join(VOCABULARIES[:2])}, ...); copy the one that the model was trained with into it"
        )


def _require_model_alone(path: Path, settings: dict[str, Any]) -> None:
    """Refuse a folder whose files make transformers read or run something beside one model's safetensors."""
    if (path / "adapter_config.json").exists():
        raise ConfigError(
            f"{path} holds an adapter (adapter_config.json), which names a model elsewhere; merge it into its model and save that"
        )
    for key, _ in items(settings):
        if why := REFUSED.get(key):
            raise ConfigError(f"{path / 'config.json'} has {key}: {why}; get the model in float32, bfloat16 or float16")
    for file, name in _weight_files(path, settings):
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise ConfigError(
                f"{path / file} names {name!r} as weights; only *.safetensors in the folder itself are read: get or convert "
                "the weights as safetensors"
            )


def _weight_files(path: Path, settings: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The files of weights that the folder's files name, each with the file that names it."""
    if (name := settings.get("transformers_weights")) is not None:
        yield "config.json", name
    for index in sorted(path.glob("*.safetensors.index.json")):
        shards = _json_object(index).get("weight_map")
        yield from ((index.name, shard) for shard in (shards.values() if isinstance(shards, dict) else [None]))


def _attention(transformers: Any, architecture: str) -> str:
    """The attention that the model is computed with: torch's fused one where transformers has it for this class."""
    return "sdpa" if getattr(getattr(transformers, architecture), "_supports_sdpa", False) else "eager"


def _library() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise ConfigError(
            f"pretrained models need transformers, which cannot be imported ({error}); pip install 'lengthwise[outside]'"
        ) from error
    return transformers


def _architecture(path: Path, settings: dict[str, Any], transformers: Any) -> str:
    """The class of the model; what a folder says must be what transformers makes of it as a causal model."""
    kind = settings.get("model_type")
    known = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    declared = settings.get("architectures") or []
    if not isinstance(declared, list) or not all(isinstance(each, str) for each in declared):
        raise ConfigError(
            f"{path / 'config.json'} has architectures {reprlib.repr(declared)}, which is no list of names; get it again"
        )
    if not isinstance(kind, str) or kind not in known:
        own = "; code that comes with a folder (auto_map) is never run" if settings.get("auto_map") else ""
        raise ConfigError(
            f"{path}: transformers {transformers.__version__} has no causal language model of the type {reprlib.repr(kind)}{own}; "
            "take a model that says one token after the other, such as MPT or Llama"
        )
    name: str = known[kind]
    if declared and name.lower() not in map(str.lower, declared):  # the first MPT wrote itself MPT
        raise ConfigError(
            f"{path} holds {', '.join(declared)}, which is no causal language model ({name} would be one of this type); take a "
            "model that says one token after the other, such as MPT or Llama"
        )
    return name


def _return_objects(config: Any) -> None:
    """Set `return_dict`: without it some models fail on their own tuples, and an argument does not reach their parts."""
    config.return_dict = True
    for name in config.sub_configs:
        if (part := getattr(config, name, None)) is not None:
            _return_objects(part)


def _require_causal(path: Path, model: Any) -> None:
    """Another last token must change nothing before it: some models of a causal class look both ways, as they are set."""
    vocab = model.get_input_embeddings().weight.shape[0]
    tokens = (torch.arange(6) % vocab).repeat(2, 1).to(model.device)
    tokens[1, -1] = (tokens[1, -1] + 1) % vocab
    with calling(path, "compute its logits"), torch.no_grad():
        logits = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False).logits.float()
    one, other = logits[:, :-1]
    rounding = min(MARGIN * torch.finfo(model.dtype).eps, 0.05)
    if vocab > 1 and not (one - other).abs().max() <= rounding * one.abs().max():
        if not bool(logits.isfinite().all()):
            raise ConfigError(f"{path}: its logits are no finite numbers in {model.dtype}; try --dtype float32")
        raise ConfigError(f"{path}: the model sees tokens that come later, so it is not causal; take another one")


def _most(path: Path, config: Any) -> int | None:
    """The positions that a model has. Dynamic NTK stretches them by its factor, without saying so in their number."""
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    for name in LIMITS:
        if isinstance(found := getattr(config, name, None), int) and found > 0:
            dynamic = isinstance(rope, dict) and rope.get("rope_type", rope.get("type")) == "dynamic"
            return _stretched(path, found, rope.get("factor", 1)) if dynamic else found
    return None


def _stretched(path: Path, positions: int, factor: Any) -> int:
    try:
        if isinstance(factor, int | float) and factor > 0:
            return int(positions * factor)
    except OverflowError:  # infinite, or the product is
        pass
    raise ConfigError(
        f"{path / 'config.json'} stretches its positions by the factor {reprlib.repr(factor)}; it has to be a finite number "
        "above 0: get it again"
    )


def _read(path: Path) -> Iterable[Path]:
    """The files that say what a model computes."""
    patterns = ("config.json", "*.safetensors", "*token*", "vocab*")
    return sorted({file for pattern in patterns for file in path.glob(pattern) if file.is_file()})


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
