"""The values of RoPE settings in config.json, where transformers' errors name no setting, or it only warns."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lengthwise.config import ConfigError
from lengthwise.values import unlisted

KEYS = ("rope_parameters", "rope_scaling")
SYNONYMS = {"su": "longrope", "mrope": "default"}  # names of rope types in older files
LISTS = ("short_factor", "long_factor")
_POSITIVE = "a finite number more than 0", lambda value: value > 0
NUMBERS: dict[str, tuple[str, Callable[[float], bool]]] = {
    "factor": ("a finite number of at least 1", lambda value: value >= 1),
    "rope_theta": _POSITIVE,
    "attention_factor": _POSITIVE,
    "beta_fast": _POSITIVE,
    "beta_slow": _POSITIVE,
    "low_freq_factor": _POSITIVE,
    "high_freq_factor": _POSITIVE,
    "partial_rotary_factor": ("a number more than 0 and at most 1", lambda value: 0 < value <= 1),
    "original_max_position_embeddings": (
        "a whole number of at least 1",
        lambda value: value >= 1 and value == int(value),
    ),
    "mscale": ("a finite number", lambda value: True),
    "mscale_all_dim": ("a finite number", lambda value: True),
}


def require_values(path: Path, settings: Mapping[str, Any], *, has_failed: bool = False) -> None:
    """Raise `ConfigError` for the first RoPE setting whose value cannot be computed with.

    `has_failed`: transformers could not build the model. Then unknown rope types, values that are null, and a
    rope_theta beside the RoPE settings are the cause too. Otherwise they may be settings of a class that does not read
    them.
    """
    file = path / "config.json"
    for key in KEYS:
        if (entry := settings.get(key)) is None:
            continue
        if not isinstance(entry, Mapping):
            raise ConfigError(f"{file}: {key} must be an object, got {_shown(entry)}")
        for values in (entry, *(value for value in entry.values() if isinstance(value, Mapping))):
            for problem in _problems(values, has_failed):
                raise ConfigError(f"{file}: {key}: {problem}")
    if has_failed and "rope_theta" in settings:
        for problem in _problems({"rope_theta": settings["rope_theta"]}, has_failed):
            raise ConfigError(f"{file}: {problem}")


@contextmanager
def naming_rope_values(path: Path, settings: Mapping[str, Any]) -> Iterator[None]:
    """Let an error of transformers name the RoPE setting that has caused it."""
    try:
        yield
    except ConfigError:
        require_values(path, settings, has_failed=True)
        raise


def _problems(entry: Mapping[str, Any], has_failed: bool) -> Iterator[str]:
    for name, (expected, holds) in NUMBERS.items():
        value: Any = entry.get(name)
        if name in entry and (value is not None or has_failed) and not (_is_finite(value) and holds(value)):
            yield f"{name} must be {expected}, got {_shown(value)}"
    for name in LISTS:
        numbers = entry.get(name)
        are_valid = isinstance(numbers, list) and all(_is_finite(number) and number > 0 for number in numbers)
        if name in entry and (numbers is not None or has_failed) and not are_valid:
            yield f"{name} must be a list of finite numbers more than 0, got {_shown(numbers)}"
    if has_failed:
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        known = ("default", *ROPE_INIT_FUNCTIONS)
        for name in ("rope_type", "type"):
            if name in entry and (not isinstance(entry[name], str) or entry[name] not in {*known, *SYNONYMS}):
                yield f"transformers has no {name} {unlisted(_cut(entry[name]), known)}"
            if entry.get(name) == "su":
                older = f"{name} 'su' is an older name, for which transformers misses settings"
                yield f"{older}; write 'longrope', its name of today"


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _cut(value: Any) -> Any:
    return value if not isinstance(value, str) else value[:40]


def _shown(value: Any) -> str:
    return repr(value)[:40]
