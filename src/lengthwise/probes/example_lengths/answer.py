"""What is stored of the lengths of examples: the checks of the question and the result."""

from lengthwise.store.checks import SIZE, digits, name, named, record

QUESTION = record({"field": name}, {"examples": SIZE})
RESULT = record({"train": named(SIZE, digits), "test": named(SIZE, digits)})
