"""Load transformers models with one of our encodings: the classes that `AutoModelForCausalLM` and `AutoModel` find for them."""

from typing import Any

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, PreTrainedModel

from lengthwise.config import ConfigError
from lengthwise.huggingface.attention import NAME
from lengthwise.huggingface.replacement import use
from lengthwise.huggingface.saved import ReplacedConfig, saved_choice


class ReplacedModel(PreTrainedModel):
    """Loads a folder that `save_pretrained` wrote after `use`. What it returns is the original class with our encoding."""

    config_class = ReplacedConfig
    auto_class: Any = AutoModel

    @classmethod
    def from_pretrained(cls, folder: Any, *arguments: Any, config: Any = None, **options: Any) -> Any:
        """Return the model. `options` are those of transformers.

        Raises `ConfigError` if the folder was not written after `use`, or if weights of the encoding are missing.
        """
        wants_information = options.pop("output_loading_info", False)
        options.pop("trust_remote_code", None)
        config = ReplacedConfig.from_pretrained(folder) if config is None else config
        given = options.pop("attn_implementation", None) or getattr(config, "_attn_implementation_internal", None)
        if given not in (None, NAME):
            raise ConfigError(
                "a model with an encoding of lengthwise attends by the backends of lengthwise; omit attn_implementation"
            )
        choice, own = saved_choice(config.encoding), config.text_config
        host = cls.auto_class._model_mapping.get(type(own), None)
        if host is None:
            raise ConfigError(
                f"{folder}: {cls.auto_class.__name__} of transformers has no class for the model type {own.model_type!r}"
            )

        def create(self: Any, *given: Any, **settings: Any) -> None:
            host.__init__(self, *given, **settings)
            use(self, choice)

        # Only a class whose models have the encoding from the beginning gets its weights from transformers.
        loaded: Any = type(host.__name__, (host,), {"__init__": create, "__module__": host.__module__})
        model, information = loaded.from_pretrained(folder, *arguments, config=own, output_loading_info=True, **options)
        model.__class__ = host
        missing = [name for name in information["missing_keys"] if "position_encodings." in name]
        if missing:
            raise ConfigError(
                f"{folder} has no weights of the encoding {choice.label} ({missing[0]}), which would be random; copy the whole "
                "folder"
            )
        return (model, information) if wants_information else model


class ReplacedForCausalLM(ReplacedModel):
    """`ReplacedModel` with a language model's head."""

    auto_class = AutoModelForCausalLM


def register() -> None:
    """Make the classes known to transformers, which then finds them without `trust_remote_code`."""
    AutoConfig.register(ReplacedConfig.model_type, ReplacedConfig)
    AutoModel.register(ReplacedConfig, ReplacedModel)
    AutoModelForCausalLM.register(ReplacedConfig, ReplacedForCausalLM)
