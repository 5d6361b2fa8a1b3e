"""Position encodings in models of Hugging Face transformers (the extra `hf`)."""

import importlib.util

from lengthwise.values import install_extra

if importlib.util.find_spec("transformers") is None:
    raise ModuleNotFoundError(f"lengthwise.huggingface needs the package transformers; {install_extra('hf')}")

from lengthwise.huggingface import exported_model, loading
from lengthwise.huggingface.exported_model import LengthwiseConfig, LengthwiseForCausalLM
from lengthwise.huggingface.loading import ReplacedForCausalLM, ReplacedModel
from lengthwise.huggingface.replacement import unuse, use
from lengthwise.huggingface.saved import ReplacedConfig

exported_model.register()
loading.register()

__all__ = [
    "LengthwiseConfig",
    "LengthwiseForCausalLM",
    "ReplacedConfig",
    "ReplacedForCausalLM",
    "ReplacedModel",
    "unuse",
    "use",
]
