"""What is stored of learned biases: the checks of their question and their result."""

from lengthwise.store.checks import COUNT, SIZE, record, table, with_axes

QUESTION = record({"query": SIZE})
RESULT = with_axes(
    record({"distances": table(1, COUNT), "bias": table(3), "relative_distance": table(2), "variation": table(2)}),
    {"distances": "n", "bias": "lhn", "relative_distance": "lh", "variation": "lh"},
)
