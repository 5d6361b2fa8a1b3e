"""What is stored of attention-distance: the checks of its question and its result."""

from lengthwise.store.checks import SIZE, key, name, record, table

QUESTION = record({"against": key, "length": SIZE, "examples": SIZE, "variant": name})
RESULT = record({"layers": table(1), "standard_errors": table(1), "n": SIZE})
