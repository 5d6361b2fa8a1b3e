"""The models of Hugging Face transformers that are compared. They are tiny and have random weights."""

from collections.abc import Callable

from lengthwise.config import choose
from lengthwise.conformance.outside.implementation import Implementation
from lengthwise.conformance.outside.rope_types import NAMES
from lengthwise.conformance.outside.transformers_biases import Bloom, Mpt, T5Bias
from lengthwise.conformance.outside.transformers_rotary import GPTJ, GPTNeoX, LearnedFrequencies, Llama, SmolLM3
from lengthwise.conformance.outside.transformers_temperatures import (
    BeamFactor,
    GptOssSinks,
    InklingLogits,
    LargeFactor,
    Llama4Layers,
    Ministral3,
)
from lengthwise.encodings import T5

IMPLEMENTATIONS: tuple[Callable[[], Implementation], ...] = (
    *(lambda name=name: Llama(name) for name in NAMES),
    SmolLM3,
    GPTNeoX,
    GPTJ,
    LearnedFrequencies,
    Bloom,
    Mpt,
    lambda: T5Bias("T5, causal", choose(T5)),
    lambda: T5Bias("T5, both ways", choose(T5, bidirectional=True)),
    Llama4Layers,
    Ministral3,
    BeamFactor,
    LargeFactor,
    InklingLogits,
    GptOssSinks,
)
