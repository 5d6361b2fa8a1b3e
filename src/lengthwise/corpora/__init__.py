"""Texts for language modelling, as documents and as tokens. Nothing here imports torch.

`tokenizers/` turns documents into tokens: bytes, or a tokenizer of the package `tokenizers`.
"""
