"""Mixers: what a model can have in place of attention, one module each. Their list is `config/mixers.py`."""

from lengthwise.models.mixers.base import MixerBlock, State
from lengthwise.models.mixers.model import MixerCache, MixerModel, block_class

__all__ = ["MixerBlock", "MixerCache", "MixerModel", "State", "block_class"]
