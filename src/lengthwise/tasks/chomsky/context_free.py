"""The four context-free tasks: an automaton with a stack solves them."""

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.tasks.chomsky.base import BITS, MINUS, PLUS, RESIDUES, TIMES, AnsweredTask, ChomskyTask, StringTask
from lengthwise.tasks.chomsky.expressions import all_expressions, draw_expressions
from lengthwise.tasks.pairs import NO_WORD, Pairs
from lengthwise.tasks.sequences import ENUMERABLE, combinations

OPEN, CLOSE = "(", ")"
UNKNOWN, EQUALS = "x", "="
POP, PUSH = "POP", ("PUSH0", "PUSH1")


class ReverseString(StringTask):
    """Reverse a string of bits, a context-free task. `length` counts the bits.

    Length 3, the scored targets underlined (the answer and EOS):

        inputs   BOS 0 0 1   SEP 1 0 0
        targets  0   0 1 SEP 1   0 0 EOS
                             ‾‾‾‾‾‾‾‾‾‾‾

    The questions and answers are those of `Reverse(symbols=2)`.

    The score is token accuracy, see `ChomskyTask`. Train and test share no question, see `SequenceTask`.

    Source: Delétang et al. 2023, "Neural Networks and the Chomsky Hierarchy".
    """

    level = "context-free"

    def longest_answer(self, length: int) -> int:
        return length

    def answers(self, questions: Int[Tensor, "b n"]) -> Int[Tensor, "b n"]:
        return questions.flip(1)


class StackManipulation(AnsweredTask):
    """Apply actions to a stack of bits, a context-free task. `length` counts the bits of the stack and the actions.

    Length 6, the scored targets underlined (the answer and EOS):

        inputs   BOS 0 1 1     PUSH1 POP POP SEP 1 0
        targets  0   1 1 PUSH1 POP   POP SEP 1   0 EOS
                                             ‾‾‾‾‾‾‾‾‾

    0 1 1 0 PUSH1 POP POP → 1 1 0. The stack is given from bottom to top and answered from top to bottom. POP does
    nothing on an empty stack: 1 1 0 POP POP POP → no token, so only EOS is scored. The number of bits at the beginning
    is uniform over 1 ... length − 1; bits and actions are uniform. At length 1 there is a bit and no action.

    The score is token accuracy, see `ChomskyTask`. Train and test share no question, see `SequenceTask`.

    Source: Delétang et al. 2023, "Neural Networks and the Chomsky Hierarchy".
    """

    level = "context-free"
    scores_end = True

    def __init__(self) -> None:
        super().__init__([*BITS, POP, *PUSH])

    def longest_answer(self, length: int) -> int:
        return length

    def draw_questions(self, generator: torch.Generator, count: int, length: int) -> Int[Tensor, "b n"]:
        sizes = torch.randint(1, max(length, 2), (count, 1), generator=generator)
        bits = torch.randint(2, (count, length), generator=generator)
        actions = 2 + torch.randint(3, (count, length), generator=generator)
        return torch.where(torch.arange(length) < sizes, bits, actions)

    def all_questions(self, length: int) -> Int[Tensor, "m n"] | None:
        sizes = range(1, max(length, 2))
        if sum(2**size * 3 ** (length - size) for size in sizes) > ENUMERABLE:
            return None
        listed = []
        for size in sizes:
            questions = combinations([2] * size + [3] * (length - size))
            assert questions is not None, "they are a part of those that were counted"
            questions[:, size:] += 2
            listed.append(questions)
        return torch.cat(listed)

    def answers(self, questions: Int[Tensor, "b n"]) -> Int[Tensor, "b n"]:
        pop, push_0 = self.ids([POP, PUSH[0]])
        symbols = questions.T.contiguous().numpy()  # a numpy call has less overhead than torch's
        length, count = symbols.shape
        stacks, heights, rows = np.empty((count, length + 1), np.int64), np.zeros(count, np.int64), np.arange(count)
        for symbol in symbols:
            stacks[rows, heights] = np.where(symbol >= push_0, symbol - push_0, symbol)  # above the stack if it is POP
            heights = np.maximum(heights + np.where(symbol == pop, -1, 1), 0)
        places = torch.from_numpy(heights)[:, None] - 1 - torch.arange(length)
        return torch.from_numpy(stacks).gather(1, places.clamp(min=0)).masked_fill(places < 0, NO_WORD)


