"""What is stored of attended-distance: the checks of its question and its result."""

from lengthwise.store.checks import SIZE, record, table

QUESTION = record({"length": SIZE, "examples": SIZE})
RESULT = record({"bins": SIZE, "most": table(3), "mass": table(3), "queries": SIZE, "n": SIZE})
