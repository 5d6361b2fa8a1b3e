"""Questions with their answers, and three ways to draw those of a split: with repeats, distinct, or balanced over kinds."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.tasks.splits import HELD_OUT, hash_words, is_test_hash
from lengthwise.user_classes import wrong_return

NO_WORD = -1  # an entry of a row without a word: padding at its end, or a gap that `pack` closes
CHUNK = 640  # drawn questions are built and hashed this many at a time, so that they fit into a CPU cache
# Drawing ends after this many draws without a new question for each question found; one is missed with chance e^-32.
PATIENCE = 32
SPARE_DRAWS = 16  # drawn in addition to the number that is expected to be needed
MAX_DRAWS = 4096  # questions to draw at once when new ones are rare; bounds the memory


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
    def join(pairs: "Sequence[Pairs | LazyPairs]") -> "Pairs":
        return Pairs(_concatenate([p.questions for p in pairs]), _concatenate([p.answers for p in pairs]))


@dataclass(frozen=True)
class LazyPairs:
    """Examples as random numbers, from which questions and answers are computed on demand.

    Each example is one row of every tensor in `rows`. Seven of eight questions that are drawn for a test are discarded,
    because they belong to training; no answers are computed for these.
    """

    rows: tuple[Tensor, ...]
    question: Callable[..., Tensor]  # rows -> word ids
    answer: Callable[..., Tensor]

    def __len__(self) -> int:
        return len(self.rows[0])

    def __getitem__(self, indices: Tensor | slice) -> "LazyPairs":
        return LazyPairs(tuple(row[indices] for row in self.rows), self.question, self.answer)

    @property
    def questions(self) -> Int[Tensor, "b p"]:
        return self.question(*self.rows)

    @property
    def answers(self) -> Int[Tensor, "b a"]:
        return self.answer(*self.rows)

    def compute(self) -> Pairs:
        return Pairs(self.questions, self.answers)


def require_pairs(task: Any, method: str, pairs: Any, count: int | None = None) -> None:
    """Raise `ConfigError` unless a task's method returned questions with as many answers, as ids of its words.

    `count`: how many there must be; None: any number but 0.
    """
    if not isinstance(pairs, (Pairs, LazyPairs)):
        raise wrong_return(task, method, "Pairs(questions, answers)", pairs)
    count = max(1, len(pairs)) if count is None else count
    for name, ids in (("questions", pairs.questions), ("answers", pairs.answers)):
        is_integer = isinstance(ids, Tensor) and not ids.is_floating_point() and ids.dtype != torch.bool
        if not is_integer or ids.ndim != 2 or len(ids) != count:
            raise wrong_return(task, method, f"{name} as integers [count, words] with count {count}", ids)
        if ids.numel() and not NO_WORD <= int(ids.min()) <= int(ids.max()) < len(task.words):
            expected = f"{name} with word ids 0 to {len(task.words) - 1}, or -1 for no word"
            raise wrong_return(task, method, expected, f"{int(ids.min())} to {int(ids.max())}")


def draw_pairs(draw: Callable[[int], Pairs | LazyPairs], count: int, split: str, *, distinct: bool) -> Pairs:
    """Return the first `count` questions of a split that are drawn, with their answers. `draw(n)` draws n of both
    splits together.

    `distinct`: without those that were drawn before. Then fewer are returned if there are no others: drawing ends when
    each question found has been drawn 32 times on average since the last new one. A question that is 2.5 times rarer
    than the average is missed with probability 3e-6.
    """
    chunks: list[Pairs | LazyPairs] = []
    seen: set[int] = set()
    missing, repeats, draws = count, 0, 0
    while not chunks or (missing > 0 and repeats <= PATIENCE * len(seen)):
        pairs = draw(_draws_needed(max(missing, min(repeats, MAX_DRAWS)), split))
        draws += len(pairs)
        for chunk in _chunks(pairs, split):
            new = _first_occurrences(chunk.hashes, seen) if distinct else list(range(len(chunk.hashes)))
            repeats = len(chunk.hashes) - 1 - new[-1] if new else repeats + len(chunk.hashes)
            chunks.append(chunk.select(chunk.in_split[new[:missing]]))
            missing -= len(chunks[-1])
            if not missing:
                break
        _require_questions(count - missing, draws, split)
    return Pairs.join(chunks)


def _require_questions(count: int, draws: int, split: str) -> None:
    """Raise `ConfigError` if many draws gave no question of a split. It has none, and drawing would never end."""
    if not count and draws >= MAX_DRAWS:
        raise ConfigError(
            f"{draws:,} questions of this length were drawn, and none belongs to the {split} split: there are too few "
            "questions for a random split; define the task's method all_examples, which lists them, or take a longer "
            "length"
        )


def draw_balanced(
    draw: Callable[[Int[Tensor, " b"]], Pairs | LazyPairs], order: Int[Tensor, " k"], count: int, split: str
) -> Pairs:
    """Return `count` distinct questions of a split with their answers, equally many of each kind.

    `draw(kinds)` draws one example of each of these kinds. `order`: a permutation of all kinds; if their number does
    not divide `count`, the first ones have one example more. Fewer are returned if a kind runs out (see `draw_pairs`);
    then no kind has more examples than that one. Every kind must have at least one.
    """
    num_kinds = len(order)
    first = set(order[: count % num_kinds].tolist())
    quotas = [count // num_kinds + (kind in first) for kind in range(num_kinds)]
    rows: list[list[tuple[int, int]]] = [[] for _ in range(num_kinds)]  # for each kind: (part, row in that part)
    chunks: list[Pairs] = []
    seen: set[int] = set()
    repeats = [0] * num_kinds
    while missing := [(kind, n) for kind in range(num_kinds) if (n := quotas[kind] - len(rows[kind])) > 0]:
        spare = -(-SPARE_DRAWS // len(missing))
        sizes = [_draws_needed(min(max(n, repeats[kind]), MAX_DRAWS), split, spare) for kind, n in missing]
        kinds = torch.tensor([kind for kind, _ in missing]).repeat_interleave(torch.tensor(sizes))
        for chunk, chunk_kinds in zip(_chunks(draw(kinds), split), kinds.split(CHUNK), strict=True):
            new: list[int] = []
            for n, kind, key in zip(
                chunk.in_split.tolist(), chunk_kinds[chunk.in_split].tolist(), chunk.hashes, strict=True
            ):
                if key in seen:
                    repeats[kind] += 1
                elif len(rows[kind]) < quotas[kind]:
                    seen.add(key)
                    repeats[kind] = 0
                    rows[kind].append((len(chunks), len(new)))
                    new.append(n)
            chunks.append(chunk.select(torch.tensor(new, dtype=torch.int64)))
        for kind, _ in missing:
            if repeats[kind] > PATIENCE * len(rows[kind]):
                quotas = [min(n, len(rows[kind])) for n in quotas]
    starts = [0, *itertools.accumulate(map(len, chunks))]
    chosen = [starts[chunk_number] + n for kind in range(num_kinds) for chunk_number, n in rows[kind][: quotas[kind]]]
    return Pairs.join(chunks or [draw(order[:0])])[torch.tensor(chosen, dtype=torch.int64)]


class _Chunk:
    """Drawn questions, few enough to fit into a CPU cache: the rows that belong to a split, and the hashes of these."""

    def __init__(self, pairs: Pairs | LazyPairs, split: str):
        self.pairs, self.questions = pairs, pairs.questions
        hashes = hash_words(self.questions)
        self.in_split = (is_test_hash(hashes) == (split == "test")).nonzero()[:, 0]
        self.hashes = hashes[self.in_split].tolist()

    def select(self, rows: Tensor) -> Pairs:
        return Pairs(self.questions[rows], self.pairs[rows].answers)


def _chunks(pairs: Pairs | LazyPairs, split: str) -> Iterator[_Chunk]:
    return (_Chunk(pairs[n : n + CHUNK], split) for n in range(0, len(pairs), CHUNK))


def _first_occurrences(keys: Sequence[int], seen: set[int]) -> list[int]:
    """Return the indices of keys that are not in `seen` yet, and add these keys to it."""
    indices = []
    for index, key in enumerate(keys):
        if key not in seen:
            seen.add(key)
            indices.append(index)
    return indices


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
    """Move every -1 to the end of its row and keep the order of the rest. The result is as wide as the longest row then
    is.
    """
    is_word = rows != NO_WORD
    columns = is_word.cumsum(1)
    width = int(columns[:, -1].max()) if len(rows) else 0
    result = rows.new_full((len(rows), rows.shape[1] + 1), NO_WORD)  # column 0 takes the entries without a word
    return result.scatter_(1, columns.mul_(is_word), rows)[:, 1 : width + 1]


def digits(values: Int[Tensor, "*s"], width: int) -> Int[Tensor, "*s width"]:
    """Return the decimal digits of numbers from 0 to 10^width − 1, units last, with -1 instead of leading zeros; 0 is
    one digit.
    """
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
