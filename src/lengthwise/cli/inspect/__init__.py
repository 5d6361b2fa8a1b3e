"""`lengthwise inspect`: what an encoding computes at positions 0 ... N-1, as text of 80 columns or as JSON."""

import inspect as python
from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from lengthwise.cli.inspect.pictures import pictures
from lengthwise.cli.options import Integer
from lengthwise.cli.printing import own_docstring, print_json, stdout
from lengthwise.config import Choice, annotation, choose, settings_of
from lengthwise.user_classes import is_builtin_class
from lengthwise.validation import parse_value
from lengthwise.values import ConfigError, require_known

WIDTH = 80


def command(
    encoding: str,
    /,
    *,
    num_heads: Integer = 8,
    head_dim: Integer = 64,
    d_model: Integer | None = None,
    train_length: Integer = 128,
    length: Integer | None = None,
    set: Annotated[tuple[str, ...], Parameter(name="--set", show_default=False)] = (),
    seed: Integer = 0,
    json: bool = False,
) -> int:
    """Show what an encoding computes, such as its bias, wavelengths or vectors, at any length. Nothing is trained.

    Example: lengthwise inspect alibi; lengthwise inspect fire --set L=64 --length 256; lengthwise inspect rope --json

    Args:
        encoding: The encoding, optionally with settings: fire or fire:hidden_layers=1.
        num_heads: Number of attention heads.
        head_dim: Dimensions of each head.
        d_model: Width of the model. [default: num_heads x head_dim]
        train_length: Training length that the encoding is built for.
        length: Number of positions to show. [default: 2x the training length]
        set: A setting of the encoding as name=value. May be repeated.
        seed: Seed of the initial values of learned parameters.
        json: Print one JSON object with unrounded numbers.
    """
    from lengthwise import inspection

    choice = with_settings(_single(encoding), set)
    data = inspection.inspect(
        choice,
        num_heads=num_heads,
        head_dim=head_dim,
        d_model=d_model,
        train_length=train_length,
        length=length,
        seed=seed,
    )
    if json:
        print_json(data, indent=None)
        return 0
    console = stdout()
    console.width = min(console.width, WIDTH)
    for part in pictures(data, summary(choice.cls)):
        console.print(part)
    return 0


def _single(text: str) -> "Choice":
    """Return the encoding of a text such as `rope:base=1e4`. `fire-s` is FIRE, since sharing changes nothing in one layer."""
    from lengthwise import studies
    from lengthwise.config.choices import UnknownName
    from lengthwise.config.layers import with_colon
    from lengthwise.encodings import ENCODINGS

    if "," in with_colon(text).partition(":")[0]:
        raise ConfigError(f"inspect shows one encoding, got {text!r}; run the command once for each")
    try:
        return ENCODINGS.parse(text)
    except UnknownName:
        return studies.encoding(text)[0]


def summary(make: type) -> str:
    """Return an encoding in one line: its module's docstring without the name, or that of a class from outside."""
    if is_builtin_class(make):
        of_module = (python.getdoc(python.getmodule(make)) or "").partition("\n")[0].partition(": ")[2]
        if of_module:
            return of_module[0].upper() + of_module[1:]
    return " ".join(own_docstring(make).partition("\n\n")[0].split())


def with_settings(choice: Choice, settings: Sequence[str]) -> Choice:
    """Return the choice with further `name=value` settings, each of which must occur once."""
    known = settings_of(choice.cls)
    values: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key:
            raise ConfigError(f"--set must be name=value, got {setting!r}; write, for example, --set max_length=256")
        require_known(choice.name, [key], known)
        if key in values:
            raise ConfigError(f"--set sets {key} twice; omit one of them")
        values[key] = parse_value(value.strip(), annotation(choice.cls, known[key]), f"{choice.name}.{key}")
    return choose(choice.cls, **{**dict(choice.settings), **choice.layer_settings, **values}) if settings else choice
