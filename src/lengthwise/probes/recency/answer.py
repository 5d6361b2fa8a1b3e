"""What is stored of recency: the checks of its question and its result."""

from lengthwise.store.checks import SIZE, named, record, table

QUESTION = record({"length": SIZE, "points": SIZE, "repeats": SIZE})
RESULT = record({"layers": table(3), "last": named(table(2)), "train_length": SIZE, "n": SIZE})
