"""What saved models share: the choice of an encoding in config.json, and the module for transformers."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from transformers import AutoConfig, PreTrainedConfig

from lengthwise import cache_folder
from lengthwise.config import Choice, ConfigError
from lengthwise.config.choice_data import choice_from_data
from lengthwise.values import install_extra

MODULE = "modeling_lengthwise"  # the name of the module that is saved with a model
TEXT = f'''"""The classes of this model are in the package lengthwise; {install_extra("hf")}.

Either pass trust_remote_code=True to from_pretrained, which imports this module, or \
import lengthwise.huggingface before.
"""

from lengthwise.huggingface import {{names}}  # noqa: F401
'''


class ReplacedConfig(PreTrainedConfig):
    """The configuration of a transformers model whose position encoding `use` has replaced.

    `text_config`: the model's own configuration. `encoding`: the choice of the encoding as plain data.
    """

    model_type = "lengthwise_replaced"
    sub_configs: ClassVar[dict[str, Any]] = {"text_config": AutoConfig}

    text_config: dict[str, Any] | PreTrainedConfig | None = None
    encoding: dict[str, Any] | None = None

    def __post_init__(self, **further: Any) -> None:
        if not isinstance(self.text_config, PreTrainedConfig):
            self.text_config = AutoConfig.for_model(**{"model_type": "llama", **(self.text_config or {})})
        super().__post_init__(**further)

    @classmethod
    def of(cls, config: PreTrainedConfig, choice: Choice) -> "ReplacedConfig":
        auto_map = auto_map_of(
            AutoConfig=cls.__name__, AutoModel="ReplacedModel", AutoModelForCausalLM="ReplacedForCausalLM"
        )
        return cls(text_config=config.to_dict(), encoding=choice.to_data(), auto_map=auto_map)


def auto_map_of(**names: str) -> dict[str, str]:
    """Return the `auto_map` of a config.json: the names of our classes for the automatic classes of transformers."""
    return {auto: f"{MODULE}.{name}" for auto, name in names.items()}


def write_module(folder: str | os.PathLike[str], auto_map: Mapping[str, str]) -> None:
    """Write the module that transformers imports with `trust_remote_code=True`, and that names our package."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    names = sorted(name.partition(".")[2] for name in auto_map.values())
    cache_folder.write(path / f"{MODULE}.py", TEXT.format(names=", ".join(names)).encode())


def saved_choice(data: Any) -> Choice:
    """Return the encoding of a config.json. Raise `ConfigError` if this version computes it differently."""
    choice = choice_from_data("encoding", data)
    if _versions(choice.to_data()) != _versions(data):
        raise ConfigError(
            f"the model was saved with another version of {choice.label}, which computed something else; load it with "
            "the version of lengthwise that saved it"
        )
    return choice


def _versions(data: Mapping[str, Any]) -> list[Any]:
    layers = (data, *data.get("remaining_layers", ()))
    return [choice.get("class") for layer in layers for choice in (layer, layer.get("temperature") or {})]
