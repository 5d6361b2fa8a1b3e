"""Position encodings in models of Hugging Face transformers (`pip install 'lengthwise[hf]'`)."""

from lengthwise.huggingface.replacement import unuse, use

__all__ = ["unuse", "use"]
