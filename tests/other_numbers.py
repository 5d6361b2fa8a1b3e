"""Encodings that return the same forms as another one, with other numbers.

Tests of code that reads only the forms learn nothing from them that the other one does not show, so they are slow
there.
"""

from collections.abc import Iterable
from typing import Any

import pytest

OTHER_NUMBERS = {
    "PI", "NTKAware", "PRoPE", "NTKByParts", "YaRN", "DynamicYaRN", "Llama3", "LongRoPE", "ALiBi", "KerpleLog",
    "KerplePower", "Sandwich", "Llama4", "Ministral", "Beam", "MistralLarge4", "LogN", "ReRoPE", "DCA", "STRING",
    "PaTHFoX",
}  # fmt: skip


def slow_with_other_numbers(encodings: Iterable[Any]) -> list[Any]:
    """Return the classes or names as parameters of a test, and mark those of `OTHER_NUMBERS` as slow."""
    return [
        pytest.param(one, marks=pytest.mark.slow) if getattr(one, "__name__", one) in OTHER_NUMBERS else one
        for one in encodings
    ]
