"""Position layouts: which position each token claims. An encoding never knows which layout made its positions."""

from lengthwise.layouts.consecutive import consecutive

__all__ = ["consecutive"]
