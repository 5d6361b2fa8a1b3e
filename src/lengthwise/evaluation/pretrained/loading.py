"""Load a pretrained causal model from a folder, with one-line errors for invalid folders.

A folder is untrusted data. Its files can name code that transformers would download or run: an attention implementation
on the hub, modules beside the weights, an adapter, a quantization method, pickled shards. `load` refuses these or
overrides them, and Hugging Face's hub is switched off while a model is loaded or used.
"""

import hashlib
import json
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lengthwise.config import ConfigError, near_miss
from lengthwise.evaluation.pretrained.rope_values import naming_rope_values
from lengthwise.evaluation.pretrained.stored_weights import items, tensors, unused_tensors
from lengthwise.evaluation.pretrained.transformers_calls import CORRECT, transformers_call
from lengthwise.values import install_extra

REFUSED_SETTINGS = {
    "quantization_config": "quantized weights, which other packages and kernels from the hub would compute",
    "compression_config": "compressed weights, which another package would compute",
    "fusion_config": "fusions, which replace parts of transformers for the whole process",
}
"""Settings that make transformers run more than the model itself, anywhere in a config.json."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt")
POSITION_SETTINGS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length")
CONVERSION = "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER) of transformers"
"""How to write the weights of a folder as safetensors."""
TOLERANCE = 1000  # machine epsilons by which the logits of two rows may differ where the model's inputs are the same


@dataclass(frozen=True)
class Pretrained:
    """A model and its tokenizer. `max_positions`: the number of positions, or None without a limit."""

    folder: Path
    model: Any
    tokenizer: Any
    architecture: str
    max_positions: int | None

    @property
    def model_type(self) -> str:
        return self.model.config.model_type

    def tokens(self, text: str, *, special: bool = True) -> list[int]:
        """Return the tokens of a text. `special`: with those that the tokenizer adds to every text."""
        advice = "name a model whose tokenizer reads any text"
        with transformers_call(self.folder, "use its tokenizer", advice=advice):
            tokens = list(self.tokenizer(text, add_special_tokens=special)["input_ids"])
        vocab = self.model.get_input_embeddings().weight.shape[0]
        if tokens and max(tokens) >= vocab:
            raise ConfigError(
                f"{self.folder}: its tokenizer has a token {max(tokens)}, but the model has only {vocab} tokens; copy "
                "the tokenizer that the model was trained with into the folder"
            )
        return tokens

    def description(self) -> dict[str, Any]:
        """Return facts that identify the model and how it is computed."""
        parameters = list(self.model.parameters())
        return {
            "folder": str(self.folder),
            "architecture": self.architecture,
            "parameters": sum(p.numel() for p in parameters),
            "max_positions": self.max_positions,
            "dtype": str(parameters[0].dtype).removeprefix("torch."),
            "attention": self.model.config._attn_implementation,
            "device": str(parameters[0].device),
            "sha256": _digests(self.folder),
        }


def load(
    folder: str | Path, *, device: str = "cpu", dtype: str = "float32", further: Mapping[str, type] | None = None
) -> Pretrained:
    """Return the causal model in a folder, in evaluation mode.

    `further`: classes of models by their type in config.json, which are registered with transformers in addition to its
    own.

    Raises `ConfigError`, in one line, for a folder without a tokenizer, safetensors or a causal model, and for weights
    that are missing, unused by the model, or too large for the memory.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"there is no dtype {dtype!r}{near_miss(dtype, DTYPES)}; available: {', '.join(DTYPES)}")
    path = Path(folder)
    settings = read_settings(path)
    _require_files(path)
    _require_plain_model(path, settings)
    transformers = import_transformers()
    cls: Any = (further or {}).get(str(settings.get("model_type"))) or getattr(
        transformers, causal_architecture(path, settings, transformers)
    )
    stored = tensors(path)
    local = {"local_files_only": True, "trust_remote_code": False}
    with naming_rope_values(path, settings), transformers_call(path, "read its config.json", advice=CORRECT):
        config = transformers.AutoConfig.from_pretrained(path, **local)
        # These arguments need `config` beside them: settings that transformers reads from the file would override them.
        attention = getattr(cls, "attention", None) or ("sdpa" if getattr(cls, "_supports_sdpa", False) else "eager")
        implementations = {"attn_implementation": attention, "experts_implementation": "eager"}
        max_positions = max_positions_of(config.get_text_config(decoder=True))
    with transformers_call(path, "read its tokenizer"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, config=config, **local)
    with (
        naming_rope_values(path, settings),
        transformers_call(path, "load its weights", advice="correct config.json, or download the whole folder again"),
    ):
        model, report = transformers.AutoModelForCausalLM.from_pretrained(
            path,
            config=config,
            use_safetensors=True,
            use_kernels=False,
            dtype=DTYPES[dtype],
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are named below
            **local,
            **implementations,
        )
        model = model.to(device).eval()
    architecture = type(model).__name__
    for name, saved, expected in sorted(report.get("mismatched_keys") or ()):
        raise ConfigError(
            f"{path}: {name} has the shape {list(saved)} in its safetensors, and {list(expected)} by its config.json; "
            "use the config.json that belongs to the weights"
        )
    if missing := sorted(map(str, report.get("missing_keys") or ())):
        raise ConfigError(
            f"{path}: {len(missing)} of the weights of {architecture} are not in its safetensors, such as "
            f"{missing[0]}, and would be random; download the whole model"
        )
    if unused := unused_tensors(report.get("unexpected_keys") or (), stored):
        raise ConfigError(
            f"{path}: {architecture} with its config.json does not use {len(unused)} of the weights in its "
            f"safetensors, such as {unused[0]}; use the config.json that belongs to them"
        )
    _require_causal(path, model)
    return Pretrained(path, model, tokenizer, architecture, max_positions)


