"""PCFG SET: carry out nested functions on strings of symbols."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import count
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.config import ConfigError, near_miss
from lengthwise.tasks.base import generator
from lengthwise.tasks.given import GivenSet
from lengthwise.tasks.pairs import Pairs
from lengthwise.tasks.sequences import ragged

UNARY: dict[str, Callable[[list[Any]], list[Any]]] = {
    "copy": lambda x: x,
    "reverse": lambda x: x[::-1],
    "shift": lambda x: x[1:] + x[:1],
    "echo": lambda x: x + x[-1:],
    "swap_first_last": lambda x: x[-1:] + x[1:-1] + x[:1] if len(x) > 1 else x,
    "repeat": lambda x: x + x,
}
BINARY: dict[str, Callable[[list[Any], list[Any]], list[Any]]] = {
    "append": lambda x, y: x + y,
    "prepend": lambda x, y: y + x,
    "remove_first": lambda x, y: y,
    "remove_second": lambda x, y: x,
}
FUNCTIONS = (*UNARY, *BINARY)
COMMA = ","
SYMBOLS = tuple(f"{letter}{n}" for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" for n in range(1, 21))
WORDS = (*FUNCTIONS, COMMA, *SYMBOLS)

TRAINED = 8
TRAINING = 81_010  # examples of 1 ... 8 functions
TESTS = dict(  # examples of 9 ... 35 functions
    zip(
        [*range(9, 31), 32, 35],
        [3232, 2296, 1738, 1175, 811, 631, 411, 271, 225, 154, 103, 68, 67, 46, 34, 18, 28, 5, 6, 5, 2, 4, 2, 1],
        strict=True,
    )
)

SHORTEST, LONGEST = 2, 5  # symbols of a string argument
LETTERS = 500  # a question's text is shorter than this
BLOCK = 1024  # trees that are drawn at once; another number is another set

# A function's arguments, in their order: "s" a string, "f" a function. A weight is 64 · P(unary or binary) · Π P(string or
# function) · 6^functions. The last factor is the same for all trees of so many functions, so it changes no chances
# among these; with it a tree does not die out early, and few draws are in vain.
KINDS = ("s", "f", "ss", "sf", "fs", "ff")
WEIGHTS = (36, 72, 9, 18, 18, 36)


class PCFG(GivenSet):
    """Carry out nested functions on strings (PCFG SET). `length` counts the functions of the question.

    Length 2, the scored targets underlined (the answer and EOS):

        inputs   BOS    append echo A1 B2 ,  C3 D4  SEP A1 B2 B2 C3 D4
        targets  append echo   A1   B2 ,  C3 D4 SEP A1  B2 B2 C3 D4 EOS
                                                    ‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾

        copy x             x                         append x , y          x y
        reverse x          x from its end            prepend x , y         y x
        shift x            its first symbol last     remove_first x , y    y
        echo x             its last symbol twice     remove_second x , y   x
        swap_first_last x  its ends exchanged
        repeat x           x x

    The productivity split: 81,010 examples of 1 to 8 functions, of which one in 8 is held out by its hash to test at trained
    lengths; 11,333 of 9 to 35 functions to test beyond, as many of each length as the published test set has (none of 31, 33
    and 34). Strings have 2 to 5 of 520 symbols, and none occurs twice among the questions of a length. See `GivenSet` for
    what a training step draws.

    `longest`: answers have at most so many symbols; a question with a longer one is not in the set. `repeat` doubles, so there
    is no other bound: of the published test set 0.27 % have answers beyond 100 symbols, up to 736 where half have 12 or
    fewer (0.26 %, up to 268, and 11 in ours without a bound), and every position of a batch costs time and memory.

    The score is exact match: 1 where the whole answer and EOS are right.

    Source: Hupkes et al. 2020, section 4; Kazemnejad et al. 2023, section 3.
    Differs: the set is our own, always the same: trees of the published grammar (a function is unary with chance 0.75, an
    argument is a function with chance 0.25, text below 500 letters), given their number of functions. The published set
    drew both chances anew for each tree and then picked trees that resemble natural language; its longest test question has
    71 words, ours 107.
    How many training examples it has of each length is not published; ours go by n² · 0.54^n, which goes on
    into its test counts (n = 9: 3,352 for 3,232; n = 10: 2,235 for 2,296).
    """

    unit = "functions"
    separator = "[SEP] "

    def __init__(self, *, longest: int = 100):
        self.check({"longest": longest})
        self.longest = longest
        super().__init__(WORDS, training_sizes() | TESTS, TRAINED)

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        if not 20 <= settings["longest"] <= 1000:
            raise ConfigError(f"PCFG.longest is {settings['longest']}; it has to lie in 20 ... 1000")
        return settings

    def every(self, length: int) -> Pairs:
        return _examples(length, self.sizes[length], self.longest)

    def widths(self, length: int) -> tuple[int, int]:
        """Those of the set itself; of all shorter lengths too where a training batch may have them."""
        self.check_length(length)
        sets = [self.every(n) for n in (range(1, length + 1) if length <= self.trained else [length])]
        return max(s.questions.shape[1] for s in sets), max(s.answers.shape[1] for s in sets)

    def length_of(self, question: Sequence[str], answer: Sequence[str]) -> int:
        return sum(word in UNARY or word in BINARY for word in question)

    def published(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        return f"Solve: {' '.join(question)}", " ".join(answer)


def interpret(question: Sequence[str]) -> list[str]:
    """What a question's functions make of its strings: `append A1 B2 , C3` → A1 B2 C3. `ConfigError` for no such question."""
    for word in question:
        if word not in WORDS:
            raise ConfigError(f"PCFG has no word {word!r}{near_miss(word, WORDS)}")
    try:
        answer = _answer([WORDS.index(word) for word in question])
    except IndexError:
        raise ConfigError(
            f"{' '.join(question)!r} is no question of PCFG: after a function comes its argument, or two with a comma between "
            "them; an argument is a function or a string of symbols, and nothing comes after the last"
        ) from None
    assert answer is not None, "no bound was given"
    return [WORDS[n] for n in answer]


