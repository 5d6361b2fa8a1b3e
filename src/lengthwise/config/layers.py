"""What a layer of a pattern has besides its encoding: a window, a temperature and learned sinks."""

import re
from dataclasses import dataclass
from typing import Any

from lengthwise.config.class_settings import settings_of
from lengthwise.values import ConfigError, require_at_most, require_bool, require_integer

MAX_WINDOW = 2**31


@dataclass(frozen=True)
class LayerSettings:
    """The settings that every encoding has in a layer, in addition to those of its class.

    `window`: a query attends only to the last `window` keys, its own among them. None: to all keys before it.
    `temperature`: the choice of a temperature, such as SSMax, which multiplies the logits of each query. None: no
    factor.
    `sinks`: whether each head learns a number in the denominator of the softmax.
    """

    window: int | None = None
    temperature: Any = None  # a Choice, which is defined above this module
    sinks: bool = False

    @property
    def non_defaults(self) -> dict[str, Any]:
        """The settings that are not the defaults, by name."""
        return {name: value for name, value in vars(self).items() if value != LAYER_TYPES[name][1]}

    def to_data(self) -> dict[str, Any]:
        """Return the settings that are not the defaults as plain JSON data."""
        return {name: value.to_data() if name == "temperature" else value for name, value in self.non_defaults.items()}

    def require(self, owner: str) -> None:
        """Raise `ConfigError` for a window or sinks that no layer can have. `owner` starts the message."""
        if self.window is not None:
            require_integer(f"{owner} in a layer", 1, window=self.window)
            require_at_most(f"{owner} in a layer", MAX_WINDOW, window=self.window)
        require_bool(f"{owner} in a layer", sinks=self.sinks)


LAYER_TYPES: dict[str, tuple[Any, Any]] = {
    "window": (int | None, None),
    "temperature": (str | None, None),
    "sinks": (bool, False),
}
"""The type of each layer setting on the command line, and its default."""


def layer_settings_of(make: type) -> dict[str, str]:
    """Return the fields of `LayerSettings` that an encoding has, by the names of their settings.

    The names are those of the fields. If the class has a setting of its own with that name, its layer's is
    `layer_NAME`: `choose(ReRoPE, window=64, layer_window=512)`.
    """
    class_settings, is_encoding = settings_of(make), getattr(make, "kind", None) == "encoding"
    return {f"layer_{field}" if field in class_settings else field: field for field in LAYER_TYPES if is_encoding}


def layer_settings_by_name(make: type, fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields of `LayerSettings` by the names that they have for the class of an encoding."""
    return {name: fields[field] for name, field in layer_settings_of(make).items() if field in fields}


def is_temperature(make: type) -> bool:
    """Return whether a class may be the temperature of another encoding."""
    return bool(getattr(make, "is_temperature", False))


def require_combination(make: type, layer: LayerSettings, temperatures: list[str]) -> None:
    """Raise `ConfigError` unless the class of an encoding can have the temperature and the sinks of its layer.

    `temperatures`: the names of all temperatures, for the message.
    """
    name, temperature = make.__name__, layer.temperature
    if temperature is not None:
        if not is_temperature(temperature.cls) or temperature.remaining_layers or temperature.layer.non_defaults:
            raise ConfigError(
                f"{name}.temperature must be a temperature, got {temperature.label}; available: "
                f"{', '.join(temperatures)}"
            )
        if is_temperature(make):
            raise ConfigError(f"{name} is a temperature itself, so it cannot have the temperature {temperature.label}")
    if layer.sinks and name == "Sinks":
        raise ConfigError("Sinks has sinks already; omit sinks=True")
    if layer.sinks and not getattr(make, "has_softmax", True):
        raise ConfigError(f"{name} has no softmax, to which a sink could be added; omit sinks=True")


def with_colon(text: str) -> str:
    """Return an encoding with its settings in the form with a colon.

    >>> with_colon("rope(window=512)"), with_colon("rope:window=512")
    ('rope:window=512', 'rope:window=512')
    """
    match = re.fullmatch(r"\s*([^:(]+?)\s*\((.*)\)\s*", text, re.DOTALL)
    return f"{match[1]}:{match[2]}" if match and not _unclosed(match[2]) else text


def require_closed_parentheses(text: str) -> None:
    """Raise `ConfigError` unless the parentheses of an encoding's text are pairs."""
    if depth := _unclosed(text):
        problem = "is not closed" if depth > 0 else "is closed that was not opened"
        raise ConfigError(
            f"{text!r}: a parenthesis {problem}; write it like rope(window=512)*3+nope(temperature=ssmax)"
        )


def _unclosed(text: str) -> int:
    """Return the number of parentheses that are not closed, or -1 if one is closed before it is opened."""
    depth = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            break
    return depth


def split_layers(text: str) -> list[str]:
    """Split the text of a pattern over layers. A plus before a digit belongs to a number (1e+6).

    >>> split_layers("rope:base=1e+6*3+nope(temperature=ssmax)")
    ['rope:base=1e+6*3', 'nope(temperature=ssmax)']
    """
    return _split_outside_brackets(text, r"\+(?![\d.])")


def repeated_layers(text: str, terms: list[str]) -> list[str]:
    """Return the text of each layer of a pattern with these terms, such as "rope*3"; nothing if it is no pattern.

    >>> repeated_layers("rope*3+nope", ["rope*3", "nope"])
    ['rope', 'rope', 'rope', 'nope']
    """
    matches = [re.fullmatch(r"(.*[^*])\*(\d+)", term) for term in terms]
    if len(terms) == 1 and not matches[0]:
        return []
    if not all(term.strip() for term in terms):
        raise ConfigError(f"{text!r}: a layer of the pattern has no name; write it like rope*3+nope")
    counts = [int(m[2][:9]) if m else 1 for m in matches]
    if sum(counts) > 1000 or not all(counts):
        raise ConfigError(f"{text!r:.100}: a pattern must have at most 1,000 layers, and each encoding at least 1")
    layers = [m[1] if m else term for term, m in zip(terms, matches, strict=True)]
    return [layer for layer, count in zip(layers, counts, strict=True) for _ in range(count)]


def split_at_commas(text: str) -> list[str]:
    """Split at commas, except inside brackets and parentheses.

    >>> split_at_commas("a=[1,2],b(c=1,d(e=2)),f")
    ['a=[1,2]', 'b(c=1,d(e=2))', 'f']
    """
    return _split_outside_brackets(text, ",")


def _split_outside_brackets(text: str, separator: str) -> list[str]:
    """Split at the matches of a regular expression, except inside brackets and parentheses."""
    separators = {match.start() for match in re.finditer(separator, text)}
    terms, depth = [""], 0
    for index, character in enumerate(text):
        depth += (character in "[(") - (character in "])" and depth > 0)
        if index in separators and not depth:
            terms.append("")
        else:
            terms[-1] += character
    return terms
