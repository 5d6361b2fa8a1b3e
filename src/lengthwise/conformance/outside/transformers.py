"""The models of Hugging Face transformers that are compared. They are tiny and have random weights."""

from collections.abc import Callable

from lengthwise.conformance.outside.implementation import Implementation
from lengthwise.conformance.outside.rope_types import (
    DYNAMIC_EXPLANATIONS,
    LONGROPE_EXPLANATIONS,
    deepseek,
    default,
    dynamic,
    linear,
    llama3,
    longrope,
    proportional,
    yarn,
)
from lengthwise.conformance.outside.transformers_biases import Bloom, Mpt, T5Bias
from lengthwise.conformance.outside.transformers_rotary import GPTJ, GPTNeoX, Llama, SmolLM3

IMPLEMENTATIONS: tuple[Callable[[], Implementation], ...] = (
    *(lambda p=p, b=b: Llama(p, b) for p, b in (
        (default, None), (linear, None), (dynamic, DYNAMIC_EXPLANATIONS), (yarn, None), (deepseek, None),
        (longrope, LONGROPE_EXPLANATIONS), (llama3, None), (proportional, None),
    )),
    SmolLM3, GPTNeoX, GPTJ, Bloom, Mpt, T5Bias, lambda: T5Bias(bidirectional=True),
)  # fmt: skip
