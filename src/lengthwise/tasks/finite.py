"""Tasks with a finite set of questions: a fixed number of each length, of which the short ones are for training."""

from collections.abc import Mapping, Sequence

import torch

from lengthwise.config import ConfigError
from lengthwise.tasks.base import Batch, generator
from lengthwise.tasks.pairs import Pairs
from lengthwise.tasks.sequences import SequenceTask
from lengthwise.tasks.splits import shuffled


class FiniteTask(SequenceTask):
    """A task in words with a finite set of questions. A subclass defines `all_examples`, which lists those of one
    length.

    `sizes`: number of questions by length; lengths without questions are not in it.
    `longest_trained`: the longest length for training. Longer questions are all for testing. Up to it, one question in
    8 is held out by its hash for tests at trained lengths (with `held_out=False` none is, and there are no such tests).
    If a trained length has so few questions that one split would be empty, both contain all of them (see
    `SequenceTask`).

    A training step draws its examples uniformly from all training examples between the shortest and the longest length
    requested. So each length is as frequent as in the set, and a batch mixes lengths.
    """

    def __init__(self, words: Sequence[str], sizes: Mapping[int, int], longest_trained: int, held_out: bool = True):
        super().__init__(words)
        self.sizes, self.longest_trained, self.held_out = dict(sorted(sizes.items())), longest_trained, held_out
        self._training_pool: tuple[int, int, Pairs] | None = None  # shortest, longest, and the examples between them

    def lengths(self) -> Sequence[int]:
        return list(self.sizes)

    def draw(self, generator: torch.Generator, count: int, length: int) -> Pairs:
        examples = self.all_examples(length)
        assert examples is not None, "a finite set lists every question"
        return examples[torch.randint(len(examples), (count,), generator=generator)]

    def split_examples(self, examples: Pairs, length: int) -> dict[str, Pairs]:
        if length > self.longest_trained:
            return {"train": examples[:0], "test": examples}
        if not self.held_out:
            return {"train": examples, "test": examples[:0]}
        return super().split_examples(examples, length)

    def require_examples(self, length: int) -> None:
        self.check_length(length, "train" if length <= self.longest_trained else "test")

    def training_batch(
        self, generator: torch.Generator, batch: int, shortest: int, longest: int, *, dims: int | None = None
    ) -> Batch:
        """Draw examples uniformly from all training examples of `shortest ... longest`, in mixed lengths."""
        pool = self.training_examples(shortest, longest)
        return self.pack(pool[torch.randint(len(pool), (batch,), generator=generator)])

    def fixed_examples(self, seed: int, numbers: Sequence[int], shortest: int, longest: int) -> Batch:
        """Return the set's training examples of `shortest ... longest`, each under one number, in an order that `seed`
        decides.

        Raises `ConfigError` for a number beyond the size of the set.
        """
        pool = self.training_examples(shortest, longest)
        if numbers and max(numbers) >= len(pool):
            raise ConfigError(
                f"train_examples must be at most {len(pool):,}, got {max(numbers) + 1:,}: {type(self).__name__} has no "
                f"more training examples of {shortest} to {longest} {self.unit}"
            )
        return self.pack(pool[shuffled(torch.tensor(numbers), len(pool), generator(seed, "fixed"))])

    def check_length(self, length: int, split: str = "test") -> None:
        super().check_length(length, split)
        name = type(self).__name__
        if length not in self.sizes:
            near = [*[n for n in self.sizes if n < length][-1:], *[n for n in self.sizes if n > length][:1]]
            nearest = "lengths with examples are" if len(near) > 1 else "length with examples is"
            raise ConfigError(
                f"{name} has no example of {length} {self.unit}; the nearest {nearest} {' and '.join(map(str, near))}"
            )
        if split == "test" and length <= self.longest_trained and not self.held_out:
            raise ConfigError(
                f"{name} with this split trains on every example of up to {self.longest_trained} {self.unit}, so it "
                f"has no test of {length}; take at least {min(n for n in self.sizes if n > self.longest_trained)}, or "
                "a split that holds some out"
            )
        if split == "train" and length > self.longest_trained:
            raise ConfigError(
                f"training length must be at most {self.longest_trained} {self.unit} for {name}, got {length}; longer "
                "examples are for tests"
            )

    def training_examples(self, shortest: int, longest: int) -> Pairs:
        if self._training_pool is None or self._training_pool[:2] != (shortest, longest):
            for length in {shortest, longest}:
                self.check_length(length, "train")
            pools = [pools["train"] for n in self.sizes if shortest <= n <= longest and (pools := self._pools(n))]
            self._training_pool = shortest, longest, Pairs.join(pools)
        return self._training_pool[2]
