"""Retrieval tasks as tasks of lm-evaluation-harness. Lengths count words, as the tokenizer is unknown. No torch."""

import itertools
import re
from collections.abc import Sequence
from random import Random

from lengthwise.config import ConfigError
from lengthwise.evaluation.harness import TaskRows
from lengthwise.reach.tasks import TASKS, assemble
from lengthwise.reach.text import Text

DEPTHS = 5
WORD = re.compile(r"\s*\S+(?:\s+\Z)?")  # with the spaces before it; the last one with those after it


def retrieval_rows(
    names: Sequence[str], text: Text, lengths: Sequence[int], *, count: int, seed: int
) -> list[TaskRows]:
    """Return the examples of retrieval tasks at lengths in words, with the question and the answer.

    The names and numbers of an example are those of `lengthwise reach` with the same seed, and the same at every
    length. The sentences are placed at five depths in turn, in windows that are evenly spaced over the text. Raises
    `ConfigError` for a text that is shorter than a length, and for a length that is too short for a task.
    """
    words: dict[str, int] = {}
    spelled: list[str] = []

    def encode(content: str) -> list[int]:
        ids = [words.setdefault(word, len(words)) for word in WORD.findall(content)]
        spelled.extend(itertools.islice(words, len(spelled), None))
        return ids

    filler = encode(text.content)
    tasks = []
    for name in dict.fromkeys(names):
        for length in dict.fromkeys(lengths):
            free = len(filler) - length
            if free < 0:
                raise ConfigError(
                    f"--text {text.path} has {len(filler):,} words, fewer than the length of {length:,}; name a longer "
                    "text, or shorter --lengths"
                )
            rows: list[dict[str, str | int]] = []
            for n in range(count):
                start = free * n // max(count - 1, 1)
                needles = TASKS[name](Random(f"{seed} {name} {n}"), n % DEPTHS / (DEPTHS - 1))
                try:
                    prompt = assemble(needles, filler[start : start + length], encode, length)
                except ConfigError:
                    raise ConfigError(
                        f"--lengths {length} is too short for the sentences and the question of {name}; take more words"
                    ) from None
                question = "".join(spelled[token] for token in prompt.tokens[: -prompt.answer]).lstrip()
                rows.append({"prompt": question, "answer": needles.answer, "length": length})
            tasks.append(TaskRows(name, length, rows, is_continued=True))
    return tasks
