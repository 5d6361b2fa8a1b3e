"""What depends on the version of transformers: the tested range, and the name of the KV cache in models.

From 5.24 on, models, layers and outputs call it `cache`; before, `past_key_values`. Blocks and layers of some models
call it `layer_past` in both. A model from a folder with its own code (`trust_remote_code`) may have the old name in the
new version.
"""

import dataclasses
import functools
import inspect
import re
import warnings
from collections.abc import Mapping
from typing import Any

TESTED_VERSIONS = ((5, 14), (5, 24))
"""The first and the last version of transformers that this was tested with. pyproject.toml requires one of them."""
CACHE_NAMES = ("cache", "past_key_values", "layer_past")


def version_warning() -> str | None:
    """Return a warning if the installed transformers is not one of the tested versions."""
    import transformers

    numbers = re.match(r"(\d+)\.(\d+)", transformers.__version__)
    first, last = TESTED_VERSIONS
    if numbers and first <= (int(numbers[1]), int(numbers[2])) <= last:
        return None
    span = " to ".join(".".join(map(str, version)) for version in TESTED_VERSIONS)
    return (
        f"transformers {transformers.__version__} is not one of the tested versions, {span}; it may treat settings "
        "differently"
    )


_issued: set[str] = set()  # the warnings that this process has given


def take_version_warning() -> str | None:
    """Return a warning if the installed transformers is not one of the tested versions, for a command to print."""
    if warning := version_warning():
        _issued.add(warning)
    return warning


def warn_of_untested_version(stacklevel: int) -> None:
    """Warn once in a process of an untested version of transformers, unless a command has printed that."""
    warning = version_warning()
    if warning and warning not in _issued:
        _issued.add(warning)
        warnings.warn(warning, stacklevel=stacklevel + 1)


@functools.cache
def own_cache_name() -> str:
    """Return the cache's name in the installed transformers, which `generate` and its own models use."""
    from transformers.modeling_outputs import CausalLMOutputWithPast

    fields = {field.name for field in dataclasses.fields(CausalLMOutputWithPast)}
    return next(name for name in CACHE_NAMES if name in fields)


def cache_parameter(model: Any) -> str | None:
    """Return the name of the parameter for the cache of a model's `forward`; None if it has none."""
    parameters = inspect.signature(model.forward).parameters
    return next((name for name in CACHE_NAMES if name in parameters), None)


def cache_argument(options: Mapping[str, Any]) -> str | None:
    """Return under which name the arguments of a model, block or layer have a cache; None without a cache."""
    return next((name for name in CACHE_NAMES if options.get(name) is not None), None)


def cache_of(options: Mapping[str, Any]) -> Any:
    """Return the cache among the arguments of a model, block or layer; None without a cache."""
    name = cache_argument(options)
    return None if name is None else options[name]
