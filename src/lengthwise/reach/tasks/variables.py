"""A chain of assignments, whose last variable is asked for."""

from random import Random

from lengthwise.reach.tasks.base import Needles, names, number

HOPS = 3


class Variables:
    """The first variable is set to a number, and each further one to the variable before it, in the order
    of the text.
    """

    name = "variables"

    def needles(self, random: Random, depth: float) -> Needles:
        chain, value = names(random, HOPS), number(random)
        places = sorted(random.random() for _ in chain)
        contents = [value, *chain]
        sentences = [
            (place, f"The value of {variable} is {content}.")
            for place, variable, content in zip(places, chain, contents, strict=False)
        ]
        question = f"Following the assignments above to their number, the value of {chain[-1]} is"
        return Needles(sentences, question, value)
