"""Objects with fields of other types than they declare, as users can make them: only tests check constructors."""

from typing import Any


def with_fields(form: Any, **fields: Any) -> Any:
    """Return the frozen dataclass with other fields, which the type checks of the test suite would reject in its
    constructor.
    """
    for name, value in fields.items():
        object.__setattr__(form, name, value)
    return form
