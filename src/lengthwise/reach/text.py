"""The given text in tokens, and the windows of it that the examples read. Imports no torch."""

import hashlib
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise.config import ConfigError
from lengthwise.reach.tasks.base import Encode

CHARACTERS = 8  # per token, for the first attempt to tokenize no more of the text than is needed
LONGEST_WORD = 200  # characters; a window begins within a longer one


@dataclass(frozen=True)
class Text:
    """A text file. `sha256`: the hash of its bytes."""

    path: Path
    content: str
    sha256: str


def read_text(name: str | Path, option: str = "--text") -> Text:
    """Return the text of a UTF-8 file. Raises `ConfigError` for anything else."""
    if not str(name).strip():
        raise ConfigError(f"{option} is empty; name a text file")
    path = Path(name)
    try:
        data = path.read_bytes()
        return Text(path, data.decode(), hashlib.sha256(data).hexdigest())
    except OSError as error:
        raise ConfigError(f"{option} {path} cannot be read ({error.strerror or error}); name a text file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{option} {path} is not UTF-8 (byte {error.start:,}); convert it, or name another text file"
        ) from None


def windows(
    text: Text, encode: Encode, longest: int, targets: int, examples: int
) -> tuple[list[Sequence[int]], dict[str, Any]]:
    """Return windows of `longest` tokens, evenly spaced over the whole text, and where they begin; at most `examples`.

    Starts are counted from 0 in a unit. "tokens": of the tokens of the whole text, without those that a tokenizer adds.
    "characters": of its Unicode characters; the window has the first tokens of the text from there.

    Only the windows of a long text are tokenized. In a short text they overlap, but never the last `targets` tokens of
    two of them, so it has fewer windows. Raises `ConfigError` if the text is shorter than a window.
    """
    if len(text.content) > CHARACTERS * longest * examples:
        ends = [_word_boundary(text.content, len(text.content) * n // examples) for n in range(examples + 1)]
        extracts = [_beginning(text.content[start:end], encode, longest) for start, end in itertools.pairwise(ends)]
        if all(len(tokens) == longest for tokens in extracts):
            return extracts, {"unit": "characters", "starts": ends[:-1]}
    tokens = encode(text.content)
    free = len(tokens) - longest
    if free < 0:
        raise ConfigError(
            f"--text {text.path} has {len(tokens):,} tokens, fewer than the longest length of {longest:,}; name a "
            "longer text, or shorter --lengths"
        )
    count = min(examples, 1 + free // targets)
    starts = [0] if count == 1 else [free * n // (count - 1) for n in range(count)]
    return [tokens[start : start + longest] for start in starts], {"unit": "tokens", "starts": starts}


def _word_boundary(content: str, place: int) -> int:
    """Return the first place from `place` on where a space is, or `place` if there is none nearby; 0 stays."""
    space = re.compile(r"\s").search(content, place, place + LONGEST_WORD) if place else None
    return space.start() if space else place


def _beginning(content: str, encode: Encode, count: int) -> Sequence[int]:
    """Return the first `count` tokens of a part of a text, or all if it has fewer."""
    characters = CHARACTERS * count
    while True:
        tokens = encode(content[:characters])
        if characters >= len(content) or len(tokens) > count:  # the last token of an extract may be cut off
            return tokens[:count]
        characters *= 2
