"""Tokenizer files that are written by hand."""

import json
from pathlib import Path
from typing import Any

WORDS = ["the", "cat", "sat", "<s>", "</s>", "[UNK]"]


def word_level(**changes: Any) -> dict[str, Any]:
    """A tokenizer.json, written by hand: words at spaces, <s> = 3, </s> = 4, [UNK] = 5."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": n, "content": WORDS[n], **flags} for n in (3, 4, 5)],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {w: n for n, w in enumerate(WORDS)}, "unk_token": "[UNK]"},
    }
    return content | changes


def byte_level() -> dict[str, Any]:
    """A tokenizer.json with the 256 bytes and no merges, in the order of GPT-2's printable stand-ins."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [n for n in range(256) if n not in printable]
    letters = {n: chr(n) for n in printable} | {n: chr(256 + i) for i, n in enumerate(other)}
    vocab = {letters[n]: i for i, n in enumerate([*printable, *other])}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return word_level(
        added_tokens=[],
        pre_tokenizer=level,
        decoder=level,
        model={"type": "BPE", "vocab": vocab, "merges": []},
    )


def saved(folder: Path, content: dict[str, Any], config: Any = None) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(content))
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
