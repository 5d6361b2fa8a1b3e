"""Copy: say a sequence again."""

from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.tasks.base import Batch, Task, exact_match, generator, require_length, require_split

HELD_OUT = 8  # one in so many sequences is a test example
ENUMERABLE = 4096  # up to so many sequences of a length are listed; above, both splits are never empty
FEW = 100  # a test split with fewer examples than this is worth a note
MOST_SYMBOLS = 65_536
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


class Copy(Task):
    """Copy random symbols. `length` counts the symbols to copy; the model sees 2 · length + 2 tokens.

    Length 3, the scored targets underlined (the copy and EOS):

        inputs   BOS a  b  c  SEP a  b  c
        targets  a   b  c  SEP a  b  c  EOS
                               ‾‾‾‾‾‾‾‾‾‾‾‾

    The score is exact match: 1 where the whole copy and EOS are right. Token ids: the symbols 0 ... symbols − 1, then
    BOS, SEP, EOS. Symbols are uniform and independent, except that train and test share no sequence: a sequence belongs
    to the test split if a 64-bit hash of its symbols is a multiple of 8 (1/8 of them). Where a length has so few
    sequences that a split would be empty, both draw from all of them, and `note` says so.
    """

    metric = "exact match"
    better = "higher"
    unit = "symbols"
    per_token = False

    def __init__(self, *, symbols: int = 26):
        self.check({"symbols": symbols})
        self.symbols = symbols
        self.bos, self.sep, self.eos = symbols, symbols + 1, symbols + 2
        self.vocab_size = self.output_size = symbols + 3

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        if not 2 <= settings["symbols"] <= MOST_SYMBOLS:
            raise ConfigError(f"Copy.symbols is {settings['symbols']}; it has to lie in 2 ... {MOST_SYMBOLS}")
        return settings

    def tokens(self, length: int) -> int:
        return 2 * length + 2

    def sample(self, generator: torch.Generator, batch: int, length: int, split: str = "train") -> Batch:
        self.check_length(length, split)
        pool = self._pool(length, split)
        if pool is not None:
            return self._batch(pool[torch.randint(len(pool), (batch,), generator=generator)])
        share = 1 / HELD_OUT if split == "test" else 1 - 1 / HELD_OUT
        found, missing = [], batch
        while missing > 0:
            draws = int(missing / share * 1.1) + 16
            symbols = torch.randint(self.symbols, (draws, length), generator=generator)
            fits = symbols[held_out(symbols) == (split == "test")][:missing]
            found.append(fits)
            missing -= len(fits)
        return self._batch(torch.cat(found) if found else torch.empty(0, length, dtype=torch.int64))

    def examples(self, seed: int, count: int, length: int, split: str = "test") -> Batch:
        self.check_length(length, split)
        pool = self._pool(length, split)
        if pool is None:
            return super().examples(seed, count, length, split)
        order = torch.randperm(len(pool), generator=generator(seed, split, length))
        return self._batch(pool[order[:count]])  # none twice

    def available(self, length: int, split: str = "test") -> int | None:
        self.check_length(length, split)
        pool = self._pool(length, split)
        return None if pool is None else len(pool)

    def score(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, " b"]:
        return exact_match(logits, batch)

    def render(self, batch: Batch) -> list[dict[str, Any]]:
        rows = zip(batch.inputs.tolist(), batch.targets.tolist(), batch.scored.tolist(), strict=True)
        return [
            {
                "input": " ".join(map(self._word, inputs)),
                "target": " ".join(self._word(t) if counts else "·" for t, counts in zip(targets, scored, strict=True)),
                "length": len(inputs) // 2 - 1,
            }
            for inputs, targets, scored in rows
        ]

    def check_length(self, length: int, split: str = "test") -> None:
        require_split(split)
        require_length(length, self.unit)

    def note(self, length: int) -> str | None:
        self.check_length(length)
        pool = self._pool(length, "test")
        if pool is None:
            return None
        if len(pool) == self.symbols**length:
            return (
                f"at length {length} there are only {len(pool)} sequences, too few to split: train and test share them"
            )
        return f"at length {length} there are only {len(pool)} different test examples" if len(pool) < FEW else None

    def _batch(self, symbols: Int[Tensor, "b n"]) -> Batch:
        batch, length = symbols.shape
        whole = torch.empty(batch, 2 * length + 3, dtype=torch.int64)
        whole[:, 0], whole[:, length + 1], whole[:, -1] = self.bos, self.sep, self.eos
        whole[:, 1 : length + 1] = whole[:, length + 2 : -1] = symbols
        scored = (torch.arange(2 * length + 2) > length).expand(batch, -1)
        return Batch(whole[:, :-1].contiguous(), whole[:, 1:].contiguous(), scored.contiguous())

    def _pool(self, length: int, split: str) -> Int[Tensor, "m n"] | None:
        """All sequences of a split where they can be listed; all of both splits where one would be empty."""
        if length >= ENUMERABLE.bit_length() or self.symbols**length > ENUMERABLE:
            return None
        return _listed(self.symbols, length)[SPLIT_INDEX[split]]

    def _word(self, token: int) -> str:
        if token >= self.symbols:
            return ("BOS", "SEP", "EOS")[token - self.symbols]
        return LETTERS[token] if self.symbols <= len(LETTERS) else str(token)


SPLIT_INDEX = {"train": 0, "test": 1}


@lru_cache(maxsize=64)
def _listed(symbols: int, length: int) -> tuple[Tensor, Tensor]:
    """(train, test): all sequences of a length, where there are few. Where a split would be empty, both take all."""
    every = torch.cartesian_prod(*[torch.arange(symbols)] * length).view(-1, length)
    test = held_out(every)
    return (every[~test], every[test]) if 0 < int(test.sum()) < len(every) else (every, every)


def held_out(symbols: Int[Tensor, "b n"]) -> Bool[Tensor, " b"]:
    """Which sequences belong to the test split: a multilinear 64-bit hash, mixed, is a multiple of 8."""
    value = ((symbols + 1) * _multipliers(symbols.shape[1])).sum(1)  # int64 wraps around: arithmetic modulo 2^64
    return _mix(value).bitwise_and(HELD_OUT - 1) == 0


@lru_cache(maxsize=256)
def _multipliers(length: int) -> Tensor:
    """Fixed odd pseudo-random numbers, one per place (splitmix64), so that order matters and no generator is drawn."""
    return _mix(torch.arange(1, length + 1) * _signed(0x9E3779B97F4A7C15)) | 1


def _mix(value: Tensor) -> Tensor:
    """splitmix64's finaliser: every bit of the result depends on every bit of `value`."""
    value = (value ^ _shift(value, 30)) * _signed(0xBF58476D1CE4E5B9)
    value = (value ^ _shift(value, 27)) * _signed(0x94D049BB133111EB)
    return value ^ _shift(value, 31)


def _shift(value: Tensor, bits: int) -> Tensor:
    """Logical right shift; torch's own keeps the sign."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits
