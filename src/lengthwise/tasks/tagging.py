"""Tagging of named entities: a training set is memorized, and its sentences are then joined to longer texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.downstream.conll import TaggedSentences, read_conll
from lengthwise.downstream.invented_names import SENTENCES, invented_sentences
from lengthwise.metrics import ENTITY_F1
from lengthwise.tasks.base import Baseline, Batch, PooledTask, generator
from lengthwise.tasks.splits import shuffled
from lengthwise.tasks.text_answers import absolute

INVENTED = "invented"


@dataclass(frozen=True)
class TaggedBatch(Batch):
    """A batch of joined sentences. `sentences[b, t]`: the number of the sentence that slot t belongs to, from 0."""

    sentences: Int[Tensor, "b t"]


class Tagging(PooledTask):
    """Predict the label of each word of a text, its entities in IOB2. `length` counts the sentences that are joined to
    one text.

    Length 2; every target is scored:

        inputs   they met Anna  Meyer . Paris is old .
        targets  O    O   B-PER I-PER O B-LOC O  O   O

    The training set is also the test set, so the task measures how much a model memorizes. A model that is trained on
    single sentences is then tested on texts of k sentences: the same sentences after other words, at positions that
    were never trained. A model sees the words before a word and not those after it, which often determine its label
    ("Jordan River", "Jordan Bank"). Such a label can only be known by heart.

    Each different word of the corpus is a token, and so is each label: O first, then B and I of every type. Sentences
    are joined in the order of the corpus without anything between them, also across documents. Shorter examples of a
    batch are padded at the end with slots that are not scored. The model sees no end of a sentence apart from the
    words.

    Training draws texts of consecutive sentences that begin at any sentence, uniformly; the first sentence follows the
    last. With `train_examples` of the number of sentences, each epoch begins a text at each of them once. A test of
    `tokens` words begins at a sentence that its seed decides, and has the same sentences at every length, each scored
    once: all of them if `tokens` is at least the size of the corpus. If their number is no multiple of the length, the
    last text of a test of all sentences begins with sentences that another text contains too; they are not scored
    again.

    Settings:

    - `path`: a CoNLL file (`lengthwise.downstream.conll`), or "invented", a corpus from a small grammar
      (`lengthwise.downstream.invented_names`). In that corpus, two thirds of the entities begin with a word that begins
      names of all types, and neither this word nor those before it show the type.
    - `sentences`: use only the first ones. 0: all of a file, and 1,400 invented ones (21 words on average).
    - `seed`: of the invented corpus.
    - `sha256`: identifies the sentences, and stands for `path` in a run's key. If it is empty, `choose` fills it in. A
      file that has changed since is refused.

    The score is the F1 of entities (metric "entity F1"), 2 · correct / (predicted + true), counted over all sentences
    of the test together. It is that of seqeval with `mode="strict"` and `scheme=IOB2`: a predicted entity begins with
    B, continues with I of the same type, and is correct if its first word, its last word and its type are. An I that
    continues nothing belongs to no entity. Without any entity the score is 0. Entities end with their sentence at every
    length. Two scores are stored beside it: the F1 of seqeval's default mode, in which such an I begins an entity ("F1,
    default mode"), and the share of words with the right label ("token accuracy"). A single example has no share in an
    F1: the numbers that `score` returns have the F1 as their mean, and their standard error is that of the F1 by the
    delta method.

    The baseline is the most frequent label of each word. A model that is no better has memorized nothing of the words
    before.

    Source: seqeval 1.2.2 for the scores.
    """

    metric = ENTITY_F1
    unit = "sentences"
    per_token = True
    excluded_from_key = ("path",)

    def __init__(self, *, path: str = INVENTED, sentences: int = 0, seed: int = 0, sha256: str = ""):
        settings = self.check({"path": path, "sentences": sentences, "seed": seed, "sha256": sha256})
        data = corpus(settings)
        if data.sha256 != settings["sha256"]:
            raise ConfigError(
                f"the sentences of {path} must have the SHA-256 {settings['sha256'][:12]}..., got "
                f"{data.sha256[:12]}...: they have changed; restore them, or leave sha256 out"
            )
        self.words, self.labels, self.sha256 = data.words, data.labels, data.sha256
        self.vocab_size, self.output_size = len(self.words), len(self.labels)
        self.size = len(data)
        word_id, label_id = ({name: n for n, name in enumerate(names)} for names in (self.words, self.labels))
        sizes = torch.tensor([len(sentence.words) for sentence in data.sentences])
        # The corpus twice, so that texts continue with the first sentence after the last.
        self._words = torch.tensor([word_id[w] for s in data.sentences for w in s.words]).repeat(2)
        self._labels = torch.tensor([label_id[w] for s in data.sentences for w in s.labels]).repeat(2)
        self._sentences = torch.arange(2 * self.size).repeat_interleave(sizes.repeat(2))
        self._starts = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.repeat(2).cumsum(0)])

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Check the values, make the path absolute, and fill in the hash. With a `sha256` the file is not read yet."""
        for name in ("sentences", "seed"):
            if settings[name] < 0:
                raise ConfigError(f"Tagging.{name} must be at least 0, got {settings[name]}")
        settings = {**settings, "path": absolute(settings["path"], INVENTED, "Tagging", "path")}
        if settings["path"] != INVENTED and settings["seed"]:
            raise ConfigError(
                f'Tagging.seed is that of the corpus "{INVENTED}", got {settings["seed"]} with a file; leave it out'
            )
        return settings if settings["sha256"] else {**settings, "sha256": corpus(settings).sha256}

    @classmethod
    def changed(cls, settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
        """Other sentences have another hash."""
        return {**settings, "sha256": "", **changes}

    def tokens(self, length: int) -> int:
        """Return the number of words of the longest text of this many sentences."""
        length = min(length, self.size)
        return int((self._starts[length : length + self.size] - self._starts[: self.size]).max())

    def sample(self, generator: torch.Generator, batch: int, length: int, split: str = "train") -> Batch:
        self.check_length(length, split)
        return self.pack(torch.randint(self.size, (batch,), generator=generator), [length] * batch)

    def examples(self, seed: int, count: int, length: int, split: str = "test") -> Batch:
        """Return the first `count` texts of the corpus, which begins at a sentence that the seed alone decides."""
        self.check_length(length, split)
        first = int(torch.randint(self.size, (), generator=generator(seed, split)))
        new = torch.arange(0, self.size, length)[:count]  # the first sentence of each text that no text before it has
        starts = new.clamp(max=self.size - length)
        return self.pack((first + starts) % self.size, [length] * len(new), new - starts)

    def fixed_examples(self, seed: int, numbers: Sequence[int], shortest: int, longest: int) -> Batch:
        """Return texts that begin at different sentences, in an order that `seed` decides."""
        if numbers and max(numbers) >= self.size:
            raise ConfigError(
                f"train_examples must be at most {self.size:,}, got {max(numbers) + 1:,}: Tagging has no more sentences"
            )
        lengths = [shortest + n % (longest - shortest + 1) for n in numbers]
        order = shuffled(torch.tensor(numbers, dtype=torch.int64), self.size, generator(seed, "fixed"))
        return self.pack(order, lengths)

    def num_examples(self, tokens: int, length: int) -> int:
        """Return how many texts have about `tokens` words."""
        sentences = min(self.size, max(1, tokens * self.size // int(self._starts[self.size])))
        return -(-sentences // length)

    def available(self, length: int, split: str = "test") -> int | None:
        self.check_length(length, split)
        return -(-self.size // length)

    def pack(self, starts: Int[Tensor, " b"], lengths: Sequence[int], skipped: Tensor | None = None) -> TaggedBatch:
        """Return texts of so many sentences from each start. The first `skipped` sentences are not scored."""
        begin, end = self._starts[starts], self._starts[starts + torch.tensor(lengths, dtype=torch.int64)]
        slot = begin[:, None] + torch.arange(int((end - begin).max()) if len(starts) else self.tokens(1))
        inside = slot < end[:, None]
        slot = torch.minimum(slot, end[:, None] - 1)
        sentences = self._sentences[slot] - starts[:, None]
        scored = inside if skipped is None else inside & (sentences >= skipped[:, None])
        return TaggedBatch(
            self._words[slot].masked_fill(~inside, 0), self._labels[slot].masked_fill(~inside, 0), scored, sentences
        )

    def counts(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, "b 7"]:
        """Return for each example the numbers of correct, predicted and true entities, the first two also in seqeval's
        default mode, and the numbers of correct and all words."""
        best = logits.max(-1)
        counts = self.label_counts(best.indices, batch)
        return counts.masked_fill((best.values.isnan() & batch.scored).any(1, keepdim=True), torch.nan)

    def label_counts(self, predicted: Int[Tensor, "b t"], batch: Batch) -> Float[Tensor, "b 7"]:
        """Return the `counts` of predicted labels."""
        assert isinstance(batch, TaggedBatch), "only `pack` creates the batches of this task"
        labels = [torch.where(batch.scored, x, 0) for x in (predicted, batch.targets)]
        strict, default = ([entities(x, batch.sentences, mode) for x in labels] for mode in ("strict", "default"))
        rows = [
            strict[0].common(strict[1]),
            strict[0].begins,
            strict[1].begins,
            default[0].common(default[1]),
            default[0].begins,
            (predicted == batch.targets) & batch.scored,
            batch.scored,
        ]
        return torch.stack([row.sum(1) for row in rows], 1).double()

    def pooled(self, counts: Float[Tensor, "b 7"]) -> tuple[Float[Tensor, " b"], dict[str, float]]:
        correct, predicted, true, default_correct, default_predicted, right, words = counts.T
        others = {
            "F1, default mode": ratio_of_sums(2 * default_correct, default_predicted + true),
            "token accuracy": ratio_of_sums(right, words),
        }
        return ratio_of_sums(2 * correct, predicted + true), {name: float(x.mean()) for name, x in others.items()}

    def baselines(self) -> list[Baseline]:
        return [
            Baseline(name="most frequent label", scores=self._frequent_labels, floor=True, fitted_on=self.sha256),
        ]

    def _frequent_labels(self, batch: Batch, lengths: Sequence[int]) -> Float[Tensor, "b 1"]:
        table = torch.zeros(len(self.words), len(self.labels), dtype=torch.int64)
        table.index_put_((self._words, self._labels), torch.ones_like(self._words), accumulate=True)
        labels = table.argmax(1)
        return self.pooled(self.label_counts(labels[batch.inputs], batch))[0][:, None]

    def render(self, batch: Batch) -> list[dict[str, Any]]:
        """Return the words and the labels, separated by spaces. Words without a score are part of the text."""
        assert isinstance(batch, TaggedBatch), "only `pack` creates the batches of this task"
        rows = []
        for n in range(len(batch)):
            end = int(batch.scored[n].nonzero().max()) + 1  # only padding follows the last scored word
            names = zip((self.words, self.labels), (batch.inputs[n, :end], batch.targets[n, :end]), strict=True)
            text, labels = (" ".join(some[i] for i in ids.tolist()) for some, ids in names)
            rows.append({"input": text, "target": labels, "length": int(batch.sentences[n, end - 1]) + 1})
        return rows

    def provenance(self) -> dict[str, str | int]:
        return {"data_sha256": self.sha256, "sentences": self.size, "words": int(self._starts[self.size])}

    def check_length(self, length: int, split: str = "test") -> None:
        super().check_length(length, split)
        if length > self.size:
            raise ConfigError(
                f"length must be at most the {self.size:,} sentences of the corpus, got {length:,}; take a shorter "
                "length or more sentences"
            )


def ratio_of_sums(numerators: Float[Tensor, " b"], denominators: Float[Tensor, " b"]) -> Float[Tensor, " b"]:
    """Return numbers whose mean is Σ numerators / Σ denominators, or 0 if all denominators are 0.

    Each is the ratio plus the first-order influence of its example, so the standard error of their mean is that of the
    ratio by the delta method.
    """
    mean = denominators.mean()
    if mean == 0:
        return torch.zeros_like(numerators)
    ratio = numerators.sum() / denominators.sum()
    return ratio + (numerators - ratio * denominators) / mean


@dataclass(frozen=True)
class Entities:
    """Entities in rows of labels: whether one begins at a slot, its type, and the slot after it."""

    begins: Bool[Tensor, "b t"]
    kinds: Int[Tensor, "b t"]
    ends: Int[Tensor, "b t"]

    def common(self, other: "Entities") -> Bool[Tensor, "b t"]:
        """Return where entities begin that both have."""
        return self.begins & other.begins & (self.kinds == other.kinds) & (self.ends == other.ends)


def entities(labels: Int[Tensor, "b t"], sentences: Int[Tensor, "b t"], mode: str) -> Entities:
    """Return the entities of labels: 0 is O, and 2n + 1 and 2n + 2 are B and I of the n-th type.

    A slot continues an entity if it has I and the slot before it B or I of the same type in the same sentence. `mode`:
    with "default", any other I begins an entity; with "strict" it belongs to none.
    """
    kinds, is_inside = (labels - 1) // 2, (labels > 0) & (labels % 2 == 0)
    continues = torch.zeros_like(is_inside)
    same = (kinds[:, 1:] == kinds[:, :-1]) & (sentences[:, 1:] == sentences[:, :-1]) & (labels[:, :-1] > 0)
    continues[:, 1:] = is_inside[:, 1:] & same
    begins = (labels % 2 == 1) if mode == "strict" else (labels > 0) & ~continues
    # The slot after an entity is the first later one that continues nothing.
    slots = torch.arange(labels.shape[1], device=labels.device)
    breaks = torch.where(continues, labels.shape[1], slots).flip(1).cummin(1).values.flip(1)
    ends = torch.nn.functional.pad(breaks[:, 1:], (0, 1), value=labels.shape[1])
    return Entities(begins, kinds, ends)


def corpus(settings: Mapping[str, Any]) -> TaggedSentences:
    """Return the sentences of a task with these settings. Raise `ConfigError` for a file that cannot be used."""
    path, count = settings["path"], settings["sentences"]
    if path == INVENTED:
        return invented_sentences(settings["seed"], count or SENTENCES)
    data = read_conll(path)
    if count > len(data):
        raise ConfigError(f"Tagging.sentences must be at most {len(data):,}, the sentences of {path}, got {count:,}")
    return data.first(count) if count else data
