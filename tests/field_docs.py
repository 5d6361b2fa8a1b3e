"""The docstrings of a class's fields, which are the help of options."""

from typing import Any

from docstring_parser import parse_from_object


def field_docs(owner: Any) -> dict[str, str]:
    """Return the first paragraph about each field, in one line."""
    params = parse_from_object(owner).params
    return {param.arg_name: " ".join((param.description or "").partition("\n\n")[0].split()) for param in params}