def read_settings(path: Path) -> dict[str, Any]:
    """Return the content of the folder's config.json. Raise `ConfigError` if there is none."""
    if not path.is_dir():
        problem = "is a file" if path.exists() else "does not exist"
        raise ConfigError(
            f"{path} {problem}; name a folder with config.json, a tokenizer and *.safetensors (nothing is downloaded)"
        )
    if not (path / "config.json").exists():
        raise ConfigError(f"{path} has no config.json, so it is not a transformers model; name the folder that has it")
    return json_object(path / "config.json")


def json_object(file: Path) -> dict[str, Any]:
    """Return the object in an untrusted JSON file."""
    try:
        data = json.loads(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"{file} cannot be read ({error.strerror}); download it again") from None
    except ValueError as error:
        raise ConfigError(f"{file} is not valid JSON ({error}); correct it, or download it again") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{file} is not a JSON object; correct it, or download it again")
    return data


def require_safetensors(path: Path, advice: str) -> None:
    """Raise `ConfigError` for a folder without safetensors, with the advice unless there are weights in pickles."""
    if any(path.glob("*.safetensors")):
        return
    pickled = sorted(file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in path.glob(pattern))
    reason = f", and {pickled[0]} is not read, because a pickle can run code" if pickled else ""
    advice = f"convert it where you trust it: {CONVERSION}" if pickled else advice
    raise ConfigError(f"{path} has no *.safetensors{reason}; {advice}")


def _require_files(path: Path) -> None:
    require_safetensors(path, "download the whole folder again")
    if not any((path / name).exists() for name in TOKENIZER_FILES):
        raise ConfigError(
            f"{path} has no tokenizer ({', '.join(TOKENIZER_FILES[:2])}, ...); copy the one that the model was trained "
            "with into it"
        )


