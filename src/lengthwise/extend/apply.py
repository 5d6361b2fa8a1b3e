"""Put a method into a model, and write its folder.

If transformers itself computes the method, the folder is one that any program loads ("native"). Otherwise it has the
type of `lengthwise.huggingface`, which keeps the encoding of `use`.
"""

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from lengthwise import cache_folder
from lengthwise.config import Choice, ConfigError
from lengthwise.encodings import NoPE
from lengthwise.evaluation.pretrained import Pretrained
from lengthwise.evaluation.pretrained.loading import DTYPES, TOKENIZER_FILES, json_object
from lengthwise.evaluation.pretrained.transformers_calls import offline, silent
from lengthwise.huggingface import LengthwiseConfig, LengthwiseForCausalLM, unuse, use
from lengthwise.huggingface.angles import compare_angles
from lengthwise.huggingface.description import layer_groups
from lengthwise.huggingface.folder import read_folder
from lengthwise.huggingface.own_encoding import head_dim_of, layout_of, train_length_of
from lengthwise.huggingface.replacement import without_encoding
from lengthwise.models.conversion import equivalent, rope_parameters_from_encoding
from lengthwise.reach.methods import choice_for, own_choice

NATIVE, LENGTHWISE = "native", "lengthwise"
DIFFERENT = "lengthwise, because transformers computes something else"
COMPUTED_BY_TRANSFORMERS = ("RoPE", "PI", "YaRN", "Llama3", "PRoPE")
"""Encodings of which transformers has a rotation that does not depend on the length of the text."""
COPIED = (*TOKENIZER_FILES, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt")
TEMPLATES = ("chat_template.*", "additional_chat_templates/*")
CHECKED_TOKENS = 64  # of a text for which the written folder must give the same logits
TOLERANCE = 1000  # machine epsilons by which they may differ, as a root mean square relative to that of the logits


class Unequal(Exception):
    """A written folder gives other logits than the model in memory."""


def factor_of(choice: Choice) -> float | None:
    """Return the largest factor by which a choice extends the length; None if its encodings have none."""
    factors = [dict(layer.settings).get("factor") for layer in choice.layers]
    return max((float(factor) for factor in factors if factor is not None), default=None)


def extended_length(model: Any, method: str) -> int:
    """Return the length that a method means: its factor times the original length."""
    factor = factor_of(choice_for(model, method))
    return int(train_length_of(model.config) * (1.0 if factor is None else factor))


def require_applicable(model: Any, method: str) -> None:
    """Raise `ConfigError` if a model cannot have the encoding of a method."""
    choice = choice_for(model, method)
    if isinstance(model, LengthwiseForCausalLM):
        rebuilt(model, choice)
        return
    with without_encoding(model):
        use(model, choice)
        unuse(model)


def rebuilt(model: LengthwiseForCausalLM, choice: Choice) -> LengthwiseForCausalLM:
    """Return one of our models with another encoding and copies of all other weights; with the same one, of all."""
    settings: dict[str, Any] = {**model.config.to_dict(), "encoding": choice.to_data()}
    other = LengthwiseForCausalLM(LengthwiseConfig(**settings))
    new_state, state = other.state_dict(), model.state_dict()
    copied = {name: x for name, x in state.items() if name in new_state and new_state[name].shape == x.shape}
    for name in {*new_state, *state} - set(copied):
        if ".encodings." not in name:
            raise ConfigError(
                f"{choice.label} does not fit the model, whose {name} would be lost or random; name another method"
            )
    if choice != own_choice(model):
        copied = {name: value for name, value in copied.items() if ".encodings." not in name}
    other.load_state_dict(copied, strict=False)
    return other.to(model.device, model.dtype).eval()


# ---- writing ------------------------------------------------------------------------------------------------------


def write_start(pretrained: Pretrained, method: str, seed: int, longest: int, folder: Path) -> str:
    """Write the model with a method into a new folder, and return its form: `NATIVE`, `LENGTHWISE` or `DIFFERENT`.

    `seed`: of the parameters of an encoding that has some. `longest`: the length that the model will be trained for, if
    the method has no factor. What was written is loaded again, and must give the same logits as the model in memory.
    """
    model, choice = pretrained.model, choice_for(pretrained.model, method)
    if isinstance(model, LengthwiseForCausalLM):
        torch.manual_seed(seed)
        dtype = str(model.dtype).removeprefix("torch.")
        write_folder(rebuilt(model, choice), pretrained.folder, folder, None, dtype)
        return LENGTHWISE
    extended = max(extended_length(model, method), longest if factor_of(choice) is None else 0)
    with without_encoding(model):
        return _write_choice(pretrained, choice, seed, extended, folder)


def _write_choice(pretrained: Pretrained, choice: Choice, seed: int, extended: int, folder: Path) -> str:
    """Write a model that has none of our encodings with a choice, and return its form. `seed`: of its parameters."""
    model, dtype = pretrained.model, str(pretrained.model.dtype).removeprefix("torch.")
    torch.manual_seed(seed)
    config = native_config(model, choice, extended)
    use(model, choice)
    try:
        expected = logits_of(model, checked_tokens(model))
        if config is None:
            write_folder(model, pretrained.folder, folder, None, dtype)
            return LENGTHWISE
    finally:
        unuse(model)
    original_config, model.config = model.config, config
    try:
        write_folder(model, pretrained.folder, folder, extended, dtype, expected)
        model_folder = read_folder(folder)
        comparisons = compare_angles(model_folder, layer_groups(model_folder))
        if all(getattr(comparison, "agrees", False) for comparison in comparisons):
            return NATIVE
    except Unequal:
        pass  # the form that is returned says so
    finally:
        model.config = original_config
    shutil.rmtree(folder)
    torch.manual_seed(seed)
    use(model, choice)
    try:
        write_folder(model, pretrained.folder, folder, None, dtype)
    finally:
        unuse(model)
    return DIFFERENT


def write_folder(
    model: Any, source: Path, folder: Path, extended: int | None, dtype: str, expected: Tensor | None = None
) -> None:
    """Write a model and the tokenizer of another folder. Raises `Unequal` if the written model gives other logits.

    `extended`: the length in the settings of the tokenizer. `expected`: the logits, by default those that the model
    computes.
    """
    expected = logits_of(model, checked_tokens(model)) if expected is None else expected
    with offline(), silent(stderr=False):
        model.save_pretrained(folder)
    copy_tokenizer(source, folder, extended)
    loaded = load_written(folder, str(model.device), dtype)
    logits = logits_of(loaded, expected.shape[1])
    difference = float((logits - expected).square().mean().sqrt() / expected.square().mean().sqrt())
    if not difference <= min(TOLERANCE * torch.finfo(loaded.dtype).eps, 0.1):
        raise Unequal(f"the written model gives other logits (relative difference {difference:.2g}); please report it")


def load_written(folder: Path, device: str, dtype: str) -> Any:
    """Return the model of a folder that this command has written."""
    with offline(), silent(stderr=False):
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, use_kernels=False, dtype=DTYPES[dtype]
        )
    return model.to(device).eval()


