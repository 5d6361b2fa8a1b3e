"""Addition: two numbers, digit by digit."""

import string
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.tasks.pairs import NO_WORD, Pairs, split
from lengthwise.tasks.places import Coupling, first_index
from lengthwise.tasks.scratchpad import ScratchpadTask, Step, parse_components
from lengthwise.tasks.sequences import DIGITS, combinations
from lengthwise.values import require_bool, require_integer

PLUS = "+"
HINT_LETTERS = string.ascii_letters  # a, b, ..., z, A, ..., Z


class Addition(ScratchpadTask):
    """Add two numbers. `length` counts the digits of the longer one.

    Length 2, the scored targets underlined (the sum and EOS):

        inputs   BOS 5  7  +  6  8  SEP 1  2  5
        targets  5   7  +  6  8  SEP 1  2  5  EOS
                                     ‾‾‾‾‾‾‾‾‾‾‾‾

    The numbers of digits (A, B), with max(A, B) = length, are uniform over the 2 · length − 1 possible pairs. A number
    of A digits is uniform over 10^(A−1) ... 10^A − 1, and a number of 1 digit over 0 ... 9. Numbers can be of any
    length.

    A test has equally many questions of each pair (up to one more if the pairs do not divide their number), and no
    question twice. So at length 2 it has at most 318 questions: its split has 106 questions that add a number of 2
    digits to one of 1, and the other two pairs get no more.

    With a scratchpad (`ScratchpadTask`) there is a step for each column, units first, and one for a last carry:

        in 7 8 comp 7 + 8 + 0 = 1 5 out 5 [ 1 ] re 5 + 6 # in 5 6 comp 5 + 6 + 1 = 1 2 out 2 [ 1 ] re + # in 0 0 ...

    with the carry in brackets. The shorter number is padded with leading zeros. The remaining input keeps them, so that
    both numbers have equally many digits at every step; `zeros=published` drops them, as the study's code did: for 1003
    + 5, the first step has `re 1 0 0 + 0`.

    `reverse`: the sum is written with its units first (5 2 1). `pad`: leading zeros make both numbers equally long, and
    the sum one digit longer than these (653 + 49 becomes 653 + 049 = 0702). With both, the format is that of position
    coupling (`coupling`).
    `reverse_operands`: the two numbers are written with their units first as well (356 + 94 = 207, with `reverse`).

    `hints`: index hints. Before each digit stands a symbol of an ordered list with so many symbols (a, b, ...), the
    same one for digits of equal significance: 42 + 39 = 81 becomes a4b2+a3b9=a8b1. The symbols of the sum ascend in the
    order in which its digits are written, so with `reverse` the lowest digit has the first one. The list is a circle,
    whose start is drawn uniformly each time that a question is used; from d on, the same sum is d4e2+d3e9=d8e1. A last
    carry has the symbol before (with `reverse`, after) those of the numbers. Hints do not count when questions are
    compared, so train and test share no pair of numbers. Numbers of n digits need n + 1 symbols.

    None of these four settings can be combined with a scratchpad.

    The score is exact match: 1 if the whole sum and EOS are correct. Train and test share no question, see
    `SequenceTask`.

    Source: Kazemnejad et al. 2023, section 3 and appendix D.1. For `reverse`, `pad` and `coupling`: Cho et al. 2024,
    "Position
    Coupling: Improving Length Generalization of Arithmetic Transformers Using Task Structure", section 3. For `hints`:
    Zhou et al. 2024, "Transformers Can Achieve Length Generalization But Not Robustly".
    Differs: a length here is one bucket that contains several of the source's buckets, the pairs (A, B). Here the list
    of hints is a circle, so that all symbols are equally frequent at every length, and no symbol tells whether there is
    a last carry.
    """

    unit = "digits"

    step_words = ("=",)
    kinds_name = "pairs of sizes"
    omitted_defaults: ClassVar[tuple[str, ...]] = ("reverse_operands", "hints")

    def __init__(
        self,
        *,
        scratchpad: str = "none",
        zeros: Literal["keep", "published"] = "keep",
        reverse: bool = False,
        pad: bool = False,
        reverse_operands: bool = False,
        hints: int | None = None,
    ):
        formats = {"reverse": reverse, "pad": pad, "reverse_operands": reverse_operands, "hints": hints}
        self.check({"scratchpad": scratchpad, "zeros": zeros, **formats})
        self.zeros, self.reverse, self.pad = zeros, reverse, pad
        self.reverse_operands, self.hints = reverse_operands, hints
        super().__init__([*DIGITS, PLUS, *_symbols(hints or 0)], scratchpad)
        self.digit_tokens = tuple(self.ids(DIGITS))

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        require_bool(cls.__name__, **{name: settings[name] for name in ("reverse", "pad", "reverse_operands")})
        if settings["hints"] is not None:
            require_integer(cls.__name__, 2, hints=settings["hints"])
        selected = parse_components(cls.__name__, settings["scratchpad"])
        if settings["zeros"] == "published" and "remaining" not in (selected or ()):
            raise ConfigError(
                f"Addition.zeros=published has no effect with scratchpad={settings['scratchpad']}, whose steps have no "
                "remaining input; leave zeros out"
            )
        for name in ("reverse", "pad", "reverse_operands", "hints"):
            if settings[name] and selected is not None:
                value = "true" if settings[name] is True else settings[name]
                raise ConfigError(
                    f"Addition.{name}={value} cannot be combined with a scratchpad, got {settings['scratchpad']}; "
                    "leave one of them out"
                )
        return super().check(settings)

    def draw(self, generator: torch.Generator, count: int, length: int) -> Pairs:
        return self.draw_kinds(generator, torch.randint(self.kinds(length), (count,), generator=generator), length)

    def kinds(self, length: int) -> int:
        return 2 * length - 1

    def draw_kinds(self, generator: torch.Generator, kinds: Int[Tensor, " b"], length: int) -> Pairs:
        first = torch.where(kinds < length, length, kinds - length + 1)
        second = torch.where(kinds < length, kinds + 1, length)
        return self.make_pairs(*(_draw_numbers(generator, sizes, length) for sizes in (first, second)))

    def all_examples(self, length: int) -> Pairs | None:
        operands = combinations([10, 10]) if length == 1 else None
        return None if operands is None else self.make_pairs(operands[:, :1], operands[:, 1:])

    def widths(self, length: int) -> tuple[int, int]:
        words = 1 if self.hints is None else 2  # for each digit
        return 2 * length * words + 1, (length + 1) * words

    def check_length(self, length: int, split: str = "test") -> None:
        super().check_length(length, split)
        if self.hints is not None and length >= self.hints:
            raise ConfigError(
                f"Addition.hints must be at least {length + 1} for numbers of {length} digits, one symbol for each "
                f"digit and one for the last carry, got {self.hints}; use more hints, or shorter numbers"
            )

    def length_of(self, question: Sequence[str], answer: Sequence[str]) -> int:
        return max(map(len, self.operands(question)))

    def operands(self, question: Sequence[str]) -> tuple[list[int], list[int]]:
        """Return the digits of both numbers, in the order in which they are written."""
        first, second = split(question, PLUS)
        return [int(word) for word in first if word in DIGITS], [int(word) for word in second if word in DIGITS]

    def repository_text(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        return f"Compute {' '.join(question)} ? ", f"The answer is {' '.join(answer)}."

    def paper_text(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str] | None:
        if self.reverse or self.pad or self.reverse_operands or self.hints:
            return None
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

    def repository_steps(self, question: Sequence[str]) -> list[dict[str, str]]:
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
        """Return for each column, units first: both digits, the carry, and the remaining digits of both numbers."""
        first, second = ("".join(digits) for digits in split(question, PLUS))
        width = max(len(first), len(second))
        first, second = first.rjust(width, "0"), second.rjust(width, "0")
        columns, carry = [], 0
        for n in range(width - 1, -1, -1):
            a, b = int(first[n]), int(second[n])
            columns.append((a, b, carry, self._remaining(first[:n]), self._remaining(second[:n])))
            carry = (a + b + carry) // 10
        return [*columns, (0, 0, carry, "", "")] if carry else columns

    def _remaining(self, digits: str) -> str:
        return digits if self.zeros == "keep" or not digits else digits.lstrip("0") or "0"

    def make_pairs(self, first: Int[Tensor, "b n"], second: Int[Tensor, "b n"]) -> Pairs:
        """Return the examples with these digits: units last, -1 before a number begins."""
        return Pairs(self._question(first, second), self._answer(first, second))

    def coupling(self) -> Coupling:
        """Couple digits of equal significance: all units have place 2, and + and SEP have place 1."""
        if self.reverse_operands or self.hints is not None:
            raise ConfigError(
                "Addition couples positions only without reverse_operands and hints; leave them out, or use another "
                "position scheme"
            )
        if not self.reverse:
            raise ConfigError(
                "Addition couples positions only with reverse=true, because the significance of a digit must be known "
                "when it is generated; use Addition(reverse=true), with pad=true as in the paper"
            )
        # An example of n digits has 3n + 4 token slots, and its sum has up to n + 1 digits.
        return Coupling(self._places, lambda tokens: max(1, (tokens - 4) // 3 + 2))

    def _places(self, inputs: Int[Tensor, "b t"]) -> Int[Tensor, "b t"]:
        plus, sep = first_index(inputs, self._word_id[PLUS]), first_index(inputs, self.sep)
        index = torch.arange(inputs.shape[1], device=inputs.device)
        in_question = torch.where(index <= plus, plus, sep) - index + 1
        places = torch.where(index < sep, in_question, index - sep + 1)
        return places.masked_fill((inputs == self.bos) | (inputs == self.eos), 0)

    def add_random_words(self, pairs: Pairs, generator: torch.Generator, length: int) -> Pairs:
        if self.hints is None:
            return pairs
        start = torch.randint(self.hints, (len(pairs), 1), generator=generator)

        def hinted(digits: Int[Tensor, "b m"], units_first: bool) -> Int[Tensor, "b w"]:
            """Return the digits, each after the symbol of its significance."""
            significance = torch.arange(digits.shape[1])
            if not units_first:
                significance = significance.flip(0)
            symbol = (start + (significance if self.reverse else length - 1 - significance)) % (self.hints or 1)
            symbols = (symbol + self._word_id[PLUS] + 1).masked_fill(digits == NO_WORD, NO_WORD)
            return torch.stack([symbols, digits], 2).flatten(1)

        first, plus, second = pairs.questions.split([length, 1, length], 1)
        question = [hinted(first, self.reverse_operands), plus, hinted(second, self.reverse_operands)]
        return Pairs(torch.cat(question, 1), hinted(pairs.answers, self.reverse))

    def _answer(self, first: Int[Tensor, "b n"], second: Int[Tensor, "b n"]) -> Int[Tensor, "b m"]:
        digits = sum_of(first, second)
        if self.pad:
            digits = digits.clamp(min=0)
        return digits.flip(1) if self.reverse else digits

    def _question(self, first: Int[Tensor, "b n"], second: Int[Tensor, "b n"]) -> Int[Tensor, "b w"]:
        if self.pad:
            first, second = first.clamp(min=0), second.clamp(min=0)
        if self.reverse_operands:
            first, second = first.flip(1), second.flip(1)
        return torch.cat([first, torch.full((len(first), 1), self._word_id[PLUS]), second], 1)


def _symbols(count: int) -> list[str]:
    """Return an ordered list of symbols: letters if they suffice, otherwise h0, h1, ..."""
    return list(HINT_LETTERS[:count]) if count <= len(HINT_LETTERS) else [f"h{n}" for n in range(count)]


def _draw_numbers(generator: torch.Generator, sizes: Int[Tensor, " b"], width: int) -> Int[Tensor, "b width"]:
    """Draw numbers with `sizes` digits: units last, -1 before a number begins."""
    digits = torch.randint(10, (len(sizes), width), generator=generator)
    leading = torch.randint(1, 10, (len(sizes), 1), generator=generator)
    column = torch.arange(width, 0, -1)  # 1 for the units
    sizes = sizes[:, None]
    digits = torch.where((column == sizes) & (sizes > 1), leading, digits)
    return digits.masked_fill(column > sizes, NO_WORD)


def sum_of(first: Int[Tensor, "b n"], second: Int[Tensor, "b n"]) -> Int[Tensor, "b m"]:
    """Return the digits of the sums, with m = n + 1 columns, exact for any number of digits. -1 in front means no last
    carry.

    A column that sums to more than 9 carries 1, one that sums to less carries 0, and one that sums to exactly 9 passes
    its incoming carry on. So a carry is decided by the nearest lower column that does not sum to 9, without a loop over
    columns.
    """
    columns = (first.clamp(min=0) + second.clamp(min=0)).flip(1)  # units first
    # The column that decides each carry. If all lower columns sum to 9 it is the units column, which then carries
    # nothing.
    deciding = torch.where(columns != 9, torch.arange(columns.shape[1]), 0)
    carries = columns.gather(1, deciding.cummax(1).values) > 9
    units = torch.zeros_like(carries[:, :1])
    digits = (columns + torch.cat([units, carries[:, :-1]], 1)) % 10
    top = torch.where(carries[:, -1:], 1, NO_WORD)
    return torch.cat([top, digits.flip(1)], 1)
