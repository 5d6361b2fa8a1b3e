"""What retrieval tasks have in common: sentences inside a long text, a question at its end, and one correct answer.

A task is a pure function of a generator of random numbers and a depth. Names and numbers come from the generator, and
everything else of a prompt is the given text. A question repeats the beginning of the sentence that answers it, so a
model without training in answering questions can continue it.

In the format of a chat, the user's message has the text, a request and the question, and the answer of the model begins
with the question. So the tokens that have to be predicted are the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from lengthwise.config import Config, ConfigError

CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"
REQUEST = "Complete this with what the text above says:"
Encode = Callable[[str], list[int]]  # of the model's tokenizer, without tokens that it adds to every text


@dataclass(frozen=True)
class Needles:
    """Sentences with their places in the text, as shares of it, and a question with its answer."""

    sentences: Sequence[tuple[float, str]]
    question: str
    answer: str


RetrievalTask = Callable[[Random, float], Needles]
"""Makes an example from a generator and a depth. `measurements.reach.RETRIEVAL` describes each task."""


@dataclass(frozen=True, kw_only=True)
class Chat(Config):
    """What a model's chat template puts before the message of the user, and between it and the answer."""

    before: str
    after: str


@dataclass(frozen=True)
class Prompt:
    """An example in tokens. The last `answer` tokens are the answer, and each of them has to be predicted."""

    tokens: list[int]
    answer: int


def names(random: Random, count: int) -> list[str]:
    """Return different names of four syllables, which no text contains."""
    unique: dict[str, None] = {}
    while len(unique) < count:
        unique["".join(random.choice(CONSONANTS) + random.choice(VOWELS) for _ in range(4))] = None
    return list(unique)


def number(random: Random) -> str:
    """Return a number of five digits."""
    return f"{random.randrange(10_000, 100_000)}"


def assemble(
    needles: Needles,
    text: Sequence[int],
    encode: Encode,
    length: int,
    prefix: Sequence[int] = (),
    chat: Chat | None = None,
) -> Prompt:
    """Return the example with exactly `length` tokens, filled up with the beginning of `text`.

    `prefix`: tokens before every text, such as BOS; `chat` has its own instead. Raises `ConfigError` if the example
    itself is longer than three quarters of `length`, because then there would be little to search.
    """
    begin, request = "\n", []
    if chat is not None:
        begin, prefix = chat.after, encode(chat.before)
        request = encode(f"\n{REQUEST} {needles.question}")
    question = encode(f"{begin}{needles.question}")
    whole = encode(f"{begin}{needles.question} {needles.answer}")
    shared = next((n for n, (a, b) in enumerate(zip(question, whole, strict=False)) if a != b), len(question))
    sentences = [(place, encode(f"\n{sentence}\n")) for place, sentence in needles.sentences]
    used = len(prefix) + len(request) + len(whole) + sum(len(tokens) for _, tokens in sentences)
    if 4 * used > 3 * length:
        raise ConfigError(f"an example needs {used} tokens, which must be at most three quarters of {length}")
    filler = length - used
    tokens, start = list(prefix), 0
    for place, sentence in sorted(sentences, key=lambda item: item[0]):
        end = round(place * filler)
        tokens += [*text[start:end], *sentence]
        start = end
    tokens += [*text[start:filler], *request, *whole]
    return Prompt(tokens, len(whole) - min(shared, len(whole) - 1))
