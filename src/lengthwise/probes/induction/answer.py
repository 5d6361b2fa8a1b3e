"""What is stored of induction: the checks of its question and its result."""

from lengthwise.store.checks import count, named, real, record, size, table

QUESTION = record({"length": size, "points": size, "repeats": size, "neighbours": size})
RESULT = record(
    {
        "induction": table(2),
        "prefix_score": real,
        "nearest_score": real,
        "uniform": named(real),
        "start": count,
        "n": size,
    }
)
