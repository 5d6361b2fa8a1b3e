"""Settings of an encoding that its user did not write: they come from the model's own encoding."""

import math
from dataclasses import replace

from lengthwise.config import Choice, ConfigError, alternate
from lengthwise.encodings import NoPE, PoPE, RePo, RoPEMixed, RotaryEncoding, SelectiveRoPE
from lengthwise.values import join_names

INHERITED = ("base", "rotary_fraction", "layout")  # settings of rotations that belong to the weights
GAINS = {"attention_factor", "mscale", "mscale_all_dim"}  # settings that say the same in different ways
ROTATIONS = (RotaryEncoding, RoPEMixed, PoPE, RePo, SelectiveRoPE)


def with_own_settings(choice: Choice, model_choice: Choice | None, layers: int | None = None) -> Choice:
    """Return a choice whose settings that were not written are those of the model's own encoding.

    A rotation takes its base, rotated fraction and layout from the own encoding of the same layer, and all its settings
    if it is of the same class. A layer without positions stays one. A choice whose settings are all written stays as it
    is. `model_choice`: None for a model without an encoding of ours. `layers`: how many the model has.

    >>> from lengthwise.config import choose
    >>> from lengthwise.encodings import PI, RoPE
    >>> with_own_settings(choose(PI, factor=4), choose(RoPE, base=500000.0, layout="half")).label
    'PI(base=500000.0, layout=half, factor=4.0)'
    """
    if layers is not None:
        choice.require_layers(layers)
    if model_choice is None:
        return choice
    period = math.lcm(len(choice.layers), len(model_choice.layers))
    period = period if layers is None else min(period, layers)
    pairs = [
        (choice.layers[n % len(choice.layers)], model_choice.layers[n % len(model_choice.layers)])
        for n in range(period)
    ]
    if all(old.cls is NoPE for _, old in pairs) and any(missing(new) for new, _ in pairs):
        raise ConfigError(
            f"the model has no positions in any layer, so {choice.label} would change nothing; name another method, "
            "such as alibi"
        )
    return alternate(*(_with_settings_of_layer(new, old) for new, old in pairs))


def is_complete(choice: Choice) -> bool:
    """Return whether an encoding takes nothing from a model: it is no rotation, or all its settings are written."""
    return not issubclass(choice.cls, ROTATIONS) or choice.written.issuperset(dict(choice.settings))


def missing(choice: Choice) -> list[str]:
    """Return the settings of a rotation that belong to the weights and that were not written."""
    if not issubclass(choice.cls, ROTATIONS):
        return []
    return [name for name in INHERITED if name in dict(choice.settings) and name not in choice.written]


def require_written(choice: Choice, reason: ConfigError) -> None:
    """Raise `ConfigError` if a rotation needs settings of a model whose encoding is unknown for some reason."""
    for layer in choice.layers:
        if names := missing(layer):
            raise ConfigError(
                f"{layer.label} has to take {join_names(names)} from the model, whose own encoding lengthwise does not "
                f"know ({reason}); write {'it' if len(names) == 1 else 'them'}, as in "
                "rope:base=10000,rotary_fraction=1,layout=half"
            )


def _with_settings_of_layer(choice: Choice, model_choice: Choice) -> Choice:
    if model_choice.cls is NoPE and missing(choice):
        return replace(model_choice, layer=choice.layer)
    if is_complete(choice):
        return choice
    settings, theirs = dict(choice.settings), dict(model_choice.settings)
    names = [name for name in settings if name in theirs and name not in choice.written]
    if model_choice.cls is not choice.cls:
        names = [name for name in names if name in INHERITED]
    elif choice.written & GAINS:
        names = [name for name in names if name not in GAINS]
    elif "factor" in choice.written and settings["factor"] != theirs["factor"]:
        names = [name for name in names if name != "attention_factor"]  # it belongs to the model's own factor
    settings |= {name: theirs[name] for name in names}
    inherited = tuple(dict.fromkeys((*choice.inherited, *names)))
    return replace(choice, settings=tuple(settings.items()), written=frozenset(settings), inherited=inherited)
