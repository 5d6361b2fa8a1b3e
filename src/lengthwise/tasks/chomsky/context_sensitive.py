"""The seven context-sensitive tasks: an automaton with a tape solves them."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lengthwise.tasks.chomsky.base import BITS, PLUS, RESIDUES, TIMES, AnsweredTask, StringTask
from lengthwise.tasks.pairs import NO_WORD
from lengthwise.tasks.sequences import ENUMERABLE, combinations

PLACEHOLDER = "_"


class DuplicateString(StringTask):
    """Write a string of bits twice, a context-sensitive task. `length` counts the bits of the string.

    Length 3, the scored targets underlined (the answer and EOS):

        inputs   BOS 1 0 1   SEP 1 0 1 1 0 1
        targets  1   0 1 SEP 1   0 1 1 0 1 EOS
                             ‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾

    `Copy(times=2)` has a separator between the copies.

    The score is token accuracy, see `ChomskyTask`. Train and test share no question, see `SequenceTask`.

    Source: Delétang et al. 2023, "Neural Networks and the Chomsky Hierarchy".
    """

    level = "context-sensitive"

    def longest_answer(self, length: int) -> int:
        return 2 * length

    def answers(self, questions: Int[Tensor, "b n"]) -> Int[Tensor, "b m"]:
        return questions.repeat(1, 2)


class MissingDuplicate(AnsweredTask):
    """Find a bit that is missing in one of two equal strings, a context-sensitive task. `length` counts the bits of
    both and is even.

    Length 6, the scored targets underlined (the answer and EOS):

        inputs   BOS 0 1 1 0 _ 1   SEP 1
        targets  0   1 1 0 _ 1 SEP 1   EOS
                                   ‾‾‾‾‾‾‾

    0 1 1 0 0 _ 1 0 → 1: the string is 0 1 1 0. Bits and the place of the missing one are uniform.

    The score is token accuracy, see `ChomskyTask`. Train and test share no question, see `SequenceTask`.

    Source: Delétang et al. 2023, "Neural Networks and the Chomsky Hierarchy".
    Differs: at an odd length, the authors' code adds an empty symbol to an example that is one symbol shorter.
    """

    level = "context-sensitive"
    shortest, length_step = 2, 2

    def __init__(self) -> None:
        super().__init__([*BITS, PLACEHOLDER])

    def draw_questions(self, generator: torch.Generator, count: int, length: int) -> Int[Tensor, "b n"]:
        strings = torch.randint(2, (count, length // 2), generator=generator)
        return self._without(strings, torch.randint(length, (count, 1), generator=generator))

    def all_questions(self, length: int) -> Int[Tensor, "m n"] | None:
        choices = combinations([2] * (length // 2) + [length])
        return None if choices is None else self._without(choices[:, :-1], choices[:, -1:])

    def answers(self, questions: Int[Tensor, "b n"]) -> Int[Tensor, "b 1"]:
        length = questions.shape[1]
        missing = (questions == self._word_id[PLACEHOLDER]).int().argmax(1, keepdim=True)
        return questions.gather(1, (missing + length // 2) % length)

    def _without(self, strings: Int[Tensor, "b m"], places: Int[Tensor, "b 1"]) -> Int[Tensor, "b n"]:
        return strings.repeat(1, 2).scatter(1, places, self._word_id[PLACEHOLDER])


class OddsFirst(StringTask):
    """Write the first, third, fifth, ... bit of a string and then the second, fourth, ..., a context-sensitive task.
    `length` counts the bits.

    Length 5, the scored targets underlined (the answer and EOS):

        inputs   BOS 0 0 1 1 0   SEP 0 1 0 0 1
        targets  0   0 1 1 0 SEP 0   1 0 0 1 EOS
                                 ‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾

    The score is token accuracy, see `ChomskyTask`. Train and test share no question, see `SequenceTask`.

    Source: Delétang et al. 2023, "Neural Networks and the Chomsky Hierarchy".
    Differs: the authors' code writes the second, fourth, ... bit first, although its docstring says what is done here.
    """

    level = "context-sensitive"

    def longest_answer(self, length: int) -> int:
        return length

    def answers(self, questions: Int[Tensor, "b n"]) -> Int[Tensor, "b n"]:
        return torch.cat([questions[:, ::2], questions[:, 1::2]], 1)


class BucketSort(StringTask):
    """Sort symbols from 0 to 4, a context-sensitive task. `length` counts the symbols.

    Length 4, the scored targets underlined (the answer and EOS):

        inputs   BOS 1 0 2 0   SEP 0 0 1 2
        targets  1   0 2 0 SEP 0   0 1 2 EOS
                               ‾‾‾‾‾‾‾‾‾‾‾‾‾

    The questions and answers are those of `Sorting(symbols=5)`.

    The score is token accuracy, see `ChomskyTask`. Train and test share no question, see `SequenceTask`.

    Source: Delétang et al. 2023, "Neural Networks and the Chomsky Hierarchy".
    """

    level = "context-sensitive"
    vocabulary = RESIDUES
    symbols = len(RESIDUES)

    def longest_answer(self, length: int) -> int:
        return length

    def answers(self, questions: Int[Tensor, "b n"]) -> Int[Tensor, "b n"]:
        return questions.sort(1).values


class NumbersTask(AnsweredTask):
    """A task on positive binary numbers. Questions in which a number is 0 are drawn again."""

    level = "context-sensitive"
    vocabulary: ClassVar[Sequence[str]] = BITS

    def __init__(self) -> None:
        super().__init__(self.vocabulary)
        self.digit_tokens = tuple(self.ids(BITS))

    @abstractmethod
    def is_positive(self, questions: Int[Tensor, "b n"]) -> Bool[Tensor, " b"]:
        """Return in which questions no number is 0."""

    def _draw_bits(self, generator: torch.Generator, template: Int[Tensor, "b n"]) -> Int[Tensor, "b n"]:
        """Return questions with uniform bits where `template` has 0, such that all numbers are positive."""
        questions = torch.empty_like(template)
        missing = torch.arange(len(template))
        while len(missing):
            bits = torch.randint(2, (len(missing), template.shape[1]), generator=generator)
            candidates = torch.where(template[missing] == 0, bits, template[missing])
            questions[missing] = candidates
            missing = missing[~self.is_positive(candidates)]
        return questions


class BinaryOperation(NumbersTask):
    """The base class of addition and multiplication of two binary numbers, the lowest bit first.

    The number of bits of the first number is uniform over 1 ... length − 2, and each number is uniform over the
    positive numbers with at most that many bits, so it can end in zeros.
    """

    shortest = 3
    scores_end = True
    sign: ClassVar[str]

    def longest_answer(self, length: int) -> int:
        return length - 1

    def draw_questions(self, generator: torch.Generator, count: int, length: int) -> Int[Tensor, "b n"]:
        sizes = torch.randint(1, length - 1, (count, 1), generator=generator)
        return self._draw_bits(generator, self._template(sizes, length))

    def all_questions(self, length: int) -> Int[Tensor, "m n"] | None:
        if (length - 2) * 2 ** (length - 1) > 4 * ENUMERABLE:  # before those with a 0 are left out
            return None
        listed = []
        for size in range(1, length - 1):
            bits = combinations([2] * (length - 1), limit=4 * ENUMERABLE)
            assert bits is not None, "they are a part of those that were counted"
            mark = torch.full((len(bits), 1), self._word_id[self.sign])
            listed.append(torch.cat([bits[:, :size], mark, bits[:, size:]], 1))
        questions = torch.cat(listed)
        questions = questions[self.is_positive(questions)]
        return questions if len(questions) <= ENUMERABLE else None

    def answers(self, questions: Int[Tensor, "b n"]) -> Int[Tensor, "b a"]:
        first, second = self._numbers(questions)
        results = [self.result(a, b) for a, b in zip(to_integers(first), to_integers(second), strict=True)]
        return to_bits(results, questions.shape[1] - 1)

    @abstractmethod
    def result(self, first: int, second: int) -> int:
        """Return the number that the answer is."""

    def is_positive(self, questions: Int[Tensor, "b n"]) -> Bool[Tensor, " b"]:
        first, second = self._numbers(questions)
        return first.any(1) & second.any(1)

    def _template(self, sizes: Int[Tensor, "b 1"], length: int) -> Int[Tensor, "b n"]:
        """Return the sign, 1 as the only bit of a number of one bit, and 0 for bits to be drawn."""
        template = torch.zeros(len(sizes), length, dtype=torch.int64).scatter_(1, sizes, self._word_id[self.sign])
        template[:, :1] += sizes == 1
        template[:, -1:] += sizes == length - 2
        return template

    def _numbers(self, questions: Int[Tensor, "b n"]) -> tuple[Int[Tensor, "b n"], Int[Tensor, "b n"]]:
        """Return the bits of both numbers, the lowest first, followed by zeros."""
        size = (questions == self._word_id[self.sign]).int().argmax(1, keepdim=True)
        columns = torch.arange(questions.shape[1])
        shifted = columns + size + 1
        is_second = shifted < questions.shape[1]
        second = questions.gather(1, shifted * is_second) * is_second
        return questions * (columns < size), second


class BinaryAddition(BinaryOperation):
    """Add two binary numbers, a context-sensitive task. `length` counts their bits and the sign +, at least 3.

    Length 5, the scored targets underlined (the answer and EOS):

        inputs   BOS 0 1 + 1 1   SEP 1 0 1
        targets  0   1 + 1 1 SEP 1   0 1 EOS
                                 ‾‾‾‾‾‾‾‾‾‾‾

    0 0 1 + 0 1 1 0 1 → 0 1 0 1 1 (4 + 22 = 26). Numbers and sums have their lowest bit first; a sum ends with its
    highest bit that is 1. The sizes of the numbers are uniform, and a number can end in zeros, but is not 0.

    The score is token accuracy, see `ChomskyTask`. Train and test share no question, see `SequenceTask`.

    Source: Delétang et al. 2023, "Neural Networks and the Chomsky Hierarchy".
    Differs: at lengths 1 and 2, which are too short for a sum, the authors' code has a number without a sign.
    """

    vocabulary = (*BITS, PLUS)
    sign = PLUS

    def result(self, first: int, second: int) -> int:
        return first + second


class BinaryMultiplication(BinaryOperation):
    """Multiply two binary numbers, a context-sensitive task. `length` counts their bits and the sign *, at least 3.

    Length 5, the scored targets underlined (the answer and EOS):

        inputs   BOS 0 1 * 1 1   SEP 0 1 1
        targets  0   1 * 1 1 SEP 0   1 1 EOS
                                 ‾‾‾‾‾‾‾‾‾‾‾

    0 0 1 * 0 1 1 0 1 → 0 0 0 1 1 0 1 (4 · 22 = 88). Numbers and products are written as in `BinaryAddition`.

    The score is token accuracy, see `ChomskyTask`. Train and test share no question, see `SequenceTask`.

    Source: Delétang et al. 2023, "Neural Networks and the Chomsky Hierarchy".
    Differs: at lengths 1 and 2, which are too short for a product, the authors' code has a constant answer.
    """

    vocabulary = (*BITS, TIMES)
    sign = TIMES

    def result(self, first: int, second: int) -> int:
        return first * second


class ComputeSqrt(NumbersTask):
    """Compute the square root of a binary number, rounded down, a context-sensitive task. `length` counts its bits.

    Length 6, the scored targets underlined (the answer and EOS):

        inputs   BOS 1 0 0 1 0 1   SEP 1 1 0
        targets  1   0 0 1 0 1 SEP 1   1 0 EOS
                                   ‾‾‾‾‾‾‾‾‾‾‾

    1 0 0 1 0 1 → 1 1 0 (⌊√37⌋ = 6). Numbers have their highest bit first. They are uniform over the positive numbers
    with at most `length` bits, so they can begin with zeros; so can the root, which has half as many bits (rounded up).

    The score is token accuracy, see `ChomskyTask`. Train and test share no question, see `SequenceTask`.

    Source: Delétang et al. 2023, "Neural Networks and the Chomsky Hierarchy".
    Differs: the authors' code does this; its docstring has 101 in the example.
    """

    def longest_answer(self, length: int) -> int:
        return -(-length // 2)

    def draw_questions(self, generator: torch.Generator, count: int, length: int) -> Int[Tensor, "b n"]:
        return self._draw_bits(generator, torch.zeros(count, length, dtype=torch.int64))

    def all_questions(self, length: int) -> Int[Tensor, "m n"] | None:
        questions = combinations([2] * length)
        return None if questions is None else questions[1:]  # without 0

    def is_positive(self, questions: Int[Tensor, "b n"]) -> Bool[Tensor, " b"]:
        return questions.any(1)

    def answers(self, questions: Int[Tensor, "b n"]) -> Int[Tensor, "b a"]:
        roots = [math.isqrt(number) for number in to_integers(questions.flip(1))]
        return to_bits(roots, self.longest_answer(questions.shape[1])).clamp(min=0).flip(1)


def to_integers(bits: Int[Tensor, "b n"]) -> list[int]:
    """Return the numbers with these bits, the lowest first. Python's integers have any size."""
    packed = np.packbits(bits.numpy().astype(np.uint8), axis=1, bitorder="little")
    return [int.from_bytes(row, "little") for row in packed]


def to_bits(numbers: Sequence[int], width: int) -> Int[Tensor, "b width"]:
    """Return the bits of numbers below 2^width, the lowest first; -1 after the highest bit that is 1."""
    size = -(-width // 8)
    packed = np.frombuffer(b"".join(number.to_bytes(size, "little") for number in numbers), np.uint8)
    bits = np.unpackbits(packed.reshape(len(numbers), size), axis=1, bitorder="little")[:, :width]
    lengths = torch.tensor([number.bit_length() for number in numbers], dtype=torch.int64)
    return torch.from_numpy(bits.astype(np.int64)).masked_fill(torch.arange(width) >= lengths[:, None], NO_WORD)
