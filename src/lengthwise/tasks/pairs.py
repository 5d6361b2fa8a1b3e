"""Questions with their answers, and two ways to draw those of a split: with repeats, or distinct."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.tasks.splits import HELD_OUT, hash_words, is_test_hash
from lengthwise.user_classes import wrong_return

NO_WORD = -1  # an entry of a row without a word: padding at its end, or a gap that `pack` closes
# Drawing ends after this many draws without a new question for each question found; one is missed with chance e^-32.
PATIENCE = 32
SPARE_DRAWS = 16  # drawn in addition to the number that is expected to be needed
MAX_DRAWS = 4096  # questions to draw at once when new ones are rare; this and the next bound the memory
MAX_MISSING = 1 << 16  # questions of a kind to look for at once


@dataclass(frozen=True)
class Pairs:
    """Questions and their answers as word ids. An entry of -1 anywhere in a row means that there is no word."""

    questions: Int[Tensor, "b p"]
    answers: Int[Tensor, "b a"]

    def __len__(self) -> int:
        return len(self.questions)

    def __getitem__(self, rows: Tensor | slice) -> "Pairs":
        return Pairs(self.questions[rows], self.answers[rows])

    @staticmethod
    def join(pairs: "Sequence[Pairs]") -> "Pairs":
        return Pairs(_concatenate([p.questions for p in pairs]), _concatenate([p.answers for p in pairs]))


def require_pairs(task: Any, method: str, pairs: Any, count: int | None = None) -> None:
    """Raise `ConfigError` unless a task's method returned questions with as many answers, as ids of its words.

    `count`: how many there must be; None: any number but 0.
    """
    if not isinstance(pairs, Pairs):
        raise wrong_return(task, method, "Pairs(questions, answers)", pairs)
    count = max(1, len(pairs)) if count is None else count
    for name, ids in (("questions", pairs.questions), ("answers", pairs.answers)):
        is_integer = isinstance(ids, Tensor) and not ids.is_floating_point() and ids.dtype != torch.bool
        if not is_integer or ids.ndim != 2 or len(ids) != count:
            raise wrong_return(task, method, f"{name} as integers [count, words] with count {count}", ids)
        if ids.numel() and not NO_WORD <= int(ids.min()) <= int(ids.max()) < len(task.words):
            expected = f"{name} with word ids 0 to {len(task.words) - 1}, or -1 for no word"
            raise wrong_return(task, method, expected, f"{int(ids.min())} to {int(ids.max())}")


def draw_pairs(draw: Callable[[int], Pairs], count: int, split: str) -> Pairs:
    """Return the first `count` examples of a split that are drawn. `draw(n)` draws n of both splits together."""
    parts: list[Pairs] = []
    missing, draws = count, 0
    while not parts or missing > 0:
        pairs = draw(_draws_needed(missing, split))
        parts.append(pairs[_rows_in_split(pairs, split)[0][:missing]])
        missing -= len(parts[-1])
        draws += len(pairs)
        _require_examples(count - missing, draws, split)
    return Pairs.join(parts)


def draw_distinct(
    draw: Callable[[Int[Tensor, " b"]], Pairs], order: Int[Tensor, " k"], count: int, split: str
) -> Pairs:
    """Return `count` distinct questions of a split with their answers, equally many of each kind.

    `draw(kinds)` draws one example of each of these kinds. `order`: a permutation of all kinds; if their number does
    not divide `count`, the first ones have one example more. Drawing ends early if each question of a kind has been
    drawn 32 times on average since the last new one. Then no kind has more examples than that one. A question that is
    2.5 times rarer than the average is missed with probability 3e-6.
    """
    num_kinds = len(order)
    first = set(order[: count % num_kinds].tolist())
    quotas = [count // num_kinds + (kind in first) for kind in range(num_kinds)]
    rows: list[list[int]] = [[] for _ in range(num_kinds)]  # for each kind, the rows in all parts together
    parts: list[Pairs] = []
    seen: set[int] = set()
    repeats = [0] * num_kinds
    draws = 0
    while missing := [(kind, n) for kind in range(num_kinds) if (n := quotas[kind] - len(rows[kind])) > 0]:
        spare = -(-SPARE_DRAWS // len(missing))
        counts = [max(min(n, MAX_MISSING), min(repeats[kind], MAX_DRAWS)) for kind, n in missing]
        sizes = [_draws_needed(n, split, spare) for n in counts]
        kinds = torch.tensor([kind for kind, _ in missing]).repeat_interleave(torch.tensor(sizes))
        pairs = draw(kinds)
        in_split, hashes = _rows_in_split(pairs, split)
        start = sum(map(len, parts))
        new: list[int] = []
        for n, kind, key in zip(in_split.tolist(), kinds[in_split].tolist(), hashes.tolist(), strict=True):
            if key in seen:
                repeats[kind] += 1
            elif len(rows[kind]) < quotas[kind]:
                seen.add(key)
                repeats[kind] = 0
                rows[kind].append(start + len(new))
                new.append(n)
        parts.append(pairs[torch.tensor(new, dtype=torch.int64)])
        for kind, _ in missing:
            if repeats[kind] > PATIENCE * len(rows[kind]):
                quotas = [min(n, len(rows[kind])) for n in quotas]
        draws += len(pairs)
        _require_examples(len(seen), draws, split)
    chosen = [row for kind in range(num_kinds) for row in rows[kind][: quotas[kind]]]
    return Pairs.join(parts or [draw(order[:0])])[torch.tensor(chosen, dtype=torch.int64)]


def _rows_in_split(pairs: Pairs, split: str) -> tuple[Int[Tensor, " r"], Int[Tensor, " r"]]:
    """Return the indices of the questions that belong to a split, and their hashes."""
    hashes = hash_words(pairs.questions)
    rows = (is_test_hash(hashes) == (split == "test")).nonzero()[:, 0]
    return rows, hashes[rows]


def _require_examples(count: int, draws: int, split: str) -> None:
    """Raise `ConfigError` if many draws gave no question of a split. It has none, and drawing would never end."""
    if not count and draws >= MAX_DRAWS:
        raise ConfigError(
            f"{draws:,} questions of this length were drawn, and none belongs to the {split} split: there are too few "
            "questions for a random split; define the task's method all_examples, which lists them, or take a longer "
            "length"
        )


def _draws_needed(count: int, split: str, spare: int = SPARE_DRAWS) -> int:
    """Return how many draws from both splits contain `count` examples of this one most of the time."""
    share = 1 / HELD_OUT if split == "test" else 1 - 1 / HELD_OUT
    return int(count / share * 1.1) + spare


def _concatenate(tensors: Sequence[Tensor]) -> Tensor:
    width = max(tensor.shape[1] for tensor in tensors)
    return torch.cat(
        [torch.nn.functional.pad(tensor, (0, width - tensor.shape[1]), value=NO_WORD) for tensor in tensors]
    )


def pad_rows(rows: Sequence[Sequence[int]]) -> Int[Tensor, "b n"]:
    """Return rows of ids as one tensor, padded with -1. Its dtype is int32, because it may hold a whole data set."""
    sizes = torch.tensor([len(row) for row in rows], dtype=torch.int64)
    width = int(sizes.max()) if len(rows) else 0
    result = torch.full((len(rows), width), NO_WORD, dtype=torch.int32)
    result[torch.arange(width) < sizes[:, None]] = torch.tensor([n for row in rows for n in row], dtype=torch.int32)
    return result


def close_gaps(rows: Int[Tensor, "b w"]) -> Int[Tensor, "b v"]:
    """Move every -1 to the end of its row, keep the order of the rest, and remove columns without words."""
    is_word = rows != NO_WORD
    columns = is_word.cumsum(1)
    width = int(columns[:, -1].max()) if len(rows) else 0
    result = rows.new_full((len(rows), rows.shape[1] + 1), NO_WORD)  # column 0 takes the entries without a word
    return result.scatter_(1, columns.mul_(is_word), rows)[:, 1 : width + 1]


def digits(values: Int[Tensor, "*s"], width: int) -> Int[Tensor, "*s width"]:
    """Return the decimal digits of numbers below 10^width, units last, with -1 instead of leading zeros."""
    powers = 10 ** torch.arange(width - 1, -1, -1)
    rest = values[..., None] // powers
    return (rest % 10).masked_fill((rest == 0) & (powers > 1), NO_WORD)


def split(words: Sequence[str], separator: str) -> list[list[str]]:
    """Split a list of words at every separator."""
    groups: list[list[str]] = [[]]
    for word in words:
        if word == separator:
            groups.append([])
        else:
            groups[-1].append(word)
    return groups
