"""Tasks of words: a question, and the answer that follows it; one token per word, so that every text round-trips."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.config import ConfigError, near_miss
from lengthwise.tasks.base import AnsweringTask, Batch, Graded, exact_match, generator, require_length, require_split
from lengthwise.tasks.splits import HELD_OUT, hashed, held_out, of_test

NOTHING = -1  # a place of a row that holds no word: at its end, or a gap that `pack` closes
AT_ONCE = 640  # questions that are drawn are written and hashed so many at a time, which a processor's cache holds
ENUMERABLE = 4096  # up to so many questions of a length are listed; above, both splits are never empty
# After so many draws in vain for each question that was found, there is no other: one is missed with chance e^-32.
ENOUGH = 32
MOST_IN_VAIN = 4096  # questions that are drawn at once where hardly a new one comes: a bound on memory
FEW = 100  # a test split with fewer examples than this is worth a note
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
DIGITS = "0123456789"
SPECIAL = ("[BOS]", "[SEP]")  # how tokens that belong in no answer are shown when a model says them
UNENDED = "[...]"  # after an answer that did not end


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


class SequenceTask(AnsweringTask):
    """Answer a question of words. A subclass says which `words` there are, and draws questions with their answers.

        inputs   BOS question SEP answer
        targets  question SEP answer EOS

    The answer and EOS are scored; shorter examples of a batch are filled up with EOS, which is not scored. The score is
    exact match: 1 where all of the answer and EOS are right. Token ids: the words in their order, then BOS, SEP, EOS.

    Train and test share no question: a question belongs to the test split if a 64-bit hash of its words is a multiple of 8
    (1/8 of them). Where a length has so few questions that a split would be empty, both draw from all of them, and `note`
    says so.
    """

    metric = "exact match"
    better = "higher"
    per_token = False
    separator: ClassVar[str] = ""  # between question and answer in the published text
    digit_tokens: tuple[int, ...] = ()  # the ids of digits that make up numbers, for layouts that look for them

    def __init__(self, words: Sequence[str]):
        self.words = tuple(words)
        assert len(set(self.words)) == len(self.words), "a word is one token"
        self.bos, self.sep, self.eos = range(len(self.words), len(self.words) + 3)
        self.vocab_size = self.output_size = len(self.words) + 3
        self._id = {word: n for n, word in enumerate(self.words)}
        self._pools: dict[int, tuple[Pairs, Pairs, bool] | None] = {}  # by length

    # ---- what a subclass says ----------------------------------------------------------------------------------

    @abstractmethod
    def draw(self, generator: torch.Generator, count: int, length: int) -> Pairs | Draft:
        """`count` independent examples of exactly that length, whichever split they belong to."""

    def every(self, length: int) -> Pairs | None:
        """All different questions of a length, each once, with their answers, where there are at most ENUMERABLE.

        None: there are more. (Both splits are then taken not to be empty.)
        """
        return None

    @abstractmethod
    def widths(self, length: int) -> tuple[int, int]:
        """The most words that a question and an answer of that length can have."""

    @abstractmethod
    def length_of(self, question: Sequence[str], answer: Sequence[str]) -> int:
        """The length of an example, from its words."""

    def published(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        """The example as the text (prompt, target) of the published study, spaces and all; `separator` comes between.

        Where no study has published the task: its words with spaces between them.
        """
        return f"{' '.join(question)} ", " ".join(answer)

    def lengths(self) -> Sequence[int] | None:
        """All lengths that have examples, where the task is a given set; None: any length may be asked for."""
        return None

    def divided(self, every: Pairs, length: int) -> tuple[Pairs, Pairs, bool]:
        """All examples of a length as a train and a test split, and whether both are all of them, since one would be empty."""
        return _split(every)

    def require_examples(self, length: int) -> None:
        """`ConfigError` for a length of which no split has examples."""
        self.check_length(length)

    # ---- what follows from it ----------------------------------------------------------------------------------

    def tokens(self, length: int) -> int:
        return sum(self.widths(length)) + 2

    def sample(self, generator: torch.Generator, batch: int, length: int, split: str = "train") -> Batch:
        self.check_length(length, split)
        pool, _ = self._pool(length, split)
        if pool is not None:
            return self.pack(pool[torch.randint(len(pool), (batch,), generator=generator)])
        return self.pack(drawn(lambda count: self.draw(generator, count, length), batch, split))

    def examples(self, seed: int, count: int, length: int, split: str = "test") -> Batch:
        self.check_length(length, split)
        pool, _ = self._pool(length, split)
        draws = generator(seed, split, length)
        if pool is None:
            return self.pack(different(lambda n: self.draw(draws, n, length), count, split))
        return self.pack(pool[torch.randperm(len(pool), generator=draws)[:count]])  # none twice

    def available(self, length: int, split: str = "test") -> int | None:
        """How many different examples there are; None: their questions are too many to list (more than ENUMERABLE in both
        splits), and `examples` finds out by drawing whether there are as many as are asked for."""
        self.check_length(length, split)
        pool, _ = self._pool(length, split)
        return None if pool is None else len(pool)

    def whole(self, length: int) -> dict[str, Pairs]:
        """All examples of a length, each once, by the split that they belong to: "train", "test", or "train and test".

        `ConfigError` where there are more than are listed.
        """
        self.require_examples(length)
        train, shared = self._pool(length, "train")
        test, _ = self._pool(length, "test")
        if train is None or test is None:
            raise ConfigError(
                f"{type(self).__name__} has too many questions of {length} {self.unit} to list them all "
                f"(more than {ENUMERABLE}); ask for a shorter length, or for some of them"
            )
        if shared:
            return {"train and test": test}
        return {split: pairs for split, pairs in (("train", train), ("test", test)) if len(pairs)}

    def score(self, logits: Tensor, batch: Batch) -> Tensor:
        return exact_match(logits, batch)

    def answer_tokens(self, length: int) -> int:
        return self.tokens(length) - 1 - self.widths(length)[0]

    @property
    def stop(self) -> int:
        return self.eos

    def said(self, tokens: Sequence[int]) -> list[str]:
        """The words up to EOS. [BOS] and [SEP] are shown as such, and [...] where no EOS came: no task has such words."""
        ended = self.eos in tokens
        own = tokens[: tokens.index(self.eos)] if ended else tokens
        return [*((*self.words, *SPECIAL)[t] for t in own), *([] if ended else [UNENDED])]

    def grade(self, said: list[list[str]], batch: Batch) -> Graded:
        """1 where exactly the words of the answer were said, and then EOS: an exact match."""
        right = [float(words == answer) for words, (_, answer) in zip(said, self.pairs(batch), strict=True)]
        unreadable = [n for n, words in enumerate(said) if not words or not self._id.keys() >= set(words)]
        return Graded(torch.tensor(right, dtype=torch.float64), {}, unreadable)

    def render(self, batch: Batch) -> list[dict[str, Any]]:
        """Question and answer as words with spaces between them."""
        return [
            {"input": " ".join(question), "target": " ".join(answer), "length": self.length_of(question, answer)}
            for question, answer in self.pairs(batch)
        ]

    def texts(self, batch: Batch) -> list[dict[str, str]]:
        """Each example as the published study writes it, for those who bring a tokenizer: prompt, separator, target."""
        return [
            {"prompt": prompt, "separator": self.separator, "target": target}
            for prompt, target in (self.published(*pair) for pair in self.pairs(batch))
        ]

    def pairs(self, batch: Batch) -> list[tuple[list[str], list[str]]]:
        """The words of each example's question and answer."""
        found = []
        rows = zip(batch.inputs.tolist(), batch.targets.tolist(), batch.scored.tolist(), strict=True)
        for inputs, targets, scored in rows:
            begin = scored.index(True)  # where SEP is read and the answer begins
            answer = [t for t, counts in zip(targets, scored, strict=True) if counts][:-1]
            found.append(([self.words[t] for t in inputs[1:begin]], [self.words[t] for t in answer]))
        return found

    def ids(self, words: Sequence[str]) -> list[int]:
        """The ids of words. `ConfigError` for one that there is not."""
        for word in words:
            if word not in self._id:
                raise ConfigError(f"{type(self).__name__} has no word {word!r}{near_miss(word, self.words)}")
        return [self._id[word] for word in words]

    def check_length(self, length: int, split: str = "test") -> None:
        require_split(split)
        require_length(length, self.unit)

    def note(self, length: int, found: int | None = None) -> str | None:
        self.require_examples(length)
        pool, shared = self._pool(length, "test")
        if pool is None:
            return None if found is None else _only(length, found)
        if not len(pool):
            return None
        if shared:
            return (
                f"at length {length} there are only {len(pool)} questions, too few to split: train and test share them"
            )
        # A given set is asked whole with any number that is large enough.
        return _only(length, len(pool)) if len(pool) < FEW or (found and self.lengths() is None) else None

    def pack(self, pairs: Pairs) -> Batch:
        """Questions and answers as a batch: each row BOS question SEP answer EOS, filled up with EOS."""

        def column(token: int) -> Tensor:
            return torch.full((len(pairs), 1), token, dtype=torch.int64)

        asked, said = pairs.questions, pairs.answers
        whole = torch.cat([column(self.bos), asked, column(self.sep), said, column(self.eos)], 1)
        there = whole != NOTHING
        sizes = there.sum(1)
        if not bool(there.all()):
            whole = closed(whole)
            whole = whole.masked_fill(whole == NOTHING, self.eos)
        place = torch.arange(whole.shape[1] - 1)
        begin = 1 + (asked != NOTHING).sum(1, keepdim=True)
        scored = (place >= begin) & (place < sizes[:, None] - 1)
        return Batch(whole[:, :-1].contiguous(), whole[:, 1:].contiguous(), scored)

    def _pool(self, length: int, split: str) -> tuple[Pairs | None, bool]:
        """All examples of a split where they can be listed, and whether both splits share them, since one would be empty."""
        if length not in self._pools:
            every = self.every(length)
            self._pools[length] = None if every is None else self.divided(every, length)
        pools = self._pools[length]
        if pools is None:
            return None, False
        train, test, shared = pools
        return (test if split == "test" else train), shared


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
    new one. What comes 2.5 times more rarely than the average (two numbers of 2 digits to add) is missed with a chance of 3e-6.
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


