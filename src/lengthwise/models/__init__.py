"""Models: a Transformer decoder, statistics of its attention, and models with other mixers of tokens."""

from lengthwise.models.attention_statistics import require_decoder, statistics
from lengthwise.models.base import Model
from lengthwise.models.decoder import Decoder
from lengthwise.models.mixers import MixerModel

__all__ = ["Decoder", "MixerModel", "Model", "require_decoder", "statistics"]
