"""What is stored of attention-distance: the checks of its question and its result."""

from lengthwise.store.checks import key, name, record, size, table

QUESTION = record({"against": key, "length": size, "examples": size, "variant": name})
RESULT = record({"layers": table(1), "standard_errors": table(1), "n": size})
