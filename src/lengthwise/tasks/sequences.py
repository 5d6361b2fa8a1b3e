"""Tasks of a question and an answer in words. Each word is one token, so every text survives encoding and decoding."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.config import ConfigError, near_miss
from lengthwise.metrics import EXACT_MATCH
from lengthwise.tasks.base import AnswerTask, Baseline, Batch, GradedAnswers, exact_match, generator
from lengthwise.tasks.pairs import NO_WORD, Pairs, close_gaps, draw_distinct, draw_pairs, require_pairs
from lengthwise.tasks.splits import hash_words, held_out
from lengthwise.user_classes import source_location

ENUMERABLE = 4096  # a length with up to this many questions lists them; with more, no split is ever empty
FEW_ANSWERS = 16  # the constant answer is a baseline up to this many distinct answers (at most half the examples)
FEW_EXAMPLES = 100  # a test split with fewer examples than this gets a note
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
DIGITS = "0123456789"
SPECIAL = ("[BOS]", "[SEP]")  # how special tokens in a generated answer are shown
WORDINGS = ("paper", "repository")  # of a published study: the text in the paper, or the text that its code writes
UNENDED = "[...]"  # shown after a generated answer without EOS


class SequenceTask(AnswerTask):
    """Answer a question in words. A subclass defines the vocabulary, `words`, and draws questions with their answers.

        inputs   BOS question SEP answer
        targets  question SEP answer EOS

    The answer and EOS are scored. Shorter examples of a batch are padded with EOS, which is not scored. The score is
    exact match: 1 if the whole answer and EOS are correct. Token ids: the words in their order, then BOS, SEP, EOS.

    Train and test share no question: a question belongs to the test split if a 64-bit hash of its words is a multiple
    of 8, which holds for 1/8 of them. If a length has so few questions that a split would be empty, both splits draw
    from all of them, and `note` says so.

    If few answers are possible, models are compared with the constant answer (`baselines`): the most frequent answer of
    the test examples of a length. Its mean score over tests is the chance level. On few questions it scores higher
    (0.69 on 16 parities of which 11 are odd), and so does a model that has only learned to give this answer.
    """

    metric = EXACT_MATCH
    per_token = False
    separator: ClassVar[str] = ""  # between question and answer in the published text
    kinds_name: ClassVar[str] = "kinds"  # what the kinds of questions are, see `kinds`
    digit_tokens: tuple[int, ...] = ()  # ids of the digits that numbers consist of; some position schemes need them

    def __init__(self, words: Sequence[str]):
        self.words = tuple(words)
        if not self.words or len({word for word in self.words if isinstance(word, str)}) < len(self.words):
            raise ConfigError(
                f"{source_location(type(self))}: the words of {type(self).__name__} must be different texts, because "
                f"each is one token, got {list(self.words)!r:.80}; pass every word of its questions and answers to "
                "super().__init__, each once"
            )
        self.bos, self.sep, self.eos = range(len(self.words), len(self.words) + 3)
        self.vocab_size = self.output_size = len(self.words) + 3
        self._word_id = {word: n for n, word in enumerate(self.words)}
        self._pools_by_length: dict[int, dict[str, Pairs] | None] = {}

    # ---- defined by a subclass ---------------------------------------------------------------------------------

    @abstractmethod
    def draw(self, generator: torch.Generator, count: int, length: int) -> Pairs:
        """Draw `count` independent examples of exactly this length, from both splits together."""

    def kinds(self, length: int) -> int:
        """Return the number of kinds of questions at a length. All kinds are equally probable, whatever their sizes.

        With more than one kind, a test has equally many questions of each. If a test took the first distinct questions
        instead, small kinds would run out and the others would replace them. 1 means that all questions are equally
        probable.
        """
        return 1

    def draw_kinds(self, generator: torch.Generator, kinds: Int[Tensor, " b"], length: int) -> Pairs:
        """Draw one independent example of each of these kinds. `draw` draws the kinds uniformly."""
        return self.draw(generator, len(kinds), length)

    def add_random_words(self, pairs: Pairs, generator: torch.Generator, length: int) -> Pairs:
        """Return the pairs with words that are drawn each time that a question is used, such as index hints. By default
        none.

        These words are added after questions were divided into splits and compared with each other, so they count for
        neither.
        """
        return pairs

    def all_examples(self, length: int) -> Pairs | None:
        """Return all distinct questions of a length with their answers, or None if there are more than ENUMERABLE.

        After None both splits are assumed not to be empty.
        """
        return None

    @abstractmethod
    def widths(self, length: int) -> tuple[int, int]:
        """Return the largest numbers of words in a question and in an answer of this length."""

    @abstractmethod
    def length_of(self, question: Sequence[str], answer: Sequence[str]) -> int:
        """Return the length of an example, from its words."""

    def repository_text(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        """Return the text (prompt, target) that the study's repository writes for an example, with its exact spaces.

        `separator` goes between the two. For a task without a published study: the words, separated by spaces.
        """
        return f"{' '.join(question)} ", " ".join(answer)

    def paper_text(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str] | None:
        """Return an example as the study's paper prints it (prompt, target), or None if it prints none with these
        settings.

        The paper shows prompt and target separately, so nothing goes between them.
        """
        return None

    def lengths(self) -> Sequence[int] | None:
        """Return all lengths with examples if the questions are a finite set, or None if every length has some."""
        return None

    def split_examples(self, examples: Pairs, length: int) -> dict[str, Pairs]:
        """Return all examples of a length by split. If one split would be empty, both are `examples` itself."""
        test = held_out(examples.questions)
        if 0 < int(test.sum()) < len(examples):
            return {"train": examples[~test], "test": examples[test]}
        return {"train": examples, "test": examples}

    def require_examples(self, length: int) -> None:
        """Raise `ConfigError` for a length without examples in any split."""
        self.check_length(length)

    # ---- derived from these methods ----------------------------------------------------------------------------

    def token_words(self) -> list[str]:
        return [*self.words, *SPECIAL, "[EOS]"]

    def tokens(self, length: int) -> int:
        return sum(self.widths(length)) + 2

    def sample(self, generator: torch.Generator, batch: int, length: int, split: str = "train") -> Batch:
        return self.pack(self._draw_pairs(generator, batch, length, split))

    def fixed_examples(self, seed: int, numbers: Sequence[int], shortest: int, longest: int) -> Batch:
        lengths = range(shortest, longest + 1, self.length_step)
        draws = [(generator(seed, "fixed", n), lengths[n % len(lengths)]) for n in numbers]
        pairs = [self._draw_pairs(g, 1, length, "train") for g, length in draws]
        return self.pack(Pairs.join(pairs))  # all in one call, because packing takes longer than drawing

    def _draw_pairs(self, generator: torch.Generator, count: int, length: int, split: str) -> Pairs:
        self.check_length(length, split)
        if pools := self._pools(length):
            pairs = pools[split][torch.randint(len(pools[split]), (count,), generator=generator)]
        else:
            pairs = draw_pairs(lambda n: self.draw(generator, n, length), count, split)
        return self.add_random_words(pairs, generator, length)

    def examples(self, seed: int, count: int, length: int, split: str = "test") -> Batch:
        self.check_length(length, split)
        g = generator(seed, split, length)
        num_kinds = self.kinds(length)
        if pools := self._pools(length):
            pairs = pools[split]
        else:  # in a random order, so that any kind can be one that has one example more
            order = torch.randperm(num_kinds, generator=g)
            pairs = draw_distinct(lambda kinds: self.draw_kinds(g, kinds, length), order, count, split)
        if pools or num_kinds > 1:
            pairs = pairs[torch.randperm(len(pairs), generator=g)[:count]]  # no question twice
        return self.pack(self.add_random_words(pairs, g, length))

    def available(self, length: int, split: str = "test") -> int | None:
        """Return the number of different examples, or None if there are too many to list (more than ENUMERABLE in both
        splits).

        After None, `examples` finds out by drawing whether there are as many as requested.
        """
        self.check_length(length, split)
        pools = self._pools(length)
        return len(pools[split]) if pools else None

    def whole(self, length: int) -> dict[str, Pairs]:
        """Return all examples of a length by the split that they belong to: "train", "test", or "train and test".

        Raises `ConfigError` if there are too many to list.
        """
        self.require_examples(length)
        pools = self._pools(length)
        if type(self).all_examples is SequenceTask.all_examples:
            raise ConfigError(
                f"{type(self).__name__} does not list its questions; define its method all_examples, or draw a sample "
                "instead"
            )
        if pools is None:
            raise ConfigError(
                f"{type(self).__name__} has too many questions of {length} {self.unit} to list them all "
                f"(more than {ENUMERABLE}); take a shorter length, or draw a sample instead"
            )
        if pools["train"] is pools["test"]:
            pools = {"train and test": pools["test"]}
        g = generator(0, "whole", length)
        return {split: self.add_random_words(pairs, g, length) for split, pairs in pools.items() if len(pairs)}

    def score(self, logits: Tensor, batch: Batch) -> Tensor:
        return exact_match(logits, batch)

    def baselines(self) -> list[Baseline]:
        if self.metric is not EXACT_MATCH:  # a metric of a subclass, in which the baseline below has no score
            return []
        return [Baseline(name="constant answer", scores=self._constant_answer, floor=True)]

    def _constant_answer(self, batch: Batch, lengths: Sequence[int]) -> Tensor | None:
        """Return 1 for each example with the most frequent answer, else 0. None if there are many different answers.

        Many means more than `FEW_ANSWERS`, or more than half the number of examples, so that most answers occur once.
        """
        answers = hash_words(batch.targets.masked_fill(~self.answer_mask(batch), NO_WORD))
        distinct, indices, counts = answers.unique(return_inverse=True, return_counts=True)
        if len(distinct) > min(FEW_ANSWERS, len(batch) // 2):
            return None
        return (indices == counts.argmax()).double()[:, None]

    def answer_tokens(self, length: int) -> int:
        """Return the largest number of tokens in an answer of this length, including the end token."""
        return self.tokens(length) - 1 - self.widths(length)[0]

    def answer_words(self, tokens: Sequence[int]) -> list[str]:
        """Return the words of any tokens up to EOS, with [BOS] and [SEP] for these, and [...] at the end if there is no
        EOS.

        No task has these as words.
        """
        ended = self.eos in tokens
        answer = tokens[: tokens.index(self.eos)] if ended else tokens
        return [*((*self.words, *SPECIAL)[t] for t in answer), *([] if ended else [UNENDED])]

    def grade(self, generated: list[list[str]], batch: Batch) -> GradedAnswers:
        """Grade generated answers: 1 for exactly the words of the answer, followed by EOS."""
        correct = [float(words == answer) for words, (_, answer) in zip(generated, self.pairs(batch), strict=True)]
        unreadable = [n for n, words in enumerate(generated) if not words or not self._word_id.keys() >= set(words)]
        return GradedAnswers(torch.tensor(correct, dtype=torch.float64), {}, unreadable)

    def render(self, batch: Batch) -> list[dict[str, Any]]:
        """Return question and answer as words separated by spaces."""
        return [
            {"input": " ".join(question), "target": " ".join(answer), "length": self.length_of(question, answer)}
            for question, answer in self.pairs(batch)
        ]

    def texts(self, batch: Batch, wording: str = "repository") -> list[dict[str, str]]:
        """Return each example in the published study's wording, for models with a tokenizer: prompt, separator, target.

        `wording`: "repository" is the text that the study trained on, "paper" the text that it prints; they differ.
        Raises `ConfigError` if the paper prints no such example.
        """
        if wording not in WORDINGS:
            raise ConfigError(
                f"there is no wording {wording!r}{near_miss(wording, WORDINGS)}; available: {', '.join(WORDINGS)}"
            )
        if wording == "repository":
            texts = [self.repository_text(*pair) for pair in self.pairs(batch)]
            return [{"prompt": prompt, "separator": self.separator, "target": target} for prompt, target in texts]
        printed = [self.paper_text(*pair) for pair in self.pairs(batch)]
        if None in printed:
            raise ConfigError(
                f"the paper prints no example of {type(self).__name__} with these settings; take the wording of its "
                "repository"
            )
        return [{"prompt": text[0], "separator": "", "target": text[1]} for text in printed if text is not None]

    def pairs(self, batch: Batch) -> list[tuple[list[str], list[str]]]:
        """Return the words of each example's question and answer."""
        pairs = []
        rows = zip(batch.inputs.tolist(), batch.targets.tolist(), batch.scored.tolist(), strict=True)
        for inputs, targets, scored in rows:
            start = scored.index(True)  # the slot of SEP, which predicts the first word of the answer
            answer = [t for t, is_scored in zip(targets, scored, strict=True) if is_scored][:-1]
            pairs.append(([self.words[t] for t in inputs[1:start]], [self.words[t] for t in answer]))
        return pairs

    def ids(self, words: Sequence[str]) -> list[int]:
        """Return the ids of words. Raises `ConfigError` for a word that the task does not have."""
        for word in words:
            if word not in self._word_id:
                raise ConfigError(f"{type(self).__name__} has no word {word!r}{near_miss(word, self.words)}")
        return [self._word_id[word] for word in words]

    def note(self, length: int, num_examples: int | None = None) -> str | None:
        self.require_examples(length)
        pools = self._pools(length)
        if pools is None:
            balanced = f" with as many of each of the {self.kinds_name}" if self.kinds(length) > 1 else ""
            return None if num_examples is None else _only(length, num_examples, "different test example") + balanced
        count = len(pools["test"])
        if pools["train"] is pools["test"]:
            return f"{_only(length, count, 'question')}, too few to split: train and test share them"
        # A finite set with fewer examples than requested is complete, so it needs no note.
        few = count < FEW_EXAMPLES or (num_examples and self.lengths() is None)
        return _only(length, count, "different test example") if few and count else None

    def pack(self, pairs: Pairs) -> Batch:
        """Make a batch of questions and answers: each row is BOS question SEP answer EOS, padded with EOS."""

        def column(token: int) -> Tensor:
            return torch.full((len(pairs), 1), token, dtype=torch.int64)

        questions, answers = pairs.questions, pairs.answers
        rows = torch.cat([column(self.bos), questions, column(self.sep), answers, column(self.eos)], 1)
        is_token = rows != NO_WORD
        sizes = is_token.sum(1)
        if not bool(is_token.all()):
            rows = close_gaps(rows)
            rows = rows.masked_fill(rows == NO_WORD, self.eos)
        slot = torch.arange(rows.shape[1] - 1)
        start = 1 + (questions != NO_WORD).sum(1, keepdim=True)
        scored = (slot >= start) & (slot < sizes[:, None] - 1)
        return Batch(rows[:, :-1].contiguous(), rows[:, 1:].contiguous(), scored)

    def _pools(self, length: int) -> dict[str, Pairs] | None:
        """Return all examples by split (see `split_examples`), or None if they cannot be listed."""
        if length not in self._pools_by_length:
            examples = self.all_examples(length)
            if examples is not None:
                require_pairs(self, "all_examples", examples)
            self._pools_by_length[length] = None if examples is None else self.split_examples(examples, length)
        return self._pools_by_length[length]


def _only(length: int, count: int, noun: str) -> str:
    """Return `at length 2 there are only 3 questions`, or `... is only one question`."""
    only = f"is only one {noun.removeprefix('different ')}" if count == 1 else f"are only {count} {noun}s"
    return f"at length {length} there {only}"


def combinations(sizes: Sequence[int], limit: int = ENUMERABLE) -> Int[Tensor, "m n"] | None:
    """Return all rows of numbers whose n-th number is below `sizes[n]`, or None if there are more than `limit`."""
    total = 1
    for size in sizes:
        total *= size
        if total > limit:
            return None
    return torch.cartesian_prod(*[torch.arange(size) for size in sizes]).view(total, len(sizes))


def symbol_names(count: int) -> tuple[str, ...]:
    """Return names for `count` symbols: letters and digits if they suffice, otherwise numbers."""
    return tuple(LETTERS[:count]) if count <= len(LETTERS) else tuple(map(str, range(count)))
