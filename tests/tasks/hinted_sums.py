"""Recompute sums with index hints from the text of their questions. Plain Python, which cannot import lengthwise.

It reads JSON lines {"question": "a4b2+a3b9", "symbols": "abcdef", "reverse": ..., "pad": ..., "reverse_operands": ...}
from standard input, and writes one line for each: the question and the answer as they must be written.
"""

import json
import sys


def place_values(number, lowest_first):
    """The digits of a number with their places, as they are written."""
    places = range(len(number)) if lowest_first else range(len(number) - 1, -1, -1)
    return list(zip(number, places, strict=True))


def written(number, symbol_of_place, lowest_first):
    text = number[::-1] if lowest_first else number
    return "".join(symbol_of_place(place) + digit for digit, place in place_values(text, lowest_first))


def recompute(question, symbols, reverse, pad, reverse_operands):
    texts = question.split("+")
    numbers = [text[1::2][::-1] if reverse_operands else text[1::2] for text in texts]
    longest = max(len(number) for number in numbers)
    # The symbol before the units of the first number, which every number has.
    units = texts[0][0] if reverse_operands else texts[0][-2]
    shift = symbols.index(units)

    def symbol_of_place(place):
        # The sum is written in the order of the list: upwards from its units, or downwards to its units.
        return symbols[(shift + place if reverse else shift - place) % len(symbols)]

    total = str(int(numbers[0]) + int(numbers[1]))
    if pad:
        numbers = [number.zfill(longest) for number in numbers]
        total = total.zfill(longest + 1)
    question = "+".join(written(number, symbol_of_place, reverse_operands) for number in numbers)
    return question + "=" + written(total, symbol_of_place, reverse)


for line in sys.stdin:
    print(recompute(**json.loads(line)))
