"""Tasks of published benchmarks: a text is the input, a text is the answer, and a tokenizer turns both into tokens."""

import hashlib
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.corpora.tokenizers import ByteTokenizer, Tokenizer, open_tokenizer
from lengthwise.downstream.examples import Example, ExampleSet
from lengthwise.downstream.metrics import AnswerScores
from lengthwise.tasks.base import AnswerTask, Baseline, Batch, GradedAnswers, exact_match, generator
from lengthwise.tasks.splits import shuffled
from lengthwise.tasks.text import readable

DEMO = "demo"
# How many characters of an input are tokenized to get its first n tokens: in English, tokens have three to five. The
# last tokens of a text that is cut may differ from those of the whole text, so some more than n are needed.
CHARACTERS_PER_TOKEN, MORE_CHARACTERS, MORE_TOKENS = 8, 1024, 64
CONSTANT_ROWS = 4096  # training examples whose answers are counted for the baseline


@dataclass(frozen=True)
class ExampleBatch(Batch):
    """A batch of examples of a data set. `numbers`: their numbers in `split`, from which their references are read."""

    numbers: Int[Tensor, " b"]
    split: str


class TextAnswers(AnswerTask):
    """Answer a question about a text. A subclass opens the examples and scores the answers.

        inputs   BOS input cue answer
        targets  input cue answer EOS

    The answer and EOS are scored. Only the first `length` tokens of an input are used, and shorter inputs are whole. An
    answer of more than `answer` tokens is cut in training, without an EOS. BOS and EOS are those of the tokenizer; one
    without EOS has BOS in its place, so that all token IDs are those of language modelling with the same tokenizer.

    Training draws examples with replacement, uniformly. A test uses each example at most once; the seed alone decides
    their order, so all lengths have the same examples. The score is that of the text that a model generates
    (`decodes`). The score of one forward pass without decoding is the exact match of the tokens of the first reference.
    """

    unit = "bytes"
    per_token = False
    decodes = True
    excluded_from_key = ("path", "tokenizer")
    text_tokenizer: Tokenizer
    cue: str  # the text between the input and the answer
    stale: ClassVar[tuple[str, ...]] = ("path", "tokenizer")  # settings that determine the hash

    def __init__(self, tokenizer: str, examples: ExampleSet, answer: int, sha256: str):
        """`answer`: the largest number of tokens of an answer. `sha256`: the expected hash, or empty."""
        self.text_tokenizer, self.data, self.answer = open_tokenizer(tokenizer), examples, answer
        self.identity = identity(self.text_tokenizer, examples)
        if sha256 and self.identity != sha256:
            raise ConfigError(
                f"the files and the tokenizer of {type(self).__name__} must have the SHA-256 {sha256[:12]}..., got "
                f"{self.identity[:12]}...: they have changed; restore them, or leave sha256 out"
            )
        self.unit = self.text_tokenizer.unit  # type: ignore[misc]
        self.vocab_size = self.output_size = self.text_tokenizer.vocab_size
        self.tokenizer_sha256 = self.text_tokenizer.sha256
        self.bos = self.text_tokenizer.bos
        self.eos = self.bos if self.text_tokenizer.eos is None else self.text_tokenizer.eos

    # ---- defined by a subclass ---------------------------------------------------------------------------------

    @abstractmethod
    def answer_scores(self, texts: Sequence[str], numbers: Sequence[int], examples: Sequence[Example]) -> AnswerScores:
        """Return the scores of generated texts. `numbers`: those of the examples in their split."""

    @classmethod
    @abstractmethod
    def open_examples(cls, settings: Mapping[str, Any]) -> ExampleSet:
        """Return the examples of a task with these settings. Raise `ConfigError` for files that cannot be used."""

    # ---- derived from these methods ----------------------------------------------------------------------------

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Check the values, make paths absolute, and fill in the hash. With a `sha256` no file is read yet."""
        name = cls.__name__
        if settings["answer"] < 0:
            raise ConfigError(
                f"{name}.answer must be at least 0 tokens (0: the default of the data set), got {settings['answer']}"
            )
        paths = {key: absolute(settings[key], built_in, name, key) for key, built_in in BUILT_IN.items()}
        settings = {**settings, **paths}
        if not settings["sha256"]:
            settings["sha256"] = identity(open_tokenizer(settings["tokenizer"]), cls.open_examples(settings))
        return settings

    @classmethod
    def changed(cls, settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
        """Other files and another tokenizer have another hash."""
        stale = {"sha256": ""} if any(name in changes for name in cls.stale) else {}
        return {**settings, **stale, **changes}

    @classmethod
    def unit_of(cls, settings: Mapping[str, Any]) -> str:
        return ByteTokenizer.unit if settings["tokenizer"] == ByteTokenizer.name else Tokenizer.unit

    @property
    def cue_tokens(self) -> int:
        """The number of tokens of the cue."""
        return len(self.encode([self.cue])[0])

    def tokens(self, length: int) -> int:
        return 1 + length + self.cue_tokens + self.answer

    def answer_tokens(self, length: int) -> int:
        return self.answer + 1

    def sample(self, generator: torch.Generator, batch: int, length: int, split: str = "train") -> Batch:
        self.check_length(length, split)
        return self.pack(split, torch.randint(self.data.count(split), (batch,), generator=generator), [length] * batch)

    def examples(self, seed: int, count: int, length: int, split: str = "test") -> Batch:
        self.check_length(length, split)
        numbers = torch.randperm(self.data.count(split), generator=generator(seed, split))[:count]
        return self.pack(split, numbers, [length] * len(numbers))

    def fixed_examples(self, seed: int, numbers: Sequence[int], shortest: int, longest: int) -> Batch:
        """Return training examples, each under one number, in an order that `seed` decides."""
        size = self.data.count("train")
        if numbers and max(numbers) >= size:
            raise ConfigError(
                f"train_examples must be at most {size:,}, got {max(numbers) + 1:,}: {type(self).__name__} has no more "
                "training examples"
            )
        lengths = [shortest + n % (longest - shortest + 1) for n in numbers]
        return self.pack(
            "train", shuffled(torch.tensor(numbers, dtype=torch.int64), size, generator(seed, "fixed")), lengths
        )

    def available(self, length: int, split: str = "test") -> int | None:
        self.check_length(length, split)
        return self.data.count(split)

    def pack(self, split: str, numbers: Int[Tensor, " b"], lengths: Sequence[int]) -> ExampleBatch:
        """Return the examples with these numbers as a batch, each with its length. Shorter rows are padded with EOS."""
        examples = [self.data.example(split, n) for n in numbers.tolist()]
        inputs = self.first_tokens([example.input for example in examples], lengths)
        cue = self.encode([self.cue])[0].tolist()
        answers = self.encode([f" {example.references[0]}" if example.references[0] else "" for example in examples])
        prompts, rows = [], []
        for text, answer in zip(inputs, answers, strict=True):
            prompts.append([self.bos, *text.tolist(), *cue])
            rows.append([*prompts[-1], *answer.tolist()[: self.answer], *([self.eos] * (len(answer) <= self.answer))])
        width = max(map(len, rows), default=1)
        tokens = torch.tensor([row + [self.eos] * (width - len(row)) for row in rows], dtype=torch.int64)
        tokens = tokens.view(len(rows), width)
        slot = torch.arange(width - 1)
        first, end = (torch.tensor([len(row) - 1 for row in some])[:, None] for some in (prompts, rows))
        scored = ((slot >= first) & (slot < end)).view(len(rows), width - 1)
        return ExampleBatch(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), scored, numbers, split)

    def score(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, " b"]:
        return exact_match(logits, batch)

    def answer_words(self, tokens: Sequence[int]) -> list[str]:
        """Return the generated text as a single word, without spaces around it."""
        tokens = list(tokens)
        answer = tokens[: tokens.index(self.eos)] if self.eos in tokens else tokens
        return [self.text_tokenizer.decode(answer).decode("utf-8", "replace").strip()]

    def grade(self, generated: list[list[str]], batch: Batch) -> GradedAnswers:
        """Score generated texts by the data set's metric. An empty text is unreadable, unless it is right."""
        examples = self._examples_of(batch)
        texts = [words[0] for words in generated]
        scores = self._scores(texts, batch)
        components = scores.components if len(scores.components) > 1 else {}
        details = {name: torch.full((len(texts),), value, dtype=torch.float64) for name, value in components.items()}
        pairs = enumerate(zip(texts, examples, strict=True))
        unreadable = [n for n, (text, example) in pairs if not text and "" not in example.references]
        return GradedAnswers(torch.tensor(scores.examples, dtype=torch.float64), details, unreadable)

    def baselines(self) -> list[Baseline]:
        """Return the most frequent of the first answers in training, which is the floor."""
        return [Baseline(name="constant answer", scores=self._constant_answer, floor=True, fitted_on=self.identity)]

    def _constant_answer(self, batch: Batch, lengths: Sequence[int]) -> Tensor:
        texts = [self.frequent_answer(example) for example in self._examples_of(batch)]
        return torch.tensor(self._scores(texts, batch).examples, dtype=torch.float64)[:, None]

    def frequent_answer(self, example: Example) -> str:
        """Return the answer of the baseline to an example."""
        return self.most_frequent_answer

    @cached_property
    def most_frequent_answer(self) -> str:
        return most_frequent(self.data)

    def render(self, batch: Batch) -> list[dict[str, Any]]:
        rows = []
        for inputs, targets, scored in zip(
            batch.inputs.tolist(), batch.targets.tolist(), batch.scored.tolist(), strict=True
        ):
            first = scored.index(True)
            prompt = inputs[1 : first + 1]
            answer = [t for t, is_scored in zip(targets, scored, strict=True) if is_scored and t != self.eos]
            texts = [readable(self.text_tokenizer.decode(tokens)) for tokens in (prompt, answer)]
            rows.append({"input": texts[0], "target": texts[1].strip(), "length": len(prompt) - self.cue_tokens})
        return rows

    def provenance(self) -> dict[str, str | int]:
        facts: dict[str, str | int] = {
            "tokenizer": self.text_tokenizer.name,
            "tokenizer_sha256": self.text_tokenizer.sha256,
            "data_sha256": self.identity,
        }
        return facts | {f"{split}_examples": self.data.count(split) for split in ("train", "test")}

    def _examples_of(self, batch: Batch) -> list[Example]:
        assert isinstance(batch, ExampleBatch), "only `pack` creates the batches of this task"
        return [self.data.example(batch.split, n) for n in batch.numbers.tolist()]

    def _scores(self, texts: Sequence[str], batch: Batch) -> AnswerScores:
        assert isinstance(batch, ExampleBatch), "only `pack` creates the batches of this task"
        return self.answer_scores(texts, batch.numbers.tolist(), self._examples_of(batch))

    def encode(self, texts: Sequence[str]) -> list[np.ndarray[Any, Any]]:
        return list(self.text_tokenizer.encode([text.encode() for text in texts])) if texts else []

    def first_tokens(self, texts: Sequence[str], lengths: Sequence[int]) -> list[np.ndarray[Any, Any]]:
        """Return the first tokens of each text. The end of a long text is not tokenized."""
        starts = [text[: n * CHARACTERS_PER_TOKEN + MORE_CHARACTERS] for text, n in zip(texts, lengths, strict=True)]
        tokens = self.encode(starts)
        for row, (text, start, n) in enumerate(zip(texts, starts, lengths, strict=True)):
            if len(tokens[row]) < n + MORE_TOKENS and len(start) < len(text):
                tokens[row] = self.encode([text])[0]
        return [row[:n] for row, n in zip(tokens, lengths, strict=True)]


BUILT_IN = {"path": DEMO, "tokenizer": ByteTokenizer.name}  # settings that are paths, and their values that are none


def absolute(text: str, built_in: str, task: str, name: str) -> str:
    """Return an absolute path. Names of what is built in, and of a tokenizer that is no file, are unchanged."""
    if not text.strip() or "\0" in text:
        raise ConfigError(f'{task}.{name} must be a path or "{built_in}", got {text!r}')
    try:
        path = Path(text).expanduser().resolve()
        return text if text == built_in or (name == "tokenizer" and not path.exists()) else str(path)
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"cannot resolve the path {text!r}: {error}") from error


def identity(tokenizer: Tokenizer, examples: ExampleSet) -> str:
    """Return the hash of the data and of the tokenizer."""
    return hashlib.sha256(f"{examples.sha256} {tokenizer.sha256}".encode()).hexdigest()


def most_frequent(data: ExampleSet) -> str:
    """Return the most frequent first answer of at most `CONSTANT_ROWS` training examples at equal distances."""
    count = data.count("train")
    numbers = range(0, count, -(-count // CONSTANT_ROWS))
    return Counter(data.example("train", n).references[0] for n in numbers).most_common(1)[0][0]
