"""What is stored of the lengths of examples: the checks of the question and the result."""

from lengthwise.store.checks import digits, name, named, record, size

QUESTION = record({"field": name}, {"examples": size})
RESULT = record({"train": named(size, digits), "test": named(size, digits)})
