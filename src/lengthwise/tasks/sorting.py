"""Sorting: say items in ascending order."""

import string
from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.tasks.numbers import digits, split
from lengthwise.tasks.pairs import Draft, Pairs
from lengthwise.tasks.scratchpad import COMPONENTS, ScratchpadTask, Step
from lengthwise.tasks.sequences import DIGITS, combinations

ORDER = string.digits + string.ascii_lowercase + string.ascii_uppercase
SYMBOLS = 50
SMALLEST, PLACES = 10, 4  # numbers from 10 to 9999
COMMA = ","


class Sorting(ScratchpadTask):
    """Sort items. `length` counts the items.

    Length 3, the scored targets underlined (the items in ascending order, and EOS):

        inputs   BOS C  8  b  SEP 8  b  C
        targets  C   8  b  SEP 8  b  C  EOS
                               ‾‾‾‾‾‾‾‾‾‾‾‾

    `items`, uniform and independent, so that they can repeat:

        symbols   C 8 b                     → 8 b C                     (the order: 0 ... 9, a ... z, A ... N)
        numbers   3 1 , 4 1 2 6 , 5 9       → 3 1 , 5 9 , 4 1 2 6       (10 ... 9999)

    `symbols`: how many there are, the first so many of 0 ... 9, a ... z, A ... Z.

    With a scratchpad (`ScratchpadTask`), selection sort with swaps, a step for each item; it has no variables. In: the first item
    of what is not sorted yet; out: the smallest; what remains, after the smallest has changed places with the first:

        in C comp min out 8 re C b # in C comp min out b re C # in C comp min out C re thus 8 b C

    The score is exact match: 1 where the whole answer and EOS are right. Train and test share no question, see
    `SequenceTask`.

    Source: Kazemnejad et al. 2023, section 3 and appendix D.1 (single token, multi-digit).
    Differs: the published symbols are those that its tokenizer leaves whole; numbers are from 10 on, as in the
    published program; the paper says from 0 to 10,000.
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
            spelled = digits(torch.arange(10**PLACES), PLACES)
            comma = torch.full((len(spelled), 1), self._id[COMMA])
            self._spelling = torch.cat([spelled, comma], 1)  # of each number, by row

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        symbols = settings["symbols"]
        if not 2 <= symbols <= len(ORDER):
            raise ConfigError(
                f"Sorting.symbols is {symbols}; it has to lie in 2 ... {len(ORDER)}, for those are the digits and letters to sort"
            )
        if settings["items"] == "numbers" and symbols != SYMBOLS:
            raise ConfigError(f"Sorting.symbols is {symbols} with items=numbers, which has none; leave symbols out")
        return super().check(settings)

    def draw(self, generator: torch.Generator, count: int, length: int) -> Draft:
        low, high = (0, self.symbols) if self.items == "symbols" else (SMALLEST, 10**PLACES)
        return self._draft(torch.randint(low, high, (count, length), generator=generator))

    def every(self, length: int) -> Pairs | None:
        chosen = combinations([self.symbols] * length) if self.items == "symbols" else None
        return None if chosen is None else self._draft(chosen).write()

    def widths(self, length: int) -> tuple[int, int]:
        most = length if self.items == "symbols" else (PLACES + 1) * length - 1
        return most, most

    def length_of(self, question: Sequence[str], answer: Sequence[str]) -> int:
        return len(self.listed(question))

    def listed(self, words: Sequence[str]) -> list[list[str]]:
        """The words of each item of a question or an answer."""
        return [[word] for word in words] if self.items == "symbols" else split(words, COMMA)

    def published(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        before, after = (", ".join(" ".join(item) for item in self.listed(words)) for words in (question, answer))
        return f"Sort the following list [ {before} ]. ", f"The sorted list is [ {after} ]."

    def published_in_paper(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        between = ", " if self.items == "numbers" else " "
        before, after = (between.join("".join(item) for item in self.listed(words)) for words in (question, answer))
        return f"Sort the following numbers: {before} ?", f"The answer is {after}."

    def steps(self, question: Sequence[str]) -> list[Step]:
        comma = COMMA if self.items == "numbers" else ""
        return [
            Step(tuple(first), ("min",), tuple(least), (), tuple(_between(rest, comma)))
            for first, least, rest in self._selections(question)
        ]

    def published_steps(self, question: Sequence[str]) -> list[dict[str, str]]:
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
        rest = (PLACES + 1) * pairs - (length - 1)
        return length, {"input": PLACES * length, "computation": length, "output": PLACES * length, "remaining": rest}

    def _selections(self, question: Sequence[str]) -> list[tuple[list[str], list[str], list[list[str]]]]:
        """Of each step of selection sort: the first item, the least, and the rest once they have changed places."""
        found, rest = [], list(self.listed(question))
        while rest:
            first, least = rest[0], min(rest, key=self._rank)
            rest[rest.index(least)] = first
            rest = rest[1:]
            found.append((first, least, list(rest)))
        return found

    def _rank(self, item: list[str]) -> int:
        return int("".join(item)) if self.items == "numbers" else self._id[item[0]]

    def _draft(self, chosen: Int[Tensor, "b n"]) -> Draft:
        """The example of each row of symbols' ids, or of numbers."""
        return Draft((chosen,), self._spelled, lambda rows: self._spelled(rows.sort(1).values))

    def _spelled(self, chosen: Int[Tensor, "b n"]) -> Int[Tensor, "b w"]:
        """Symbols as they are; of numbers the digits, with a comma after every number but the last."""
        return chosen if self.items == "symbols" else self._spelling[chosen].flatten(1)[:, :-1]


def _between(items: Sequence[Sequence[str]], mark: str) -> list[str]:
    """The words of items, the mark between them where there is one."""
    words: list[str] = []
    for n, item in enumerate(items):
        words += [mark, *item] if n and mark else item
    return words