class ModularArithmeticBrackets(ChomskyTask):
    """Compute the value of an expression with brackets modulo 5, a context-free task. `length` counts its symbols.

    Length 6, the scored targets underlined (the answer and EOS):

        inputs   BOS ( - 2 + 4 )   SEP 2
        targets  (   - 2 + 4 ) SEP 2   EOS
                                   ‾‾‾‾‾‾‾

    ( - 2 + ( 3 * 4 ) ) → 0. Up to 4 symbols, an expression is d, -d, (d) or (-d), with a uniform digit d. Longer ones
    are ( left sign right ), where the size of the left part is uniform, and so is the sign over +, − and *.

    The score is token accuracy, see `ChomskyTask`. Train and test share no question, see `SequenceTask`.

    Source: Delétang et al. 2023, "Neural Networks and the Chomsky Hierarchy".
    """

    level = "context-free"

    def __init__(self) -> None:
        super().__init__([*RESIDUES, PLUS, MINUS, TIMES, OPEN, CLOSE])

    def draw(self, generator: torch.Generator, count: int, length: int) -> Pairs:
        expressions, values = draw_expressions(generator, count, length, signs=3)
        return Pairs(expressions, values[:, None])

    def all_examples(self, length: int) -> Pairs | None:
        listed = all_expressions(length, signs=3)
        return None if listed is None else Pairs(listed[0], listed[1][:, None])


class SolveEquation(ChomskyTask):
    """Find the digit x in an equation modulo 5, a context-free task. `length` counts the symbols of the equation, at
    least 3.

    Length 7, the scored targets underlined (the answer and EOS):

        inputs   BOS ( x - 4 ) = 2   SEP 1
        targets  (   x - 4 ) = 2 SEP 1   EOS
                                     ‾‾‾‾‾‾‾

    ( x - ( 3 + - 4 ) ) = 2 → 1. The left side is an expression as in `ModularArithmeticBrackets`, without products and
    with one digit replaced by x; the right side is its value.

    The score is token accuracy, see `ChomskyTask`. Train and test share no question, see `SequenceTask`.

    Source: Delétang et al. 2023, "Neural Networks and the Chomsky Hierarchy".
    Differs: here each digit is replaced equally often. The authors' code draws a symbol and takes the next digit from
    there, so it more often replaces digits that are preceded by brackets and signs.
    """

    level = "context-free"
    shortest = 3

    def __init__(self) -> None:
        # A product never occurs, but its word keeps the ids those of expressions.
        super().__init__([*RESIDUES, PLUS, MINUS, TIMES, OPEN, CLOSE, UNKNOWN, EQUALS])

    def draw(self, generator: torch.Generator, count: int, length: int) -> Pairs:
        expressions, values = draw_expressions(generator, count, length - 2, signs=2)
        priority = torch.rand(expressions.shape, generator=generator).masked_fill(expressions >= len(RESIDUES), -1)
        return self._equations(expressions, values, priority.argmax(1))

    def all_examples(self, length: int) -> Pairs | None:
        listed = all_expressions(length - 2, signs=2)
        if listed is None:
            return None
        expressions, values = listed
        rows, places = (expressions < len(RESIDUES)).nonzero().unbind(1)
        return self._equations(expressions[rows], values[rows], places)

    def _equations(
        self, expressions: Int[Tensor, "b e"], values: Int[Tensor, " b"], places: Int[Tensor, " b"]
    ) -> Pairs:
        unknown, equals = self.ids([UNKNOWN, EQUALS])
        left = expressions.scatter(1, places[:, None], unknown)
        right = torch.stack([torch.full_like(values, equals), values], 1)
        return Pairs(torch.cat([left, right], 1), expressions.gather(1, places[:, None]))
