"""What a layer of a pattern has besides its encoding: a window, a temperature and learned sinks."""

import re
from dataclasses import dataclass
from typing import Any

from lengthwise.values import ConfigError, require_bool, require_integer, shown

MAX_WINDOW = 2**31


@dataclass(frozen=True)
class LayerSettings:
    """The settings that every encoding has in a layer, in addition to those of its class.

    `window`: a query attends only to the last `window` keys, its own among them. None: to all keys before it.
    `temperature`: the choice of a temperature, such as SSMax, which multiplies the logits of each query. None: no factor.
    `sinks`: whether each head learns a number in the denominator of the softmax.
    """

    window: int | None = None
    temperature: Any = None  # a Choice, which is defined above this module
    sinks: bool = False

    @property
    def given(self) -> dict[str, Any]:
        """The settings that are not the defaults, by name."""
        return {name: value for name, value in vars(self).items() if value != LAYER_TYPES[name][1]}

    @property
    def label(self) -> str:
        """The settings that are not the defaults, as labels show them: `window=512, temperature=SSMax`."""
        return ", ".join(f"{name}={getattr(value, 'label', value)}" for name, value in self.given.items())

    def to_data(self) -> dict[str, Any]:
        """Return the settings that are not the defaults as plain JSON data."""
        return {name: value.to_data() if name == "temperature" else value for name, value in self.given.items()}

    def require(self, owner: str) -> None:
        """Raise `ConfigError` for a window or sinks that no layer can have. `owner` starts the message."""
        if self.window is not None:
            require_integer(f"{owner} in a layer", 1, window=self.window)
            if self.window > MAX_WINDOW:
                raise ConfigError(
                    f"{owner} in a layer: window must be at most {MAX_WINDOW:,}, got {shown(self.window)}; omit it to see all keys"
                )
        require_bool(f"{owner} in a layer", sinks=self.sinks)


LAYER_TYPES: dict[str, tuple[Any, Any]] = {
    "window": (int | None, None),
    "temperature": (str | None, None),
    "sinks": (bool, False),
}
"""The type of each layer setting on the command line, and its default."""


def with_colon(text: str) -> str:
    """Return an encoding with its settings in the form with a colon.

    >>> with_colon("rope(window=512)"), with_colon("rope:window=512")
    ('rope:window=512', 'rope:window=512')
    """
    match = re.fullmatch(r"\s*([^:(]+?)\s*\((.*)\)\s*", text, re.DOTALL)
    return f"{match[1]}:{match[2]}" if match else text


def split_layers(text: str) -> list[str]:
    """Return the parts of a pattern over layers. A plus before a digit belongs to a number (1e+6)."""
    return re.split(r"\+(?![\d.])", text)


def split_at_commas(text: str) -> list[str]:
    """Split at commas, except inside brackets and parentheses.

    >>> split_at_commas("a=[1,2],b(c=1,d(e=2)),f")
    ['a=[1,2]', 'b(c=1,d(e=2))', 'f']
    """
    parts, depth = [""], 0
    for character in text:
        depth += (character in "[(") - (character in "])" and depth > 0)
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts
