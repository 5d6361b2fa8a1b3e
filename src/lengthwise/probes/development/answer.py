"""What is stored of a development: the checks of its question and its result."""

import math
from typing import Any

from lengthwise.store.checks import COUNT, SIZE, Unreadable, each, one_of, printable_word, real, record, table, within

QUESTION = record({"probe": one_of("development")})

_QUANTITY = record(
    {
        "name": printable_word,
        "layers": each(SIZE, least=1),
        "shape": each(SIZE),
        "entries": each(COUNT),
        "values": table(2, real),
    }
)
_RESULT = record({"steps": each(COUNT, least=2), "quantities": each(_QUANTITY, least=1)})


def RESULT(value: Any) -> dict[str, Any]:
    """Check a result. The numbers of its values have to agree with the steps and shapes."""
    result: dict[str, Any] = _RESULT(value)
    for n, quantity in enumerate(result["quantities"]):
        within(f"quantities[{n}]", lambda quantity: _require_sizes(quantity, len(result["steps"])), quantity)
    return result


def _require_sizes(quantity: dict[str, Any], steps: int) -> None:
    shape, values = quantity["shape"], quantity["values"]
    if len(shape) > 2 or (len(shape) == 2) != bool(quantity["entries"]):
        raise Unreadable("has entries that do not agree with its shape")
    if len(shape) == 2 and shape[1] != len(quantity["entries"]):
        raise Unreadable(f"has {len(quantity['entries'])} entries instead of {shape[1]}")
    if len(values) != steps or len(values[0]) != math.prod(shape):
        raise Unreadable(f"has {len(values)} rows of {len(values[0])} values instead of {steps} of {math.prod(shape)}")
