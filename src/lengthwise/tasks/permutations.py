"""Permutations: the product of a sequence of permutations, a test of tracking a state."""

import itertools
from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.tasks.base import Baseline, Batch
from lengthwise.tasks.pairs import Pairs
from lengthwise.tasks.sequences import SequenceTask, combinations

MOST_ELEMENTS = 6  # 720 permutations


class Permutations(SequenceTask):
    """Multiply permutations of a few elements. `length` counts the permutations.

    Length 3 with `elements=3`, the scored targets underlined (the product and EOS):

        inputs   BOS 213 132 312 SEP 123
        targets  213 132 312 SEP 123 EOS
                                 ‾‾‾‾‾‾‾

    Each permutation is one word: 312 puts 3 in place 1, 1 in place 2 and 2 in place 3. The product applies them from
    left to right to the arrangement 1 2 3 ...: a permutation w makes the arrangement a into a_w1 a_w2 a_w3. In the
    example, 213 gives 2 1 3, then 132 gives 2 3 1, and 312 gives 1 2 3.

    `moves`: `all` permutations with equal probability, or `swaps` of two neighbours only. `answer`: the product
    (`last`), or the arrangements after each permutation (`all`), which shows the model every step.

    The score is exact match. With `answer=last` and `moves=all`, chance is 1 / (number of permutations). With
    `moves=swaps` it is more, because the product of an even number of swaps is even, and few swaps lead to few
    products: the likeliest product of 4, 8, 16 and 32 swaps of 5 elements has the probabilities 0.133, 0.065, 0.032 and
    0.019. Models are compared with it. No circuit of constant depth tracks five elements or more (their group is not
    solvable) unless TC0 = NC1, so a fixed number of layers should fail at some length. Train and test share no
    question, see `SequenceTask`.

    Source: the word problem of S5 in Merrill, Petty and Sabharwal 2024, "The Illusion of State in State-Space Models".
    Differs: the source scores the product after every permutation, in place.
    """

    unit = "permutations"

    def __init__(
        self, *, elements: int = 5, moves: Literal["all", "swaps"] = "all", answer: Literal["last", "all"] = "last"
    ):
        self.check({"elements": elements})
        self.elements, self.moves, self.answer = elements, moves, answer
        arrangements = list(itertools.permutations(range(elements)))
        super().__init__(["".join(str(n + 1) for n in arrangement) for arrangement in arrangements])
        self._arrangements = torch.tensor(arrangements)
        swaps = [n for n, arrangement in enumerate(arrangements) if _is_swap(arrangement)]
        self._moves = torch.tensor(swaps if moves == "swaps" else list(range(len(arrangements))))
        self._number = {arrangement: n for n, arrangement in enumerate(arrangements)}
        # The word of every product: row = the arrangement so far, column = the permutation that is applied to it.
        products = self._arrangements[:, self._arrangements]  # [so far, move, place]
        self._product = torch.tensor([[self._number[tuple(row)] for row in moved] for moved in products.tolist()])

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        if not 2 <= settings["elements"] <= MOST_ELEMENTS:
            raise ConfigError(
                f"Permutations.elements must be between 2 and {MOST_ELEMENTS}, because each permutation is a word, got "
                f"{settings['elements']}"
            )
        return settings

    def draw(self, generator: torch.Generator, count: int, length: int) -> Pairs:
        return self._make_pairs(self._moves[torch.randint(len(self._moves), (count, length), generator=generator)])

    def all_examples(self, length: int) -> Pairs | None:
        numbers = combinations([len(self._moves)] * length)
        return None if numbers is None else self._make_pairs(self._moves[numbers])

    def widths(self, length: int) -> tuple[int, int]:
        return length, length if self.answer == "all" else 1

    def length_of(self, question: Sequence[str], answer: Sequence[str]) -> int:
        return len(question)

    def baselines(self) -> list[Baseline]:
        others = super().baselines()  # none if a subclass has another metric
        if not others or self.moves == "all" or self.answer == "all":  # of all moves, all products are equally likely
            return others
        return [*others, Baseline(name="likeliest product", scores=self._likeliest_product, floor=True)]

    def _likeliest_product(self, batch: Batch, lengths: Sequence[int]) -> Float[Tensor, "b 1"]:
        """Return 1 for each example whose answer is the product with the largest probability at this length, else 0."""
        probability = torch.zeros(len(self._arrangements), dtype=torch.float64)
        probability[0] = 1.0
        for _ in range(lengths[0]):
            after = torch.zeros_like(probability)
            for move in self._moves:
                after.index_add_(0, self._product[:, move], probability / len(self._moves))
            probability = after
        answer = batch.inputs[:, lengths[0] + 2]  # after BOS, the permutations and SEP
        return (answer == probability.argmax()).double()[:, None]

    def _make_pairs(self, moves: Int[Tensor, "b n"]) -> Pairs:
        so_far = torch.zeros(len(moves), dtype=torch.int64)  # 0 is the arrangement 1 2 3 ...
        steps = [so_far := self._product[so_far, moves[:, n]] for n in range(moves.shape[1])]
        return Pairs(moves, torch.stack(steps if self.answer == "all" else steps[-1:], 1))


def _is_swap(arrangement: tuple[int, ...]) -> bool:
    """Whether a permutation swaps two neighbours and nothing else."""
    moved = [place for place, n in enumerate(arrangement) if n != place]
    return len(moved) == 2 and moved[1] == moved[0] + 1
