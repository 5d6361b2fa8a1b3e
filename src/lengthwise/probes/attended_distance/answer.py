"""What is stored of attended-distance: the checks of its question and its result."""

from lengthwise.store.checks import record, size, table

QUESTION = record({"length": size, "examples": size})
RESULT = record({"bins": size, "most": table(3), "mass": table(3), "queries": size, "n": size})
