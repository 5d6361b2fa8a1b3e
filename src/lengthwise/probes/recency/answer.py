"""What is stored of recency: the checks of its question and its result."""

from lengthwise.store.checks import named, record, size, table

QUESTION = record({"length": size, "points": size, "repeats": size})
RESULT = record({"layers": table(3), "last": named(table(2)), "train_length": size, "n": size})