def _require_plain_model(path: Path, settings: dict[str, Any]) -> None:
    """Refuse a folder whose files make transformers read or run anything besides one model's safetensors."""
    if (path / "adapter_config.json").exists():
        raise ConfigError(
            f"{path} contains an adapter (adapter_config.json), which names a model elsewhere; merge the adapter into "
            "its model and save that"
        )
    for key, _ in items(settings):
        if reason := REFUSED_SETTINGS.get(key):
            raise ConfigError(
                f"{path / 'config.json'} has {key}: {reason}; take the model in float32, bfloat16 or float16"
            )
    for file, name in _weight_files(path, settings):
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise ConfigError(
                f"{path / file} must name *.safetensors in the folder itself as weights, got {name!r}; download or "
                "convert the weights as safetensors"
            )


def _weight_files(path: Path, settings: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (file, weights) for all weight files that the folder's files name."""
    if (name := settings.get("transformers_weights")) is not None:
        yield "config.json", name
    for index in sorted(path.glob("*.safetensors.index.json")):
        shards = json_object(index).get("weight_map")
        yield from ((index.name, shard) for shard in (shards.values() if isinstance(shards, dict) else [None]))


def import_transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise ConfigError(
            f"pretrained models need transformers, which cannot be imported ({error}); {install_extra('outside')}"
        ) from error
    return transformers


def causal_architecture(path: Path, settings: dict[str, Any], transformers: Any) -> str:
    """Return the name of the model's class, which must be transformers' causal model of this type."""
    model_type = settings.get("model_type")
    known = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    declared = settings.get("architectures") or []
    if not isinstance(model_type, str) or model_type not in known:
        auto_map = " (code in the folder, auto_map, is never run)" if settings.get("auto_map") else ""
        raise ConfigError(
            f"{path}: transformers {transformers.__version__} has no causal language model of the type "
            f"{reprlib.repr(model_type)}{auto_map}; take a causal model, such as MPT or Llama"
        )
    expected: str = known[model_type]
    # The first MPT has another case. A class of the model's authors (ExaoneForCausalLM) is one that transformers does
    # not have.
    own = [name for name in declared if name.endswith("ForCausalLM") and not hasattr(transformers, name)]
    if declared and not own and expected.lower() not in map(str.lower, declared):
        raise ConfigError(
            f"{path} contains {', '.join(declared)}, which is not a causal language model ({expected} would be one of "
            "this type); take a causal model, such as MPT or Llama"
        )
    return expected


def _require_causal(path: Path, model: Any) -> None:
    """Raise `ConfigError` unless changing the last token leaves all earlier logits the same.

    Some models of a causal class are bidirectional with some settings.
    """
    vocab = model.get_input_embeddings().weight.shape[0]
    tokens = (torch.arange(6) % vocab).repeat(2, 1).to(model.device)
    tokens[1, -1] = (tokens[1, -1] + 1) % vocab
    with transformers_call(path, "compute its logits"), torch.no_grad():
        logits = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False).logits.float()
    first, second = logits[:, :-1]
    tolerance = min(TOLERANCE * torch.finfo(model.dtype).eps, 0.05)
    if vocab > 1 and not (first - second).abs().max() <= tolerance * first.abs().max():
        if not bool(logits.isfinite().all()):
            dtype = str(model.dtype).removeprefix("torch.")
            hint = "try --dtype float32" if dtype != "float32" else "download the whole folder again"
            raise ConfigError(f"{path}: its logits are not finite in {dtype}; {hint}")
        raise ConfigError(f"{path}: the model is not causal, because later tokens change its logits; take another one")


def max_positions_of(config: Any) -> int | None:
    """Return the number of positions. Dynamic NTK multiplies it by its factor, which the setting does not include."""
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    for name in POSITION_SETTINGS:
        if isinstance(positions := getattr(config, name, None), int) and positions > 0:
            dynamic = isinstance(rope, dict) and rope.get("rope_type", rope.get("type")) == "dynamic"
            return int(positions * rope.get("factor", 1)) if dynamic else positions
    return None


def _digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of the files that determine what a model computes."""
    digests = {}
    for path in sorted(
        {p for name in ("config.json", "*.safetensors", "*token*", "vocab*") for p in folder.glob(name)}
    ):
        if path.is_file():
            with path.open("rb") as file:
                digests[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests
