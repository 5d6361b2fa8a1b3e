"""The tokenizer of an exported run, as a fast tokenizer of transformers with the same token IDs."""

from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from lengthwise.config import ConfigError
from lengthwise.corpora.tokenizers import ByteTokenizer, FileTokenizer
from lengthwise.tasks.base import Task

BOS = "<bos>"


def tokenizer_of(task: Task) -> Any | None:
    """Return the tokenizer of a task, which puts BOS before a text; None if its tokens stand for no text."""
    ours = task.text_tokenizer
    if isinstance(ours, ByteTokenizer):
        return _with_bos(_bytes(ours), ours.bos, BOS)
    if isinstance(ours, FileTokenizer):
        return _of_file(ours)
    words = task.token_words()
    return None if words is None else _words(words)


def _bytes(ours: ByteTokenizer) -> Tokenizer:
    """Return a tokenizer of the 256 bytes of UTF-8, which byte-level BPE names by printable characters."""
    vocab = {character: byte for byte, character in bytes_to_unicode().items()}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(BOS, special=True, normalized=False)])
    return tokenizer


def _of_file(ours: FileTokenizer) -> Any:
    tokenizer = Tokenizer.from_buffer(ours.files()["tokenizer.json"])
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if (name := tokenizer.id_to_token(ours.bos)) is None:
        name = BOS
        tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False)])
    eos = name if ours.eos is None else tokenizer.id_to_token(ours.eos)
    return _with_bos(tokenizer, ours.bos, eos, name)


def _words(words: Any) -> Any:
    """Return a tokenizer of words that spaces separate. The last three are BOS, SEP and EOS."""
    if any(word != word.strip() or len(word.split()) != 1 for word in words) or len(set(words)) != len(words):
        return None  # their text would not be split into the same words
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    bos, _, eos = words[-3:]
    tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in (bos, eos)])
    return _with_bos(tokenizer, len(words) - 3, eos, bos)


def _with_bos(tokenizer: Tokenizer, bos: int, eos: str | None, name: str = BOS) -> Any:
    if tokenizer.token_to_id(name) != bos:
        raise ConfigError(f"the tokenizer already has another token {name}; rename it in its tokenizer.json")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{name} $A", pair=f"{name} $A $B", special_tokens=[(name, bos)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=name,
        eos_token=eos,
        pad_token=eos,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        split_special_tokens=True,  # the name of a special token in a text is ordinary text, as in training
    )
