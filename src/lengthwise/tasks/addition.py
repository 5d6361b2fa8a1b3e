"""Addition: two numbers, digit by digit."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.tasks.numbers import split
from lengthwise.tasks.pairs import NOTHING, Draft, Pairs
from lengthwise.tasks.scratchpad import ScratchpadTask, Step, components_of
from lengthwise.tasks.sequences import DIGITS, combinations

PLUS = "+"


class Addition(ScratchpadTask):
    """Add two numbers. `length` counts the digits of the longer one.

    Length 2, the scored targets underlined (the sum and EOS):

        inputs   BOS 5  7  +  6  8  SEP 1  2  5
        targets  5   7  +  6  8  SEP 1  2  5  EOS
                                     ‾‾‾‾‾‾‾‾‾‾‾‾

    How many digits the two have, (A, B) with max(A, B) = length, is uniform over the 2 · length − 1 pairs that there are. A
    number of A digits is uniform over 10^(A−1) ... 10^A − 1, one of 1 digit over 0 ... 9. Numbers can be of any length.

    A test has as many questions of each pair of sizes (one more or less where they do not divide), and no question twice. So
    of 2 digits it has at most 318 questions: there are 106 that add a number of 2 digits to one of 1, and no more are asked of the
    other two pairs.

    With a scratchpad (`ScratchpadTask`), a step for each column from the units on, and one for a last carry:

        in 7 8 comp 7 + 8 + 0 = 1 5 out 5 [ 1 ] re 5 + 6 # in 5 6 comp 5 + 6 + 1 = 1 2 out 2 [ 1 ] re + # in 0 0 ...

    the carry in brackets. The shorter number is filled up with zeros in front. What remains keeps them, so that both have
    as many digits at every step; `zeros=published` drops them, as the study's code did: of 1003 + 5, first `re 1 0 0 + 0`.

    The score is exact match: 1 where the whole sum and EOS are right. Train and test share no question, see
    `SequenceTask`.

    Source: Kazemnejad et al. 2023, section 3 and appendix D.1.
    Differs: a length is one bucket, of which the source's buckets are the pairs (A, B).
    """

    unit = "digits"

    step_words = ("=",)
    kinds_are = "pairs of sizes"

    def __init__(self, *, scratchpad: str = "none", zeros: Literal["keep", "published"] = "keep"):
        self.check({"scratchpad": scratchpad, "zeros": zeros})
        self.zeros = zeros
        super().__init__([*DIGITS, PLUS], scratchpad)
        self.digit_tokens = tuple(self.ids(DIGITS))

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        on = components_of(cls.__name__, settings["scratchpad"])
        if settings["zeros"] == "published" and "remaining" not in (on or ()):
            raise ConfigError(
                f"Addition.zeros is 'published', but with scratchpad={settings['scratchpad']} no step says what remains, so "
                "that it makes no difference; leave it out"
            )
        return super().check(settings)

    def draw(self, generator: torch.Generator, count: int, length: int) -> Draft:
        return self.draw_kinds(generator, torch.randint(self.kinds(length), (count,), generator=generator), length)

    def kinds(self, length: int) -> int:
        return 2 * length - 1

    def draw_kinds(self, generator: torch.Generator, kinds: Int[Tensor, " b"], length: int) -> Draft:
        first = torch.where(kinds < length, length, kinds - length + 1)
        second = torch.where(kinds < length, kinds + 1, length)
        return self._draft(*(_number(generator, size, length) for size in (first, second)))

    def every(self, length: int) -> Pairs | None:
        chosen = combinations([10, 10]) if length == 1 else None
        return None if chosen is None else self._draft(chosen[:, :1], chosen[:, 1:]).write()

    def widths(self, length: int) -> tuple[int, int]:
        return 2 * length + 1, length + 1

    def length_of(self, question: Sequence[str], answer: Sequence[str]) -> int:
        return max(map(len, self.operands(question)))

    def operands(self, question: Sequence[str]) -> tuple[list[int], list[int]]:
        """The digits of both numbers."""
        first, second = split(question, PLUS)
        return [int(word) for word in first], [int(word) for word in second]

    def published(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        return f"Compute {' '.join(question)} ? ", f"The answer is {' '.join(answer)}."

    def published_in_paper(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        return f"Compute: {' '.join(question)} ?", f"The answer is {' '.join(answer)}."

    def steps(self, question: Sequence[str]) -> list[Step]:
        return [
            Step(
                (f"{a}", f"{b}"),
                (f"{a}", PLUS, f"{b}", PLUS, f"{carry}", "=", *f"{a + b + carry}"),
                (f"{(a + b + carry) % 10}",),
                (f"{(a + b + carry) // 10}",),
                (*rest_a, PLUS, *rest_b),
            )
            for a, b, carry, rest_a, rest_b in self._columns(question)
        ]

    def published_steps(self, question: Sequence[str]) -> list[dict[str, str]]:
        return [
            {
                "input": f"{a}, {b}",
                "computation": f"{a} + {b} + carry = {a + b} + {carry} = {a + b + carry}",
                "output": f"{(a + b + carry) % 10}",
                "variables": f"carry: {(a + b + carry) // 10}",
                "remaining": f"{' '.join(rest_a)} + {' '.join(rest_b)}",
            }
            for a, b, carry, rest_a, rest_b in self._columns(question)
        ]

    def step_sizes(self, length: int) -> tuple[int, dict[str, int]]:
        n = length
        return n + 1, {
            "input": 2 * n + 2,
            "computation": 8 * n + 7,
            "output": n + 1,
            "variables": n + 1,
            "remaining": n * n + 1,
        }

    def _columns(self, question: Sequence[str]) -> list[tuple[int, int, int, str, str]]:
        """From the units on: both digits, the carry that comes to them, and the digits of both numbers that remain."""
        first, second = ("".join(part) for part in split(question, PLUS))
        places = max(len(first), len(second))
        first, second = first.rjust(places, "0"), second.rjust(places, "0")
        found, carry = [], 0
        for n in range(places - 1, -1, -1):
            a, b = int(first[n]), int(second[n])
            found.append((a, b, carry, self._remains(first[:n]), self._remains(second[:n])))
            carry = (a + b + carry) // 10
        return [*found, (0, 0, carry, "", "")] if carry else found

    def _remains(self, digits: str) -> str:
        return digits if self.zeros == "keep" or not digits else digits.lstrip("0") or "0"

    def _draft(self, first: Int[Tensor, "b n"], second: Int[Tensor, "b n"]) -> Draft:
        """The examples with these digits, units last, -1 before a number begins."""
        return Draft((first, second), self._question, _sum)

    def _question(self, first: Int[Tensor, "b n"], second: Int[Tensor, "b n"]) -> Int[Tensor, "b w"]:
        return torch.cat([first, torch.full((len(first), 1), self._id[PLUS]), second], 1)


def _number(generator: torch.Generator, sizes: Int[Tensor, " b"], places: int) -> Int[Tensor, "b places"]:
    """Numbers of so many digits, units last, -1 before they begin."""
    drawn = torch.randint(10, (len(sizes), places), generator=generator)
    leading = torch.randint(1, 10, (len(sizes), 1), generator=generator)
    place = torch.arange(places, 0, -1)  # of units: 1
    sizes = sizes[:, None]
    drawn = torch.where((place == sizes) & (sizes > 1), leading, drawn)
    return drawn.masked_fill(place > sizes, NOTHING)


def _sum(first: Int[Tensor, "b n"], second: Int[Tensor, "b n"]) -> Int[Tensor, "b m"]:
    """The digits of the sums, m = n + 1, -1 in front where nothing is carried there; exact for any number of digits.

    A column hands on a carry if it sums to more than 9, none if to less, and what it was given if to 9: so a carry comes from
    the nearest column below that does not sum to 9. No loop over columns is needed.
    """
    columns = (first.clamp(min=0) + second.clamp(min=0)).flip(1)  # units first
    settling = torch.where(columns != 9, torch.arange(columns.shape[1]), 0)  # nines at the units: a 9 carries nothing
    carries = columns.gather(1, settling.cummax(1).values) > 9
    units = torch.zeros_like(carries[:, :1])
    digits = (columns + torch.cat([units, carries[:, :-1]], 1)) % 10
    top = torch.where(carries[:, -1:], 1, NOTHING)
    return torch.cat([top, digits.flip(1)], 1)
