"""The four regular tasks: an automaton with finitely many states solves them."""

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.tasks.chomsky.base import MINUS, MODULUS, PLUS, RESIDUES, TIMES, AnsweredTask, StringTask
from lengthwise.tasks.sequences import combinations


class EvenPairs(StringTask):
    """Decide whether the number of neighbours that differ is even (0) or odd (1), a regular task. `length` counts the
    bits.

    Length 5, the scored targets underlined (the answer and EOS):

        inputs   BOS 0 0 1 1 1   SEP 1
        targets  0   0 1 1 1 SEP 1   EOS
                                 ‾‾‾‾‾‾‾

    0 0 1 1 1 0 → 0 (01 and 10); 0 1 0 1 0 0 1 → 1 (five pairs differ). It is even if the first and the last bit are
    equal.

    The score is token accuracy, see `ChomskyTask`. Train and test share no question, see `SequenceTask`.

    Source: Delétang et al. 2023, "Neural Networks and the Chomsky Hierarchy".
    """

    level = "regular"

    def answers(self, questions: Int[Tensor, "b n"]) -> Int[Tensor, "b 1"]:
        return questions[:, :1] ^ questions[:, -1:]


class ParityCheck(StringTask):
    """Decide whether the number of ones is even (0) or odd (1), a regular task. `length` counts the bits.

    Length 4, the scored targets underlined (the answer and EOS):

        inputs   BOS 1 0 1 1   SEP 1
        targets  1   0 1 1 SEP 1   EOS
                               ‾‾‾‾‾‾‾

    The questions are those of `Parity`, whose answers are `Yes` and `No`.

    The score is token accuracy, see `ChomskyTask`. Train and test share no question, see `SequenceTask`.

    Source: Delétang et al. 2023, "Neural Networks and the Chomsky Hierarchy".
    """

    level = "regular"

    def answers(self, questions: Int[Tensor, "b n"]) -> Int[Tensor, "b 1"]:
        return questions.sum(1, keepdim=True) % 2


class CycleNavigation(StringTask):
    """Follow steps on a circle of five places and name the last place, a regular task. `length` counts the steps.

    Length 5, the scored targets underlined (the answer and EOS):

        inputs   BOS +1 -1 0  -1 -1  SEP 3
        targets  +1  -1 0  -1 -1 SEP 3   EOS
                                     ‾‾‾‾‾‾‾

    +1 -1 0 -1 -1 → 3. The walk starts at place 0.

    The score is token accuracy, see `ChomskyTask`. Train and test share no question, see `SequenceTask`.

    Source: Delétang et al. 2023, "Neural Networks and the Chomsky Hierarchy".
    """

    level = "regular"
    vocabulary = ("-1", "0", "+1", "1", "2", "3", "4")
    symbols = 3

    def answers(self, questions: Int[Tensor, "b n"]) -> Int[Tensor, "b 1"]:
        places = (questions - 1).sum(1, keepdim=True) % MODULUS
        return torch.tensor(self.ids(RESIDUES))[places]


class ModularArithmetic(AnsweredTask):
    """Compute the value of an expression without brackets modulo 5, a regular task. `length` counts its digits and
    signs, and is odd.

    Length 5, the scored targets underlined (the answer and EOS):

        inputs   BOS 1 + 2 * 3   SEP 2
        targets  1   + 2 * 3 SEP 2   EOS
                                 ‾‾‾‾‾‾‾

    1 + 2 * 3 → 2 (7 modulo 5); 1 - 1 - 1 → 4. Digits are uniform over 0 ... 4 and signs over +, − and *; products come
    first.

    The score is token accuracy, see `ChomskyTask`. Train and test share no question, see `SequenceTask`.

    Source: Delétang et al. 2023, "Neural Networks and the Chomsky Hierarchy".
    Differs: at an even length, the authors' code draws an expression that is one symbol shorter.
    """

    level = "regular"
    length_step = 2

    def __init__(self) -> None:
        super().__init__([*RESIDUES, PLUS, MINUS, TIMES])

    def draw_questions(self, generator: torch.Generator, count: int, length: int) -> Int[Tensor, "b n"]:
        questions = torch.randint(MODULUS, (count, length), generator=generator)
        questions[:, 1::2] = MODULUS + torch.randint(3, (count, length // 2), generator=generator)
        return questions

    def all_questions(self, length: int) -> Int[Tensor, "m n"] | None:
        questions = combinations([MODULUS, 3] * (length // 2) + [MODULUS])
        if questions is not None:
            questions[:, 1::2] += MODULUS
        return questions

    def answers(self, questions: Int[Tensor, "b n"]) -> Int[Tensor, "b 1"]:
        """Add term by term: a product extends the last term, and any other sign begins a new one."""
        minus, times = self.ids([MINUS, TIMES])
        symbols = questions.T.contiguous().numpy()  # a numpy call has less overhead than torch's
        signs, digits = symbols[1::2], symbols[2::2]
        is_product, signed = signs == times, np.where(signs == minus, -digits, digits)
        total, term = np.zeros_like(symbols[0]), symbols[0]
        for product, digit in zip(is_product, signed, strict=True):
            total = np.where(product, total, total + term)
            term = np.where(product, term * digit % MODULUS, digit)
        return torch.from_numpy((total + term) % MODULUS)[:, None]
