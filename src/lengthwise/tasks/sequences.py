"""Tasks of words: a question, and the answer that follows it; one token per word, so that every text round-trips."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.config import ConfigError, near_miss
from lengthwise.tasks.base import (
    AnsweringTask,
    Baseline,
    Batch,
    Graded,
    exact_match,
    generator,
    require_length,
    require_split,
)
from lengthwise.tasks.pairs import NOTHING, Draft, Pairs, balanced, different, drawn
from lengthwise.tasks.splits import hashed, held_out

ENUMERABLE = 4096  # up to so many questions of a length are listed; above, both splits are never empty
FEW_ANSWERS = (
    16  # so many different ones among the answers of a length are few; and so are half as many as there are questions
)
FEW = 100  # a test split with fewer examples than this is worth a note
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
DIGITS = "0123456789"
SPECIAL = ("[BOS]", "[SEP]")  # how tokens that belong in no answer are shown when a model says them
WORDINGS = ("paper", "repository")  # of a published study: what it prints, and what its program makes
UNENDED = "[...]"  # after an answer that did not end


class SequenceTask(AnsweringTask):
    """Answer a question of words. A subclass says which `words` there are, and draws questions with their answers.

        inputs   BOS question SEP answer
        targets  question SEP answer EOS

    The answer and EOS are scored; shorter examples of a batch are filled up with EOS, which is not scored. The score is
    exact match: 1 where all of the answer and EOS are right. Token ids: the words in their order, then BOS, SEP, EOS.

    Train and test share no question: a question belongs to the test split if a 64-bit hash of its words is a multiple of 8
    (1/8 of them). Where a length has so few questions that a split would be empty, both draw from all of them, and `note`
    says so.

    Where few answers are possible, a model is compared with the constant answer (`baselines`): whoever always says the answer that
    the questions of the test have most often. Chance is what it scores in the mean over tests; of a few questions it scores
    more (of 16 parities, 11 of them odd, 0.69), and a model that has learned nothing but to say it does, too.
    """

    metric = "exact match"
    better = "higher"
    per_token = False
    separator: ClassVar[str] = ""  # between question and answer in the published text
    kinds_are: ClassVar[str] = "kinds"  # of questions, see `kinds`
    digit_tokens: tuple[
        int, ...
    ] = ()  # the ids of digits that make up numbers, for position schemes that look for them

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

    def kinds(self, length: int) -> int:
        """Of how many kinds the questions of a length are, all equally probable although some have fewer questions than others.

        1: all questions are equally probable, as far as anybody knows. With more, a test has as many of each kind: were it the
        different questions that are drawn first, small kinds would run out and the others take their place.
        """
        return 1

    def draw_kinds(self, generator: torch.Generator, kinds: Int[Tensor, " b"], length: int) -> Pairs | Draft:
        """An independent example of each of these kinds, where there are several. `draw` draws the kinds uniformly first."""
        raise NotImplementedError

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
        """The example as the text (prompt, target) that the study's repository makes of it, spaces and all; `separator` comes
        between.

        Where no study has published the task: its words with spaces between them.
        """
        return f"{' '.join(question)} ", " ".join(answer)

    def published_in_paper(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str] | None:
        """The example as the study's paper prints one (prompt, target); None where it prints none with these settings.

        The paper shows prompt and target apart, so nothing comes between them.
        """
        return None

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
        return self.pack(self._some(generator, batch, length, split))

    def fixed_examples(self, seed: int, numbers: Sequence[int], shortest: int, longest: int) -> Batch:
        lengths = [shortest + n % (longest - shortest + 1) for n in numbers]
        found = [
            self._some(generator(seed, "fixed", n), 1, at, "train") for n, at in zip(numbers, lengths, strict=True)
        ]
        return self.pack(Pairs.join(found))  # at once: it takes longer than to draw one

    def _some(self, generator: torch.Generator, count: int, length: int, split: str) -> Pairs:
        self.check_length(length, split)
        pool, _ = self._pool(length, split)
        if pool is not None:
            return pool[torch.randint(len(pool), (count,), generator=generator)]
        return drawn(lambda n: self.draw(generator, n, length), count, split)

    def examples(self, seed: int, count: int, length: int, split: str = "test") -> Batch:
        self.check_length(length, split)
        pool, _ = self._pool(length, split)
        draws = generator(seed, split, length)
        if pool is None and (kinds := self.kinds(length)) > 1:
            order = torch.randperm(kinds, generator=draws)  # where they do not divide the count, any may have one more
            chosen = balanced(lambda own: self.draw_kinds(draws, own, length), order, count, split)
            return self.pack(chosen[torch.randperm(len(chosen), generator=draws)])
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
        if type(self).every is SequenceTask.every:
            raise ConfigError(
                f"{type(self).__name__} does not list its questions (it has no method `every`), so ask for some of them"
            )
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

    def baselines(self) -> list[Baseline]:
        return [Baseline(name="constant answer", scores=self._constant_answer, floor=True)]

    def _constant_answer(self, batch: Batch, lengths: Sequence[int]) -> Tensor | None:
        """1 where the answer is the one that the examples have most often. None where answers are not few: more than `FEW_ANSWERS`
        different ones, or more than half as many as there are examples, so that most occur once."""
        answers = hashed(batch.targets.masked_fill(~self.answer_mask(batch), NOTHING))
        different, which, counts = answers.unique(return_inverse=True, return_counts=True)
        if len(different) > min(FEW_ANSWERS, len(batch) // 2):
            return None
        return (which == counts.argmax()).double()[:, None]

    def answer_tokens(self, length: int) -> int:
        return self.tokens(length) - 1 - self.widths(length)[0]

    @property
    def stop(self) -> int:
        return self.eos

    def answer_words(self, tokens: Sequence[int]) -> list[str]:
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

    def texts(self, batch: Batch, wording: str = "repository") -> list[dict[str, str]]:
        """Each example as the published study writes it, for those who bring a tokenizer: prompt, separator, target.

        `wording`: "repository", what its runs were trained on, or "paper", what it prints; they differ. `ConfigError` where the
        paper prints none.
        """
        if wording not in WORDINGS:
            raise ConfigError(
                f"there is no wording {wording!r}{near_miss(wording, WORDINGS)}; there are: {', '.join(WORDINGS)}"
            )
        if wording == "repository":
            found = [self.published(*pair) for pair in self.pairs(batch)]
            return [{"prompt": prompt, "separator": self.separator, "target": target} for prompt, target in found]
        printed = [self.published_in_paper(*pair) for pair in self.pairs(batch)]
        if None in printed:
            raise ConfigError(
                f"the paper prints no example of {type(self).__name__} with these settings; take the wording of its repository"
            )
        return [{"prompt": text[0], "separator": "", "target": text[1]} for text in printed if text is not None]

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
            return None if found is None else _only(length, found, self.kinds_are if self.kinds(length) > 1 else "")
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


def _only(length: int, examples: int, kinds: str = "") -> str:
    each = f" with as many of each of the {kinds}" if kinds else ""
    if examples == 1:
        return f"at length {length} there is only one test example{each}"
    return f"at length {length} there are only {examples} different test examples{each}"


def _split(every: Pairs) -> tuple[Pairs, Pairs, bool]:
    test = held_out(every.questions)
    if 0 < int(test.sum()) < len(every):
        return every[~test], every[test], False
    return every, every, True


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
