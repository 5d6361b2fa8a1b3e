"""Questions with their answers, and how those of one split are drawn: with repeats, without, or as many of each kind."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.tasks.splits import HELD_OUT, hashed, held_out, of_test

NOTHING = -1  # a place of a row that holds no word: at its end, or a gap that `pack` closes
AT_ONCE = 640  # questions that are drawn are written and hashed so many at a time, which a processor's cache holds
# After so many draws in vain for each question that was found, there is no other: one is missed with chance e^-32.
ENOUGH = 32
RESERVE = 16  # draws more than are expected to be needed
MOST_IN_VAIN = 4096  # questions that are drawn at once where hardly a new one comes: a bound on memory


@dataclass(frozen=True)
class Pairs:
    """Questions and their answers as ids of words; where a row has a -1 it has no word, wherever that is."""

    questions: Int[Tensor, "b p"]
    answers: Int[Tensor, "b a"]

    def __len__(self) -> int:
        return len(self.questions)

    def __getitem__(self, which: Tensor | slice) -> "Pairs":
        return Pairs(self.questions[which], self.answers[which])

    @staticmethod
    def join(parts: "Sequence[Pairs | Draft]") -> "Pairs":
        return Pairs(_stacked([p.questions for p in parts]), _stacked([p.answers for p in parts]))


@dataclass(frozen=True)
class Draft:
    """Examples that are drawn and not written yet: one row of each tensor, and the words that follow from some rows.

    Of eight questions that are drawn for a test seven are thrown away again: those get no answers.
    """

    rows: tuple[Tensor, ...]
    question: Callable[..., Tensor]  # rows -> ids of words
    answer: Callable[..., Tensor]

    def __len__(self) -> int:
        return len(self.rows[0])

    def __getitem__(self, which: Tensor | slice) -> "Draft":
        return Draft(tuple(row[which] for row in self.rows), self.question, self.answer)

    @property
    def questions(self) -> Int[Tensor, "b p"]:
        return self.question(*self.rows)

    @property
    def answers(self) -> Int[Tensor, "b a"]:
        return self.answer(*self.rows)

    def write(self) -> Pairs:
        return Pairs(self.questions, self.answers)


def drawn(draw: Callable[[int], Pairs | Draft], count: int, split: str) -> Pairs:
    """`count` examples of a split, from a function that draws so many of both."""
    found: list[Pairs | Draft] = [draw(0)]
    missing, draws = count, 0
    while missing > 0:
        many = draw(_enough(missing, split))
        draws += len(many)
        for part in (many[n : n + AT_ONCE] for n in range(0, len(many), AT_ONCE)):
            asked = part.questions
            kept = (held_out(asked) == (split == "test")).nonzero()[:missing, 0]
            found.append(Pairs(asked[kept], part[kept].answers))
            missing -= len(kept)
            if not missing:
                break
        _require_some(count - missing, draws, split)
    return Pairs.join(found)


def different(draw: Callable[[int], Pairs | Draft], count: int, split: str) -> Pairs:
    """The first `count` different questions of a split that are drawn, with their answers; where none repeats, those of
    `drawn`.

    Fewer where there are no others: after so many draws that each question found has come 32 times on average since the last
    new one. What comes 2.5 times more rarely than the average is missed with a chance of 3e-6.
    """
    found: list[Pairs | Draft] = [draw(0)]
    seen: set[int] = set()
    missing, in_vain, draws = count, 0, 0
    while missing > 0 and in_vain <= ENOUGH * len(seen):
        many = draw(_enough(max(missing, min(in_vain, MOST_IN_VAIN)), split))
        draws += len(many)
        for part in (many[n : n + AT_ONCE] for n in range(0, len(many), AT_ONCE)):
            asked = part.questions
            hashes = hashed(asked)
            own = (of_test(hashes) == (split == "test")).nonzero()[:, 0]
            new = _first(hashes[own].tolist(), seen)
            in_vain = len(own) - 1 - new[-1] if new else in_vain + len(own)
            kept = own[new[:missing]]
            found.append(Pairs(asked[kept], part[kept].answers))
            missing -= len(kept)
            if not missing:
                break
        _require_some(len(seen), draws, split)
    return Pairs.join(found)


def _require_some(found: int, draws: int, split: str) -> None:
    """Raise `ConfigError` where so many draws held no question of a split: it has none, and drawing would never end."""
    if not found and draws >= MOST_IN_VAIN:
        raise ConfigError(
            f"{draws:,} questions of this length were drawn, and none belongs to the {split} split: they are too few to be "
            "split by chance; define the task's method `every`, which lists them, or ask for a longer length"
        )


def balanced(
    draw: Callable[[Int[Tensor, " b"]], Pairs | Draft], order: Int[Tensor, " k"], count: int, split: str
) -> Pairs:
    """`count` different questions of a split with their answers, as many of each kind, from a function that draws one of every kind
    that it is given. Where the number of kinds does not divide the count, those in front of the `order` have one more.

    Fewer where a kind runs out, as in `different`: then no kind has more than that one. Every kind has to have some.
    """
    kinds = len(order)
    first = set(order[: count % kinds].tolist())
    wanted = [count // kinds + (kind in first) for kind in range(kinds)]
    rows: list[list[tuple[int, int]]] = [[] for _ in range(kinds)]  # of each kind: which part, and where in it
    parts: list[Pairs] = []
    seen: set[int] = set()
    in_vain = [0] * kinds
    while missing := [(kind, n) for kind in range(kinds) if (n := wanted[kind] - len(rows[kind])) > 0]:
        spare = -(-RESERVE // len(missing))
        sizes = [_enough(min(max(n, in_vain[kind]), MOST_IN_VAIN), split, spare) for kind, n in missing]
        drawn_kinds = torch.tensor([kind for kind, _ in missing]).repeat_interleave(torch.tensor(sizes))
        many = draw(drawn_kinds)
        for start in range(0, len(many), AT_ONCE):
            part, own_kinds = many[start : start + AT_ONCE], drawn_kinds[start : start + AT_ONCE].tolist()
            asked = part.questions
            hashes = hashed(asked)
            own = (of_test(hashes) == (split == "test")).nonzero()[:, 0]
            kept: list[int] = []
            for n, key in zip(own.tolist(), hashes[own].tolist(), strict=True):
                kind = own_kinds[n]
                if key in seen:
                    in_vain[kind] += 1
                elif len(rows[kind]) < wanted[kind]:
                    seen.add(key)
                    in_vain[kind] = 0
                    rows[kind].append((len(parts), len(kept)))
                    kept.append(n)
            places = torch.tensor(kept, dtype=torch.int64)
            parts.append(Pairs(asked[places], part[places].answers))
        for kind, _ in missing:
            if in_vain[kind] > ENOUGH * len(rows[kind]):
                wanted = [min(n, len(rows[kind])) for n in wanted]
    begins = [0, *itertools.accumulate(map(len, parts))]
    chosen = [begins[part] + n for kind in range(kinds) for part, n in rows[kind][: wanted[kind]]]
    return Pairs.join([draw(order[:0]), *parts])[torch.tensor(chosen, dtype=torch.int64)]


def _first(keys: Sequence[int], seen: set[int]) -> list[int]:
    """The places of those that were not `seen` before, which then holds them."""
    places = []
    for place, key in enumerate(keys):
        if key not in seen:
            seen.add(key)
            places.append(place)
    return places


def _enough(count: int, split: str, spare: int = RESERVE) -> int:
    """So many draws of both splits hold `count` of this one, most of the time."""
    share = 1 / HELD_OUT if split == "test" else 1 - 1 / HELD_OUT
    return int(count / share * 1.1) + spare


def _stacked(rows: Sequence[Tensor]) -> Tensor:
    width = max(part.shape[1] for part in rows)
    return torch.cat([torch.nn.functional.pad(part, (0, width - part.shape[1]), value=NOTHING) for part in rows])
