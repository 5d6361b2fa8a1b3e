"""What is stored of induction: the checks of its question and its result."""

from lengthwise.store.checks import COUNT, SIZE, named, real, record, table

QUESTION = record({"length": SIZE, "points": SIZE, "repeats": SIZE, "neighbours": SIZE})
RESULT = record(
    {
        "induction": table(2),
        "prefix_score": real,
        "nearest_score": real,
        "uniform": named(real),
        "start": COUNT,
        "n": SIZE,
    }
)
