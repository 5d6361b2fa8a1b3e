"""`lengthwise check`: the conformance suite, the papers' theorems, and the comparison with other libraries."""

from typing import Annotated

from cyclopts import Parameter

from lengthwise.cli.options import NameList, split_names
from lengthwise.config import ConfigError


def command(
    *names: Annotated[str, Parameter(name="ENCODINGS", show_default=False)],
    encodings: NameList = None,
    theorems: bool = False,
    outside: bool = False,
    json: bool = False,
) -> int:
    """Run the conformance suite: every encoding on every attention backend.

    Example: lengthwise check; lengthwise check rope fire; lengthwise check --theorems; lengthwise check --outside alibi

    Args:
        names: Encodings to check, separated by spaces. [default: all]
        encodings: The same names, comma-separated: rope,fire.
        theorems: Check published theorems about the encodings numerically, instead of the conformance suite.
        outside: Compare our encodings with those of transformers, x-transformers and flash-linear-attention, instead of the
            conformance suite.
        json: Print JSON.
    """
    if outside and theorems:
        raise ConfigError("--theorems and --outside cannot be combined; give one of them")
    if outside:
        from lengthwise.conformance.outside.scoreboard import main
    elif theorems:
        from lengthwise.conformance.theorems.table import main
    else:
        from lengthwise.conformance.table import main
    return main(json=json, encodings=(*names, *split_names(encodings)))
