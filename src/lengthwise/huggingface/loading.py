"""Load transformers models with one of our encodings: the classes that its automatic classes find for them."""

from typing import Any

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, PreTrainedModel

from lengthwise.config import ConfigError
from lengthwise.huggingface.attention import NAME
from lengthwise.huggingface.attention import register as register_functions
from lengthwise.huggingface.replacement import use
from lengthwise.huggingface.saved import ReplacedConfig, saved_choice


class ReplacedModel(PreTrainedModel):
    """Loads a folder that `save_pretrained` wrote after `use`, as the original class with our encoding."""

    config_class = ReplacedConfig
    auto_class: Any = AutoModel
    attention = NAME  # the only attention implementation

    @classmethod
    def _from_config(cls, config: Any, **options: Any) -> Any:
        """Return a model with random weights."""
        _require_our_attention(options, config)
        host, loaded = cls._classes(config)
        model = loaded._from_config(config.text_config, **options)
        model.__class__ = host
        return model

    @classmethod
    def from_pretrained(cls, folder: Any, *arguments: Any, config: Any = None, **options: Any) -> Any:
        """Return the model. `options` are those of transformers.

        Raises `ConfigError` if the folder was not written after `use`, or if weights of the encoding are missing.
        """
        wants_information = options.pop("output_loading_info", False)
        options.pop("trust_remote_code", None)
        config = ReplacedConfig.from_pretrained(folder) if config is None else config
        _require_our_attention(options, config)
        host, loaded = cls._classes(config)
        options |= {"config": config.text_config, "output_loading_info": True}
        model, information = loaded.from_pretrained(folder, *arguments, **options)
        model.__class__ = host
        missing = [name for name in information["missing_keys"] if "position_encodings." in name]
        if missing:
            raise ConfigError(
                f"{folder} has no weights of the encoding {saved_choice(config.encoding).label} ({missing[0]}), which "
                "would be random; copy the whole folder"
            )
        return (model, information) if wants_information else model

    @classmethod
    def _classes(cls, config: Any) -> tuple[Any, Any]:
        """Return the original class, and one derived from it whose models have the encoding from the beginning.

        Only the latter gets the weights of an encoding from transformers.
        """
        choice, text_config = saved_choice(config.encoding), config.text_config
        host = cls.auto_class._model_mapping.get(type(text_config), None)
        if host is None:
            raise ConfigError(
                f"{cls.auto_class.__name__} of transformers has no class for the model type {text_config.model_type!r}"
            )

        def create(self: Any, *arguments: Any, **settings: Any) -> None:
            host.__init__(self, *arguments, **settings)
            use(self, choice)

        return host, type(host.__name__, (host,), {"__init__": create, "__module__": host.__module__})


class ReplacedForCausalLM(ReplacedModel):
    """`ReplacedModel` with a language model's head."""

    auto_class = AutoModelForCausalLM


def _require_our_attention(options: dict[str, Any], config: Any) -> None:
    """Remove the attention implementation from the options of transformers. Raises `ConfigError` if it is not ours."""
    implementation = options.pop("attn_implementation", None) or getattr(config, "_attn_implementation_internal", None)
    if implementation not in (None, NAME):
        raise ConfigError(
            "a model with an encoding of lengthwise attends by the backends of lengthwise; omit attn_implementation"
        )


def register() -> None:
    """Make the classes known to transformers, which then finds them without `trust_remote_code`."""
    register_functions()
    AutoConfig.register(ReplacedConfig.model_type, ReplacedConfig)
    AutoModel.register(ReplacedConfig, ReplacedModel)
    AutoModelForCausalLM.register(ReplacedConfig, ReplacedForCausalLM)
