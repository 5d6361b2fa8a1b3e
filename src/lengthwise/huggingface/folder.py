"""Read a model folder of Hugging Face without its weights: settings, configuration objects and modules.

A folder is untrusted data. Only `config.json` and `generation_config.json` are read, Hugging Face's hub is off, and the
modules are built on the device `meta`, which takes no memory.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from lengthwise.config import ConfigError
from lengthwise.evaluation.pretrained.loading import (
    DTYPES,
    causal_architecture,
    import_transformers,
    json_object,
    max_positions_of,
    read_settings,
)
from lengthwise.evaluation.pretrained.rope_values import naming_rope_values, require_values
from lengthwise.evaluation.pretrained.transformers_calls import CORRECT, offline, silent, transformers_call
from lengthwise.huggingface.exported_model import LengthwiseConfig
from lengthwise.huggingface.observation import Observation, observe
from lengthwise.huggingface.saved import ReplacedConfig, saved_choice

Data = dict[str, Any]


@dataclass(frozen=True)
class ModelFolder:
    """A folder, its settings, and what the installed transformers makes of them.

    `whole`: the content of config.json. `settings`: the part of it that describes the language model, the same unless
    the model also takes images or sound. `top`, `config`: the configuration objects of the whole and of that part.
    `model`: the modules, on the device meta.
    """

    path: Path
    whole: Data
    settings: Data
    top: Any
    config: Any
    model: Any
    dtype: torch.dtype

    @property
    def layers(self) -> int:
        return int(self.config.num_hidden_layers)

    @property
    def length(self) -> int | None:
        """The number of positions that the model is meant for; None if its settings have no limit."""
        trained = getattr(self.config, "seq_length", None)  # BLOOM has no limit, and states the length of its training
        return max_positions_of(self.config) or (trained if isinstance(trained, int) and trained > 0 else None)

    @cached_property
    def uses_cache(self) -> bool:
        """Whether `generate` keeps keys, which is the default of transformers."""
        file = self.path / "generation_config.json"
        chosen = json_object(file).get("use_cache") if file.is_file() else None
        return bool(getattr(self.config, "use_cache", True) if chosen is None else chosen)

    def rope_entries(self) -> list[tuple[str, Data]]:
        """Return the dictionaries of RoPE settings in config.json by name: one for each kind of layer, or for all."""
        entries: list[tuple[str, Data]] = []
        for key in ("rope_parameters", "rope_scaling"):
            if isinstance(entry := self.settings.get(key), Mapping):
                nested = {
                    f"{key}.{name}": dict(settings) for name, settings in entry.items() if isinstance(settings, Mapping)
                }
                entries += list(nested.items()) if nested else [(key, dict(entry))]
        return entries

    def used_entries(self) -> list[tuple[str, Data]]:
        """Return the dictionaries that transformers uses, with its defaults, without layers that have no RoPE."""
        parameters = getattr(self.config, "rope_parameters", None) or {}
        nested = {name: settings for name, settings in parameters.items() if isinstance(settings, Mapping)}
        entries = nested or ({"": parameters} if parameters.get("rope_type") is not None else {})
        return [(name, dict(settings)) for name, settings in entries.items()]

    @cached_property
    def observation(self) -> Observation:
        """What the attention layers do with these settings."""
        with offline(), silent(stderr=True):
            return observe(self.model)


def read_folder(folder: str | Path, *, trust_remote_code: bool = False) -> ModelFolder:
    """Return what a folder's settings say and what transformers makes of them, without weights or downloads.

    Code in the folder runs only with `trust_remote_code`. Raise `ConfigError`, in one line, for a folder without a
    causal language model, and for settings that transformers refuses.
    """
    path = Path(folder)
    whole = read_settings(path)
    transformers = import_transformers()
    if whole.get("model_type") in (ReplacedConfig.model_type, LengthwiseConfig.model_type):
        label = saved_choice(whole.get("encoding")).label
        raise ConfigError(
            f"{path} has the encoding {label} of lengthwise, which transformers does not compute; "
            "only its own encodings are checked"
        )
    has_remote_code = bool(whole.get("auto_map"))
    if not (has_remote_code and trust_remote_code):
        if (
            has_remote_code
            and whole.get("model_type") not in transformers.models.auto.configuration_auto.CONFIG_MAPPING
        ):
            raise ConfigError(
                f"{path} describes its model by code of its own (auto_map in config.json), which was not run; read the "
                "code, and give --trust-remote-code if you trust it"
            )
        _require_language_model(path, whole, transformers)
    options = {"local_files_only": True, "trust_remote_code": trust_remote_code}
    require_values(path, whole)
    with naming_rope_values(path, whole), transformers_call(path, "read its config.json", advice=CORRECT):
        top = transformers.AutoConfig.from_pretrained(path, **options)
        config = top.get_text_config(decoder=True)
    _require_decoder(path, config, transformers)
    settings = _text_settings(whole, top, config)
    require_values(path, settings)
    dtype = next((level.dtype for level in (config, top) if level.dtype in DTYPES.values()), torch.float32)
    building = transformers_call(path, "build the model of its config.json", advice=CORRECT)
    with naming_rope_values(path, settings), building, torch.device("meta"):
        built = copy.deepcopy(top)
        for name in ("quantization_config", "compression_config", "fusion_config"):  # the weights are not read
            if getattr(built, name, None) is not None:
                delattr(built, name)
        model = transformers.AutoModelForCausalLM.from_config(
            built,
            trust_remote_code=trust_remote_code,
            attn_implementation="eager",
            experts_implementation="eager",
            dtype=dtype,
        )
    # Building the model moves some settings into rope_parameters, so its configuration is the one that is computed
    # with.
    return ModelFolder(path, whole, settings, top, model.config.get_text_config(decoder=True), model, dtype)


def _require_language_model(path: Path, whole: Data, transformers: Any) -> None:
    """Raise `ConfigError` unless transformers has a causal language model of this type, with or without images."""
    mappings = transformers.models.auto.modeling_auto
    with_images = mappings.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.get(str(whole.get("model_type")))
    if with_images is None or whole.get("architectures") != [with_images]:
        causal_architecture(path, whole, transformers)
    else:
        causal_architecture(path, {**whole, "architectures": None}, transformers)


def _text_settings(whole: Data, top: Any, config: Any) -> Data:
    if config is top:
        return whole
    section = next((whole.get(name) for name in top.sub_configs if getattr(top, name, None) is config), None)
    return dict(section) if isinstance(section, Mapping) else {}


def _require_decoder(path: Path, config: Any, transformers: Any) -> None:
    masked = transformers.models.auto.modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if getattr(config, "is_encoder_decoder", False):
        kind = "an encoder with a decoder"
    elif config.model_type in masked and not getattr(config, "is_decoder", False):
        kind = "an encoder"
    else:
        return
    raise ConfigError(f"{path} contains {kind} ({config.model_type}); take a causal language model, such as Llama")
