"""Models: a decoder in one file, statistics of its attention, and a Mamba to compare it with."""

from lengthwise.models.attention_statistics import by_head, require_decoder, statistics
from lengthwise.models.base import Model
from lengthwise.models.decoder import Decoder
from lengthwise.models.mamba import Mamba

__all__ = ["Decoder", "Mamba", "Model", "by_head", "require_decoder", "statistics"]
