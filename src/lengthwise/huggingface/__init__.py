"""Position encodings in models of Hugging Face transformers (`pip install 'lengthwise[hf]'`)."""

import importlib.util

if importlib.util.find_spec("transformers") is None:
    raise ModuleNotFoundError(
        "lengthwise.huggingface needs the package transformers; install it: pip install 'lengthwise[hf]'"
    )

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