def checked_tokens(model: Any) -> int:
    return min(CHECKED_TOKENS, train_length_of(model.config))


@torch.no_grad()
def logits_of(model: Any, tokens: int) -> Tensor:
    """Return the logits of a short random text, which is the same for equal vocabularies."""
    vocab = model.get_input_embeddings().weight.shape[0]
    ids = torch.randint(vocab, (1, tokens), generator=torch.Generator().manual_seed(0)).to(model.device)
    with offline(), silent(stderr=False):
        logits: Tensor = model(input_ids=ids, use_cache=False).logits
    return logits.float().cpu()


def copy_tokenizer(source: Path, folder: Path, extended: int | None) -> None:
    """Copy the files of a tokenizer. `extended`: the length that its settings name, if they name a shorter one."""
    files = [source / name for name in COPIED] + [file for pattern in TEMPLATES for file in source.glob(pattern)]
    for file in files:
        if file.is_file():
            target = folder / file.relative_to(source)
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(file, target)
    settings = folder / "tokenizer_config.json"
    if extended is not None and settings.exists():
        data = json_object(settings)
        if isinstance(data.get("model_max_length"), int | float) and data["model_max_length"] < extended:
            data["model_max_length"] = extended
            cache_folder.write(settings, (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode())


# ---- what transformers computes -----------------------------------------------------------------------------------


def native_config(model: Any, choice: Choice, extended: int) -> Any | None:
    """Return the configuration by which transformers computes a choice; None if it does not.

    Layers without an encoding, and kinds of layers whose encoding stays the same, keep their settings.
    """
    parameters, model_choice = getattr(model.config, "rope_parameters", None), own_choice(model)
    if not parameters or model_choice is None:
        return None
    if any(layer.layer.non_defaults for layer in choice.layers):  # temperatures and sinks
        return None
    kinds = list(getattr(model.config, "layer_types", None) or ())
    nested = bool(set(parameters) & set(kinds))
    parameters_by_kind: dict[str, Any] = {}
    for kind in dict.fromkeys(kinds) if nested else ("",):
        layers = [n for n in range(int(model.config.num_hidden_layers)) if not nested or kinds[n] == kind]
        pairs = {
            (choice.layers[n % len(choice.layers)], model_choice.layers[n % len(model_choice.layers)]) for n in layers
        }
        if all(new == old for new, old in pairs):
            parameters_by_kind[kind] = parameters.get(kind) if nested else parameters
            continue
        pairs = {(new, old) for new, old in pairs if new.cls is not NoPE or old.cls is not NoPE}
        if len({new for new, _ in pairs}) != 1 or any(old.cls is NoPE for _, old in pairs):
            return None
        ((new, _), *_) = pairs
        if (converted := _rope_parameters(model, new)) is None:
            return None
        if "partial_rotary_factor" in (parameters.get(kind) if nested else parameters):
            converted.setdefault("partial_rotary_factor", 1.0)
        parameters_by_kind[kind] = converted
    config = copy.deepcopy(model.config)
    config.rope_parameters = parameters_by_kind if nested else parameters_by_kind[""]
    config.max_position_embeddings = extended
    if getattr(config, "head_dim", 0) is None:  # Mixtral leaves it open, and transformers' YaRN needs it
        config.head_dim = head_dim_of(config)
    kinds_of_rope = {(entry or {}).get("rope_type", "default") for entry in parameters_by_kind.values()}
    if hasattr(config, "original_max_position_embeddings") or kinds_of_rope <= {"default", "linear"}:
        config.original_max_position_embeddings = train_length_of(model.config)  # Phi-3 reads it there
    if hasattr(config, "auto_map"):  # it names code that is not copied, and that is not needed
        del config.auto_map
    try:
        with offline(), silent(stderr=False):
            type(config).from_dict(config.to_dict())
    except Exception:  # the class refuses the method: Phi-3 has LongRoPE only
        return None
    return config


def _rope_parameters(model: Any, choice: Choice) -> dict[str, Any] | None:
    original = train_length_of(model.config)
    native = equivalent(choice, head_dim_of(model.config), original)
    allowed = (*COMPUTED_BY_TRANSFORMERS, *(("LongRoPE",) if model.config.model_type == "phi3" else ()))
    if native.name not in allowed or dict(native.settings)["layout"] != layout_of(model):
        return None
    try:
        return rope_parameters_from_encoding(native, train_length=original)
    except ConfigError:  # a setting that transformers does not have
        return None
