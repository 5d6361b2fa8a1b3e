"""Sorting: write items in ascending order."""

import string
from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.tasks.pairs import Pairs, digits, split
from lengthwise.tasks.scratchpad import COMPONENTS, ScratchpadTask, Step
from lengthwise.tasks.sequences import DIGITS, combinations

ORDER = string.digits + string.ascii_lowercase + string.ascii_uppercase
SYMBOLS = 50
SMALLEST, MAX_DIGITS = 10, 4  # numbers from 10 to 9999
COMMA = ","


class Sorting(ScratchpadTask):
    """Sort items. `length` counts the items.

    Length 3, the scored targets underlined (the items in ascending order, and EOS):

        inputs   BOS C  8  b  SEP 8  b  C
        targets  C   8  b  SEP 8  b  C  EOS
                               ‾‾‾‾‾‾‾‾‾‾‾‾

    `items`, uniform and independent, so they can repeat:

        symbols   C 8 b                     → 8 b C                     (the order: 0 ... 9, a ... z, A ... N)
        numbers   3 1 , 4 1 2 6 , 5 9       → 3 1 , 5 9 , 4 1 2 6       (10 ... 9999)

    `symbols`: the number of symbols, taken from the front of 0 ... 9, a ... z, A ... Z.

    With a scratchpad (`ScratchpadTask`), selection sort with swaps, a step for each item, without the component
    `variables`. The input is the first unsorted item, the output is the smallest, and the remaining input is what is
    left after these two are swapped:

        in C comp min out 8 re C b # in C comp min out b re C # in C comp min out C re thus 8 b C

    The score is exact match: 1 if the whole answer and EOS are correct. Train and test share no question, see
    `SequenceTask`.

    Source: Kazemnejad et al. 2023, section 3 and appendix D.1 (single token, multi-digit).
    Differs: the published symbols are those that its tokenizer does not split. Numbers start at 10, as in the published
    code; the paper says 0 to 10,000.
    """

    unit = "items"

    components = tuple(name for name in COMPONENTS if name != "variables")
    step_words = ("min",)

    def __init__(
        self, *, items: Literal["symbols", "numbers"] = "symbols", symbols: int = SYMBOLS, scratchpad: str = "none"
    ):
        self.check({"items": items, "symbols": symbols, "scratchpad": scratchpad})
        self.items, self.symbols = items, symbols
        super().__init__([*DIGITS, COMMA] if items == "numbers" else ORDER[:symbols], scratchpad)
        if items == "numbers":
            self.digit_tokens = tuple(self.ids(DIGITS))
            number_digits = digits(torch.arange(10**MAX_DIGITS), MAX_DIGITS)
            comma = torch.full((len(number_digits), 1), self._word_id[COMMA])
            self._number_words = torch.cat([number_digits, comma], 1)  # row n: the words of the number n, then a comma

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        symbols = settings["symbols"]
        if not 2 <= symbols <= len(ORDER):
            raise ConfigError(
                f"Sorting.symbols must be between 2 and {len(ORDER)}, the number of digits and letters, got {symbols}"
            )
        if settings["items"] == "numbers" and symbols != SYMBOLS:
            raise ConfigError(f"Sorting.symbols is {symbols}, but items=numbers has no symbols; leave symbols out")
        return super().check(settings)

    def draw(self, generator: torch.Generator, count: int, length: int) -> Pairs:
        low, high = (0, self.symbols) if self.items == "symbols" else (SMALLEST, 10**MAX_DIGITS)
        return self._make_pairs(torch.randint(low, high, (count, length), generator=generator))

    def all_examples(self, length: int) -> Pairs | None:
        items = combinations([self.symbols] * length) if self.items == "symbols" else None
        return None if items is None else self._make_pairs(items)

    def widths(self, length: int) -> tuple[int, int]:
        width = length if self.items == "symbols" else (MAX_DIGITS + 1) * length - 1
        return width, width

    def length_of(self, question: Sequence[str], answer: Sequence[str]) -> int:
        return len(self.split_items(question))

    def split_items(self, words: Sequence[str]) -> list[list[str]]:
        """Return the words of each item of a question or an answer."""
        return [[word] for word in words] if self.items == "symbols" else split(words, COMMA)

    def repository_text(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        before, after = (", ".join(" ".join(item) for item in self.split_items(words)) for words in (question, answer))
        return f"Sort the following list [ {before} ]. ", f"The sorted list is [ {after} ]."

    def paper_text(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        comma = ", " if self.items == "numbers" else " "
        before, after = (comma.join("".join(item) for item in self.split_items(words)) for words in (question, answer))
        return f"Sort the following numbers: {before} ?", f"The answer is {after}."

    def steps(self, question: Sequence[str]) -> list[Step]:
        comma = COMMA if self.items == "numbers" else ""
        return [
            Step(tuple(first), ("min",), tuple(least), (), tuple(_join_items(rest, comma)))
            for first, least, rest in self._selections(question)
        ]

    def repository_steps(self, question: Sequence[str]) -> list[dict[str, str]]:
        return [
            {
                "input": " ".join(first),
                "computation": "The minimum of the unsorted portion",
                "output": " ".join(least),
                "remaining": f"[ {', '.join(' '.join(item) for item in rest)} ]",
            }
            for first, least, rest in self._selections(question)
        ]

    def step_sizes(self, length: int) -> tuple[int, dict[str, int]]:
        pairs = length * (length - 1) // 2
        if self.items == "symbols":
            return length, {"input": length, "computation": length, "output": length, "remaining": pairs}
        rest = (MAX_DIGITS + 1) * pairs - (length - 1)
        numbers = MAX_DIGITS * length
        return length, {"input": numbers, "computation": length, "output": numbers, "remaining": rest}

    def _selections(self, question: Sequence[str]) -> list[tuple[list[str], list[str], list[list[str]]]]:
        """Return for each step of selection sort: the first item, the smallest, and the items that remain."""
        steps, rest = [], list(self.split_items(question))
        while rest:
            first, least = rest[0], min(rest, key=self._rank)
            rest[rest.index(least)] = first
            rest = rest[1:]
            steps.append((first, least, list(rest)))
        return steps

    def _rank(self, item: list[str]) -> int:
        return int("".join(item)) if self.items == "numbers" else self._word_id[item[0]]

    def _make_pairs(self, items: Int[Tensor, "b n"]) -> Pairs:
        return Pairs(self._to_words(items), self._to_words(items.sort(1).values))

    def _to_words(self, items: Int[Tensor, "b n"]) -> Int[Tensor, "b w"]:
        """Return symbol ids unchanged, and numbers as digits with commas between the numbers."""
        return items if self.items == "symbols" else self._number_words[items].flatten(1)[:, :-1]


def _join_items(items: Sequence[Sequence[str]], separator: str) -> list[str]:
    """Return the words of all items, with the separator between items unless it is empty."""
    words: list[str] = []
    for n, item in enumerate(items):
        words += [separator, *item] if n and separator else item
    return words
