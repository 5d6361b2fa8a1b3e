"""Models: a decoder in one file, statistics of its attention, and a Mamba to compare it with."""

from lengthwise.models.base import Model
from lengthwise.models.decoder import Decoder
from lengthwise.models.mamba import Mamba
from lengthwise.models.watching import attending, by_head, statistics

__all__ = ["Decoder", "Mamba", "Model", "attending", "by_head", "statistics"]
