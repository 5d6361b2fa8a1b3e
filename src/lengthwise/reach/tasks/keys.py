"""Several sentences with different names, of which one is asked for."""

from random import Random

from lengthwise.reach.tasks.base import Needles, names, number

COUNT = 4


class Keys:
    """Four sentences "The number of NAME is N." with different names. The one that is asked for has the given depth."""

    name = "keys"

    def needles(self, random: Random, depth: float) -> Needles:
        keys = names(random, COUNT)
        values = [number(random) for _ in keys]
        places = [depth, *(random.random() for _ in keys[1:])]
        sentences = [
            (place, f"The number of {key} is {value}.") for place, key, value in zip(places, keys, values, strict=True)
        ]
        return Needles(sentences, f"The number of {keys[0]} is", values[0])