def _only(length: int, examples: int) -> str:
    if examples == 1:
        return f"at length {length} there is only one test example"
    return f"at length {length} there are only {examples} different test examples"


def _first(keys: Sequence[int], seen: set[int]) -> list[int]:
    """The places of those that were not `seen` before, which then holds them."""
    places = []
    for place, key in enumerate(keys):
        if key not in seen:
            seen.add(key)
            places.append(place)
    return places


def _enough(count: int, split: str) -> int:
    """So many draws of both splits hold `count` of this one, most of the time."""
    share = 1 / HELD_OUT if split == "test" else 1 - 1 / HELD_OUT
    return int(count / share * 1.1) + 16


def _split(every: Pairs) -> tuple[Pairs, Pairs, bool]:
    test = held_out(every.questions)
    if 0 < int(test.sum()) < len(every):
        return every[~test], every[test], False
    return every, every, True


def _stacked(rows: Sequence[Tensor]) -> Tensor:
    width = max(part.shape[1] for part in rows)
    return torch.cat([torch.nn.functional.pad(part, (0, width - part.shape[1]), value=NOTHING) for part in rows])


def closed(rows: Int[Tensor, "b w"]) -> Int[Tensor, "b v"]:
    """Rows without their gaps: every -1 goes to the end of its row, all else keeps its order; as wide as the longest then is."""
    there = rows != NOTHING
    places = there.cumsum(1)
    width = int(places[:, -1].max()) if len(rows) else 0
    found = rows.new_full((len(rows), rows.shape[1] + 1), NOTHING)  # column 0 takes what is not there
    return found.scatter_(1, places.mul_(there), rows)[:, 1 : width + 1]


def combinations(sizes: Sequence[int], most: int = ENUMERABLE) -> Int[Tensor, "m n"] | None:
    """All rows of numbers, the n-th below `sizes[n]`; None where there are more than `most`."""
    total = 1
    for size in sizes:
        total *= size
        if total > most:
            return None
    return torch.cartesian_prod(*[torch.arange(size) for size in sizes]).view(total, len(sizes))


def symbol_names(count: int) -> tuple[str, ...]:
    """Names for so many symbols: letters and digits where they suffice, otherwise numbers."""
    return tuple(LETTERS[:count]) if count <= len(LETTERS) else tuple(map(str, range(count)))


def ragged(rows: Sequence[Sequence[int]]) -> Int[Tensor, "b n"]:
    """Rows of ids as one tensor, the shorter ones filled up with -1s. Its dtype is small: a whole set may lie in it."""
    sizes = torch.tensor([len(row) for row in rows], dtype=torch.int64)
    width = int(sizes.max()) if len(rows) else 0
    found = torch.full((len(rows), width), NOTHING, dtype=torch.int32)
    found[torch.arange(width) < sizes[:, None]] = torch.tensor([n for row in rows for n in row], dtype=torch.int32)
    return found
