"""The retrieval tasks: each is a function of a generator of random numbers and a depth.

The depth is the place of the sentence that is asked for; tasks whose sentences have random places ignore it.
"""

from random import Random

from lengthwise.reach.tasks.base import Needles, names, number

SENTENCES = 4  # of `keys` and `values`
ASSIGNMENTS = 3
WORDS, SHOWN = 12, 4  # of a passage to copy, and of its beginning in the question


def needle(random: Random, depth: float) -> Needles:
    """The text contains "The number of NAME is N." once, and the question is the number of that name."""
    (key,), value = names(random, 1), number(random)
    return Needles([(depth, f"The number of {key} is {value}.")], f"The number of {key} is", value)


def keys(random: Random, depth: float) -> Needles:
    """The text contains four sentences "The number of NAME is N." with different names, of which one is asked for."""
    keys = names(random, SENTENCES)
    values = [number(random) for _ in keys]
    places = [depth, *(random.random() for _ in keys[1:])]
    sentences = [
        (place, f"The number of {key} is {value}.") for place, key, value in zip(places, keys, values, strict=True)
    ]
    return Needles(sentences, f"The number of {keys[0]} is", values[0])


def values(random: Random, depth: float) -> Needles:
    """The text contains four sentences "A number of NAME is N." about one name. The answer is all numbers in order."""
    (key,), values = names(random, 1), [number(random) for _ in range(SENTENCES)]
    places = sorted(random.random() for _ in values)
    sentences = [(place, f"A number of {key} is {value}.") for place, value in zip(places, values, strict=True)]
    question = f"In the order of the text above, the {SENTENCES} numbers of {key} are"
    return Needles(sentences, question, ", ".join(values))


def variables(random: Random, depth: float) -> Needles:
    """The first variable is set to a number, and each further one to the one before it. The last one is asked for."""
    chain, value = names(random, ASSIGNMENTS), number(random)
    places = sorted(random.random() for _ in chain)
    contents = [value, *chain]
    sentences = [
        (place, f"The value of {variable} is {content}.")
        for place, variable, content in zip(places, chain, contents, strict=False)
    ]
    question = f"Following the assignments above to their number, the value of {chain[-1]} is"
    return Needles(sentences, question, value)


def copying(random: Random, depth: float) -> Needles:
    """The text contains a passage of twelve invented words. The question is its first four, the answer the others."""
    words = names(random, WORDS)
    return Needles([(depth, " ".join(words))], " ".join(words[:SHOWN]), " ".join(words[SHOWN:]))
