"""Tasks whose questions are a given set: so many of each length, the short ones to train on."""

from collections.abc import Mapping, Sequence

import torch

from lengthwise.config import ConfigError
from lengthwise.tasks.base import Batch, generator, require_length, require_split
from lengthwise.tasks.order import shuffled
from lengthwise.tasks.pairs import Pairs
from lengthwise.tasks.sequences import SequenceTask


class GivenSet(SequenceTask):
    """A task of words whose questions are a given set. A subclass says `every` one of a length, and how many there are.

    sizes: length -> questions of that length; lengths without questions are not in it.
    trained: the longest length to train on. Up to it a hash of the question holds one in 8 out, to test at the lengths that
    were trained (`held_out` false: none, and there are no tests at those lengths); all that are longer are test questions. Where
    a trained length has so few questions that the hash would leave one side empty, both have all of them (see `SequenceTask`).

    A training step draws its examples uniformly from all training examples between the shortest and the longest length
    asked for, so lengths are as frequent as the set has them, and a batch has several.
    """

    def __init__(self, words: Sequence[str], sizes: Mapping[int, int], trained: int, held_out: bool = True):
        super().__init__(words)
        self.sizes, self.trained, self.held_out = dict(sorted(sizes.items())), trained, held_out
        self._between: tuple[int, int, Pairs] | None = None  # what training_batch draws from

    def lengths(self) -> Sequence[int]:
        return list(self.sizes)

    def draw(self, generator: torch.Generator, count: int, length: int) -> Pairs:
        every = self.every(length)
        assert every is not None, "a given set lists every question"
        return every[torch.randint(len(every), (count,), generator=generator)]

    def divided(self, every: Pairs, length: int) -> tuple[Pairs, Pairs, bool]:
        if length > self.trained:
            return every[:0], every, False
        if not self.held_out:
            return every, every[:0], False
        return super().divided(every, length)

    def require_examples(self, length: int) -> None:
        self.check_length(length, "train" if length <= self.trained else "test")

    def training_batch(
        self, generator: torch.Generator, batch: int, shortest: int, longest: int, *, dims: int | None = None
    ) -> Batch:
        """A training step's examples: uniformly from all training examples of `shortest ... longest`, several lengths at once."""
        pool = self._training(shortest, longest)
        return self.pack(pool[torch.randint(len(pool), (batch,), generator=generator)])

    def fixed_examples(self, seed: int, numbers: Sequence[int], shortest: int, longest: int) -> Batch:
        """The set's own training examples of `shortest ... longest`, each under one number, in an order that `seed` decides.

        `ConfigError` for a number that is beyond them.
        """
        pool = self._training(shortest, longest)
        if numbers and max(numbers) >= len(pool):
            raise ConfigError(
                f"{type(self).__name__} has {len(pool):,} training examples of {shortest} to {longest} {self.unit}; a fixed set "
                "has at most so many"
            )
        return self.pack(pool[shuffled(torch.tensor(numbers), len(pool), generator(seed, "fixed"))])

    def check_length(self, length: int, split: str = "test") -> None:
        require_split(split)
        require_length(length, self.unit)
        name = type(self).__name__
        if length not in self.sizes:
            near = [n for n in (self._below(length), self._above(length)) if n is not None]
            raise ConfigError(
                f"{name} has no example of {length} {self.unit}; the nearest {'lengths' if len(near) > 1 else 'length'} "
                f"with examples {'are' if len(near) > 1 else 'is'} {' and '.join(map(str, near))}"
            )
        if split == "test" and length <= self.trained and not self.held_out:
            raise ConfigError(
                f"{name} trains on every example of up to {self.trained} {self.unit} in this split, and {length} are no test; give "
                f"at least {self._above(self.trained)}, or take a split that holds some out"
            )
        if split == "train" and length > self.trained:
            raise ConfigError(
                f"{name} trains on up to {self.trained} {self.unit}, and {length} are for tests; give at most {self.trained}"
            )

    def _below(self, length: int) -> int | None:
        return max((n for n in self.sizes if n < length), default=None)

    def _above(self, length: int) -> int | None:
        return min((n for n in self.sizes if n > length), default=None)

    def _training(self, shortest: int, longest: int) -> Pairs:
        if self._between is None or self._between[:2] != (shortest, longest):
            for length in {shortest, longest}:
                self.check_length(length, "train")
            pools = [self._pool(n, "train")[0] for n in self.sizes if shortest <= n <= longest]
            self._between = shortest, longest, Pairs.join([pool for pool in pools if pool is not None])
        return self._between[2]
