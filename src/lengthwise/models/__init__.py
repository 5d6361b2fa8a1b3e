"""Models: one readable decoder, and what its attention looks at."""

from lengthwise.models.decoder import Decoder
from lengthwise.models.watching import by_head, statistics

__all__ = ["Decoder", "by_head", "statistics"]
