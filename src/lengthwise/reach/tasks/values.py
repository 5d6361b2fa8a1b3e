"""Several sentences about the same name, all of which are asked for."""

from random import Random

from lengthwise.reach.tasks.base import Needles, name, number

COUNT = 4


class Values:
    """Four sentences "A number of NAME is N." about one name. The answer is all numbers in the order of the text."""

    name = "values"

    def needles(self, random: Random, depth: float) -> Needles:
        key, values = name(random), [number(random) for _ in range(COUNT)]
        places = sorted(random.random() for _ in values)
        sentences = [(place, f"A number of {key} is {value}.") for place, value in zip(places, values, strict=True)]
        question = f"In the order of the text above, the {COUNT} numbers of {key} are"
        return Needles(sentences, question, ", ".join(values))
