"""Byte-level BPE tokenizers that are trained on a corpus."""

import json
from collections.abc import Iterable

from lengthwise.corpora.tokenizers.base import decoded
from lengthwise.corpora.tokenizers.file import FileTokenizer
from lengthwise.values import ConfigError, missing_package

PREFIX = "bpe:"
FORM = "bpe:SIZE"
END = "<|endoftext|>"  # the only special token, as in GPT-2: `bos` and `eos`
MIN_SIZE, MAX_SIZE = 257, 1 << 20
MIN_FREQUENCY = 2  # of a pair of tokens that becomes a token


def trained_size(name: str) -> int | None:
    """Return the size of a tokenizer `bpe:SIZE`, or None for another name. Raise `ConfigError` for a wrong size."""
    if not name.startswith(PREFIX):
        return None
    text = name.removeprefix(PREFIX).replace("_", "")
    if not text.isascii() or not text.isdigit() or not MIN_SIZE <= int(text[:9]) <= MAX_SIZE:
        raise ConfigError(
            f"a trained tokenizer must have from {MIN_SIZE} to {MAX_SIZE:,} tokens, got {name!r}; write bpe:4096"
        )
    return int(text)


def train(documents: Iterable[bytes], size: int) -> FileTokenizer:
    """Return a byte-level BPE tokenizer of at most `size` token IDs, trained by the package `tokenizers`.

    It has the 256 bytes, `<|endoftext|>`, and the most frequent merges of pairs that occur at least twice; a small text
    may have too few of them. Text is first divided by the regular expression of GPT-2. The same documents give the same
    tokenizer.

    Source: Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units"; Radford et al. 2019,
    "Language Models are Unsupervised Multitask Learners", section 2.2, for bytes.
    """
    try:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    except ImportError as error:
        raise missing_package("training a tokenizer", "tokenizers", "data", error) from error
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        min_frequency=MIN_FREQUENCY,
        show_progress=False,
    )
    tokenizer.train_from_iterator((decoded([document])[0] for document in documents), trainer)
    content = json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, indent=1)
    config = json.dumps({"bos_token": END, "eos_token": END})
    return FileTokenizer(f"{PREFIX}{size}", content.encode(), config.encode())
