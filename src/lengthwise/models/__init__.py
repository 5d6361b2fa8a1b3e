"""Models: one readable decoder."""

from lengthwise.models.decoder import Decoder

__all__ = ["Decoder"]
