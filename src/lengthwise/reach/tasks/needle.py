"""One sentence with a number, somewhere in the text."""

from random import Random

from lengthwise.reach.tasks.base import Needles, name, number


class Needle:
    """The text contains "The number of NAME is N." once, and the question is the number of that name."""

    name = "needle"

    def needles(self, random: Random, depth: float) -> Needles:
        key, value = name(random), number(random)
        sentence = f"The number of {key} is {value}."
        return Needles([(depth, sentence)], f"The number of {key} is", value)
