"""A passage of invented words from the middle of the text, which the model has to copy."""

from random import Random

from lengthwise.reach.tasks.base import Needles, names

WORDS, SHOWN = 12, 4


class Copying:
    """The text contains a passage of twelve invented words. The question is its first four words, the answer the
    others.
    """

    name = "copying"

    def needles(self, random: Random, depth: float) -> Needles:
        words = names(random, WORDS)
        return Needles([(depth, " ".join(words))], " ".join(words[:SHOWN]), " ".join(words[SHOWN:]))