def training_sizes() -> dict[int, int]:
    """Examples of each trained length, in proportion to n² · 0.54^n; what rounding leaves goes to the largest remainders."""
    weights = {n: n * n * 54**n * 100 ** (TRAINED - n) for n in range(1, TRAINED + 1)}  # whole numbers: exact
    total = sum(weights.values())
    sizes = {n: TRAINING * weight // total for n, weight in weights.items()}
    rest = sorted(weights, key=lambda n: -(TRAINING * weights[n] % total))
    for n in rest[: TRAINING - sum(sizes.values())]:
        sizes[n] += 1
    return sizes


# ---- the set ----------------------------------------------------------------------------------------------------

_COMMA = len(FUNCTIONS)  # ids below are functions, unary ones first; ids above are symbols
_REMOVE_FIRST, _REMOVE_SECOND = map(FUNCTIONS.index, ("remove_first", "remove_second"))
_BY_ID: list[Callable[..., list[int]]] = [*UNARY.values(), *BINARY.values()]
_PARTS = [",".join(kind)[::-1] for kind in KINDS]  # what comes after a function, the last first


@lru_cache(maxsize=64)
def _examples(length: int, size: int, longest: int) -> Pairs:
    """The first `size` examples of so many functions with an answer of at most `longest` symbols, always the same."""
    questions, answers = [], []
    for question in _questions(length):
        answer = _answer(question, longest)
        if answer is not None:
            questions.append(question)
            answers.append(answer)
            if len(questions) == size:
                break
    return Pairs(ragged(questions), ragged(answers))


def _questions(length: int) -> Iterator[list[int]]:
    """Random trees whose text is short enough, as ids of words, without end; always the same, no string twice in them."""
    letters = [len(word) + 1 for word in WORDS]
    seen: set[int] = set()
    for block in count():
        draws = generator("PCFG", length, block)
        kinds = _trees(draws, BLOCK, length)
        unary = torch.randint(len(UNARY), (BLOCK, length), generator=draws)
        binary = torch.randint(len(BINARY), (BLOCK, length), generator=draws) + len(UNARY)
        functions = torch.where(kinds < 2, unary, binary)
        strings = _strings(draws, BLOCK + int((kinds >= 2).sum()), seen)
        for kind, names in zip(kinds.tolist(), functions.tolist(), strict=True):
            question = _written(kind, names, strings)
            if sum(letters[word] for word in question) <= LETTERS:  # the last space is none
                yield question


def _trees(draws: torch.Generator, number: int, size: int) -> Int[Tensor, "b n"]:
    """Random trees of `size` functions: each one's kind, as they are written (a function before its arguments).

    Kinds drawn one by one are a tree, read from the right place of a circle, if they have `size` - 1 arguments that are
    functions: then there is one such place, the one after which the functions still missing are fewest for the first
    time. Each tree is read from `size` circles of the same chance, so its chance is the product of its kinds' weights.
    """
    below = torch.tensor([kind.count("f") for kind in KINDS])
    ends = torch.tensor(WEIGHTS).cumsum(0)
    found, missing = [], number
    while missing > 0:
        drawn = torch.randint(int(ends[-1]), (8 * missing + 64, size), generator=draws)
        kinds = torch.searchsorted(ends, drawn, right=True)
        fits = kinds[below[kinds].sum(1) == size - 1][:missing]
        found.append(fits)
        missing -= len(fits)
    kinds = torch.cat(found)
    start = (below[kinds] - 1).cumsum(1).argmin(1) + 1
    return kinds.gather(1, (start[:, None] + torch.arange(size)) % size)


def _strings(draws: torch.Generator, number: int, seen: set[int]) -> Iterator[list[int]]:
    """So many random strings of symbols; one that was `seen` before is drawn again."""
    places = torch.arange(LONGEST)
    base = len(SYMBOLS) + 1
    rows = torch.zeros(number, LONGEST, dtype=torch.int64)
    again = torch.arange(number)
    while len(again):
        symbols = torch.randint(1, base, (len(again), LONGEST), generator=draws)
        sizes = torch.randint(SHORTEST, LONGEST + 1, (len(again), 1), generator=draws)
        rows[again] = symbols * (places < sizes)
        twice = []
        for at, key in zip(again.tolist(), (rows[again] * base**places).sum(1).tolist(), strict=True):
            if key in seen:
                twice.append(at)
            seen.add(key)
        again = torch.tensor(twice, dtype=torch.int64)
    flat: list[int] = (rows[rows > 0] + _COMMA).tolist()
    ends = (rows > 0).sum(1).cumsum(0).tolist()
    return (flat[begin:end] for begin, end in zip([0, *ends], ends, strict=False))


def _written(kinds: Sequence[int], functions: Sequence[int], strings: Iterator[list[int]]) -> list[int]:
    """A tree as words: functions with commas between two arguments."""
    nodes = zip(kinds, functions, strict=True)
    found, todo = [], ["f"]
    while todo:
        part = todo.pop()
        if part == "s":
            found += next(strings)
        elif part == ",":
            found.append(_COMMA)
        else:
            kind, function = next(nodes)
            found.append(function)
            todo += _PARTS[kind]
    return found


def _answer(question: Sequence[int], longest: int | None = None) -> list[int] | None:
    """The answer's ids; None where it is longer than `longest`, which is found out without making it.

    `IndexError` for what is no question.
    """
    end = len(question)

    def argument(at: int) -> tuple[list[int] | None, int]:
        """The value of the argument that begins at a place, and where the next begins. None: longer than `longest`."""
        word = question[at]
        if word > _COMMA:
            to = at + 1
            while to < end and question[to] > _COMMA:
                to += 1
            return list(question[at:to]), to
        if word == _COMMA:
            raise IndexError("a comma is no argument")
        first, to = argument(at + 1)
        if word < len(UNARY):
            return bounded(None if first is None else _BY_ID[word](first)), to
        if question[to] != _COMMA:
            raise IndexError("no comma")
        second, to = argument(to + 1)
        if word == _REMOVE_FIRST:
            return second, to
        if word == _REMOVE_SECOND:
            return first, to
        return bounded(None if first is None or second is None else _BY_ID[word](first, second)), to

    def bounded(value: list[int] | None) -> list[int] | None:
        return None if value is None or (longest is not None and len(value) > longest) else value

    answer, to = argument(0)
    if to < end:
        raise IndexError("words after the last argument")
    return answer
