"""Recall: the value of one of many keys."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.metrics import TOKEN_ACCURACY, Metric
from lengthwise.tasks.base import Baseline, Batch, GradedAnswers, exact_match, mean_over
from lengthwise.tasks.pairs import Pairs
from lengthwise.tasks.sequences import SequenceTask, combinations
from lengthwise.values import shown

MAX_WORDS = 65_536
ASK = "?"


class Recall(SequenceTask):
    """Recall the value of one key among other keys with their values. `length` counts the pairs of key and value.

    Length 3, the scored targets underlined (the value and EOS):

        inputs   BOS k7 v2 k1 v5 k4 v5 ?  k1  SEP v5
        targets  k7  v2 k1 v5 k4 v5 ?  k1 SEP v5  EOS
                                              ‾‾‾‾‾‾‾

    The keys of a question are different, and drawn uniformly from `keys` words, so a length is at most `keys`. Values
    are uniform and independent, from `values` words. `depth` is the place of the pair that is asked for, from 0 (the
    first pair) to 1 (the last one): the pair with index `depth` · (length - 1), rounded to the nearest integer, and
    halves up, so 0.5 is the later of two middle pairs. None, the default, is a random depth: every pair with equal
    probability. With a fixed depth, a model can find the pair by its position and ignore the key.

    `queries`: the number of keys that are asked for, each drawn uniformly from the pairs. With more than one, the
    answer repeats each key before its value, so a sequence has more targets to learn from. Two queries:

        inputs   BOS k7 v2 k1 v5 k4 v5 ?  k1 k7  SEP k1 v5 k7 v2
        targets  k7  v2 k1 v5 k4 v5 ?  k1 k7 SEP k1  v5 k7 v2 EOS
                                                 ‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾

    The score is exact match. With several queries it is the share of queries whose value is correct under teacher
    forcing, and exact matches of the whole answer are stored beside it. Chance is more than 1 / `values`: whoever
    answers with the most frequent value of the prompt needs neither keys nor positions, and is right in 26, 19, 15 and
    12 % of the queries with 8, 16, 32 and 64 pairs and 16 values. Models are compared with this baseline. Train and
    test share no question, see `SequenceTask`.

    Source: the associative recall of Graves et al. 2014, "Neural Turing Machines", and of Arora et al. 2023, "Zoology:
    Measuring and Improving Recall in Efficient Language Models".
    Differs: the latter asks for keys between the pairs; here all queries follow them.
    """

    version: ClassVar[int] = 2
    omitted_defaults: ClassVar[tuple[str, ...]] = ("queries",)
    unit = "pairs"

    def __init__(self, *, keys: int = 512, values: int = 64, depth: float | None = None, queries: int = 1):
        self.check({"keys": keys, "values": values, "depth": depth, "queries": queries})
        self.keys, self.values, self.depth, self.queries = keys, values, depth, queries
        super().__init__([*(f"k{n}" for n in range(keys)), *(f"v{n}" for n in range(values)), ASK])
        self.metric = self.metric_of({"queries": queries})  # type: ignore[misc]

    @classmethod
    def metric_of(cls, settings: Mapping[str, Any]) -> Metric:
        return TOKEN_ACCURACY if settings["queries"] > 1 else cls.metric

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        for name in ("keys", "values"):
            if not 2 <= settings[name] <= MAX_WORDS:
                raise ConfigError(f"Recall.{name} must be between 2 and {MAX_WORDS}, got {settings[name]}")
        depth = settings["depth"]
        if depth is not None and not 0 <= depth <= 1:
            raise ConfigError(f"Recall.depth must be between 0 (the first pair) and 1 (the last), got {shown(depth)}")
        if settings["queries"] < 1:
            raise ConfigError(f"Recall.queries must be at least 1, got {settings['queries']}")
        if depth is not None and settings["queries"] > 1:
            raise ConfigError("Recall takes a depth for one query only; omit depth or queries")
        return settings

    def check_length(self, length: int, split: str = "test") -> None:
        super().check_length(length, split)
        if length > self.keys:
            raise ConfigError(
                f"Recall has {self.keys} keys, so a question has at most {self.keys} pairs, got {length}; set keys "
                f"to {length} or more, or take shorter lengths"
            )

    def draw(self, generator: torch.Generator, count: int, length: int) -> Pairs:
        keys = torch.rand(count, self.keys, generator=generator).topk(length, 1).indices
        values = torch.randint(self.values, (count, length), generator=generator)
        indices = torch.randint(length, (count, self.queries), generator=generator)
        return self._make_pairs(
            keys, values, indices if self.depth is None else torch.full_like(indices, self._index_at_depth(length))
        )

    def all_examples(self, length: int) -> Pairs | None:
        places = range(length) if self.depth is None else [self._index_at_depth(length)]
        numbers = combinations([self.keys] * length + [self.values] * length + [len(places)] * self.queries)
        if numbers is None:
            return None
        keys, values, place = numbers[:, :length], numbers[:, length : 2 * length], numbers[:, 2 * length :]
        different = (keys.sort(1).values.diff(dim=1) != 0).all(1)
        indices = torch.tensor(list(places))[place]
        return self._make_pairs(keys[different], values[different], indices[different])

    def widths(self, length: int) -> tuple[int, int]:
        return 2 * length + 1 + self.queries, 1 if self.queries == 1 else 2 * self.queries

    def length_of(self, question: Sequence[str], answer: Sequence[str]) -> int:
        return (len(question) - 1 - self.queries) // 2

    def _index_at_depth(self, length: int) -> int:
        """Return the index of the pair at the chosen depth."""
        assert self.depth is not None
        return math.floor(self.depth * (length - 1) + 0.5 + 1e-9)  # 0.58 * 25 is 14.499999999999998

    def score(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, " b"]:
        if self.queries == 1:
            return super().score(logits, batch)
        best = logits.max(-1)
        is_value = batch.scored & (batch.targets >= self.keys) & (batch.targets < self.keys + self.values)
        share = mean_over((best.indices == batch.targets).double(), is_value)
        return share.masked_fill((best.values.isnan() & batch.scored).any(1), torch.nan)

    def further_scores(self, logits: Float[Tensor, "b t v"], batch: Batch) -> dict[str, Float[Tensor, " b"]]:
        return {} if self.queries == 1 else {"exact match": exact_match(logits, batch)}

    def grade(self, generated: list[list[str]], batch: Batch) -> GradedAnswers:
        """Grade generated answers: with several queries, by the share of values at the right places."""
        whole = super().grade(generated, batch)
        if self.queries == 1:
            return whole
        shares = [
            sum(word == correct for word, correct in zip(words[1::2], answer[1::2], strict=False)) / self.queries
            for words, (_, answer) in zip(generated, self.pairs(batch), strict=True)
        ]
        scores = torch.tensor(shares, dtype=torch.float64)
        return GradedAnswers(scores, {"exact match": whole.scores}, whole.unreadable)

    def baselines(self) -> list[Baseline]:
        frequent = Baseline(name="most frequent value", scores=self._most_frequent_value, floor=True)
        if self.queries > 1:
            return [frequent]
        others = super().baselines()  # none if a subclass has another metric
        return [*others, frequent] if others else []

    def _most_frequent_value(self, batch: Batch, lengths: Sequence[int]) -> Float[Tensor, "b 1"]:
        """Return the probability that the most frequent values of the prompt, drawn uniformly, are the answer."""
        words = 2 * lengths[0]
        values = batch.inputs[:, 2 : words + 1 : 2]  # after BOS: key, value, key, value, ...
        answers = batch.inputs[:, words + 3 + self.queries :]  # after the question mark, the keys and SEP
        answers = answers[:, :1] if self.queries == 1 else answers[:, 1 : 2 * self.queries : 2]
        count = (values[:, :, None] == values[:, None]).sum(2)  # how often each pair's value occurs
        is_most = (count == count.amax(1, keepdim=True))[:, None]
        # All pairs with one value have the same count, so the share of pairs is that of values.
        is_right = is_most & (values[:, None] == answers[:, :, None])
        return (is_right.sum(2) / is_most.sum(2)).mean(1, keepdim=True)

    def _make_pairs(self, keys: Int[Tensor, "b n"], values: Int[Tensor, "b n"], indices: Int[Tensor, "b q"]) -> Pairs:
        words = torch.stack([keys, values + self.keys], 2).flatten(1)
        mark = torch.full_like(indices[:, :1], self.keys + self.values)
        queried, answers = keys.gather(1, indices), values.gather(1, indices) + self.keys
        if self.queries > 1:
            answers = torch.stack([queried, answers], 2).flatten(1)
        return Pairs(torch.cat([words, mark, queried], 1), answers)
