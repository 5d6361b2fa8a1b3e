"""What is stored of learned biases: the checks of their question and their result."""

from lengthwise.store.checks import COUNT, SIZE, record, table

QUESTION = record({"query": SIZE})
RESULT = record({"distances": table(1, COUNT), "bias": table(3), "relative_distance": table(2), "variation": table(2)})
