"""PCFG SET: apply nested functions to strings of symbols."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import count
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.tasks.base import generator
from lengthwise.tasks.finite import FiniteTask
from lengthwise.tasks.pairs import Pairs, pad_rows

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

LONGEST_TRAINED = 8
NUM_TRAINING = 81_010  # examples of 1 ... 8 functions
NUM_TESTS = dict(  # by length: examples of 9 ... 35 functions
    zip(
        [*range(9, 31), 32, 35],
        [3232, 2296, 1738, 1175, 811, 631, 411, 271, 225, 154, 103, 68, 67, 46, 34, 18, 28, 5, 6, 5, 2, 4, 2, 1],
        strict=True,
    )
)

MIN_STRING, MAX_STRING = 2, 5  # symbols in a string argument
MAX_LETTERS = 500  # a question's text is shorter than this
BLOCK = 1024  # trees that are drawn at once; another number gives another set of questions

# The arguments of a function, in their order: "s" is a string, "f" a function. A weight is 64 · P(unary or binary) ·
# Π P(string or function) · 6^functions. The last factor is the same for all trees with equally many functions, so it
# does not change their relative probabilities; with it trees rarely end early, and few draws are discarded.
KINDS = ("s", "f", "ss", "sf", "fs", "ff")
WEIGHTS = (36, 72, 9, 18, 18, 36)


class PCFG(FiniteTask):
    """Apply nested functions to strings (PCFG SET). `length` counts the functions of the question.

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

    The productivity split has 81,010 examples of 1 to 8 functions, of which one in 8 is held out by its hash to test at
    trained lengths. The 11,333 examples of 9 to 35 functions are for tests beyond, as many of each length as in the
    published test set (none of 31, 33 and 34). Strings have 2 to 5 symbols out of 520, and no string occurs twice among
    the questions of a length. `FiniteTask` describes what a training step draws.

    `longest`: the largest number of symbols in an answer; questions with longer answers are not in the set. Answers
    have no other bound, because `repeat` doubles a string, and every token slot of a batch costs time and memory. In
    the published test set 0.27 % of the answers have more than 100 symbols, the longest 736 and the median 12; in ours
    without a bound 0.26 %, the longest 268 and the median 11.

    The score is exact match: 1 if the whole answer and EOS are correct.

    Source: Hupkes et al. 2020, section 4; Kazemnejad et al. 2023, section 3.
    Differs: the set is our own and always the same. It has trees of the published grammar (a function is unary with
    probability 0.75, an argument is a function with probability 0.25, the text has fewer than 500 letters), given their
    number of functions. The published set drew both probabilities anew for each tree and then chose trees that resemble
    natural language; its longest test question has 71 words, ours 107. How many training examples the published set has
    of each length is not published. Ours are proportional to n² · 0.54^n, which continues into its test counts (n = 9:
    3,352 for 3,232; n = 10: 2,235 for 2,296).
    """

    unit = "functions"
    separator = "[SEP] "

    def __init__(self, *, longest: int = 100):
        self.check({"longest": longest})
        self.longest = longest
        super().__init__(WORDS, training_sizes() | NUM_TESTS, LONGEST_TRAINED)

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        if not 20 <= settings["longest"] <= 1000:
            raise ConfigError(f"PCFG.longest must be between 20 and 1000, got {settings['longest']}")
        return settings

    def all_examples(self, length: int) -> Pairs:
        return _examples(length, self.sizes[length], self.longest)

    def widths(self, length: int) -> tuple[int, int]:
        """Return the widths at this length; for a trained length, those up to it, because a batch mixes lengths."""
        self.check_length(length)
        sets = [self.all_examples(n) for n in (range(1, length + 1) if length <= self.longest_trained else [length])]
        return max(s.questions.shape[1] for s in sets), max(s.answers.shape[1] for s in sets)

    def length_of(self, question: Sequence[str], answer: Sequence[str]) -> int:
        return sum(word in UNARY or word in BINARY for word in question)

    def repository_text(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        return f"Solve: {' '.join(question)}", " ".join(answer)


def training_sizes() -> dict[int, int]:
    """Return the number of examples of each trained length, in proportion to n² · 0.54^n.

    What rounding leaves over goes to the lengths with the largest remainders.
    """
    weights = {n: n * n * 54**n * 100 ** (LONGEST_TRAINED - n) for n in range(1, LONGEST_TRAINED + 1)}  # exact integers
    total = sum(weights.values())
    sizes = {n: NUM_TRAINING * weight // total for n, weight in weights.items()}
    by_remainder = sorted(weights, key=lambda n: -(NUM_TRAINING * weights[n] % total))
    for n in by_remainder[: NUM_TRAINING - sum(sizes.values())]:
        sizes[n] += 1
    return sizes


# ---- the set of questions ---------------------------------------------------------------------------------------

_COMMA = len(FUNCTIONS)  # smaller ids are functions, unary ones first; larger ids are symbols
_REMOVE_FIRST, _REMOVE_SECOND = map(FUNCTIONS.index, ("remove_first", "remove_second"))
_BY_ID: list[Callable[..., list[int]]] = [*UNARY.values(), *BINARY.values()]
_ARGUMENTS = [",".join(kind)[::-1] for kind in KINDS]  # what follows a function, in reverse order


@lru_cache(maxsize=64)
def _examples(length: int, size: int, longest: int) -> Pairs:
    """Return the first `size` examples of `length` functions whose answers have at most `longest` symbols."""
    questions, answers = [], []
    for question in draw_questions(length):
        answer = answer_to(question, longest)
        if answer is not None:
            questions.append(question)
            answers.append(answer)
            if len(questions) == size:
                break
    return Pairs(pad_rows(questions), pad_rows(answers))


def draw_questions(length: int) -> Iterator[list[int]]:
    """Yield random trees with a short enough text as word ids, always the same ones. No string is repeated."""
    letters = [len(word) + 1 for word in WORDS]
    seen: set[int] = set()
    for block in count():
        g = generator("PCFG", length, block)
        kinds = draw_trees(g, BLOCK, length)
        unary = torch.randint(len(UNARY), (BLOCK, length), generator=g)
        binary = torch.randint(len(BINARY), (BLOCK, length), generator=g) + len(UNARY)
        functions = torch.where(kinds < 2, unary, binary)
        strings = _strings(g, BLOCK + int((kinds >= 2).sum()), seen)
        for tree_kinds, tree_functions in zip(kinds.tolist(), functions.tolist(), strict=True):
            question = _write_tree(tree_kinds, tree_functions, strings)
            if sum(letters[word] for word in question) <= MAX_LETTERS:  # the sum counts one space after the last word
                yield question


def draw_trees(generator: torch.Generator, count: int, size: int) -> Int[Tensor, "b n"]:
    """Draw random trees of `size` functions. Returns the kinds of the functions in prefix order (function before
    arguments).

    Independently drawn kinds with `size` - 1 function arguments in total form a tree after a rotation (the cycle
    lemma).
    Exactly one rotation works: it starts after the index where the number of open function arguments first reaches its
    minimum. Each tree comes from `size` rotations with equal probability, so its probability is proportional to the
    product of its kinds' weights.
    """
    below = torch.tensor([kind.count("f") for kind in KINDS])
    ends = torch.tensor(WEIGHTS).cumsum(0)
    trees, missing = [], count
    while missing > 0:
        uniform = torch.randint(int(ends[-1]), (8 * missing + 64, size), generator=generator)
        kinds = torch.searchsorted(ends, uniform, right=True)
        valid = kinds[below[kinds].sum(1) == size - 1][:missing]
        trees.append(valid)
        missing -= len(valid)
    kinds = torch.cat(trees)
    start = (below[kinds] - 1).cumsum(1).argmin(1) + 1
    return kinds.gather(1, (start[:, None] + torch.arange(size)) % size)


def _strings(generator: torch.Generator, count: int, seen: set[int]) -> Iterator[list[int]]:
    """Draw `count` random strings of symbols; a string that is in `seen` is drawn again."""
    columns = torch.arange(MAX_STRING)
    base = len(SYMBOLS) + 1
    rows = torch.zeros(count, MAX_STRING, dtype=torch.int64)
    missing = torch.arange(count)
    while len(missing):
        symbols = torch.randint(1, base, (len(missing), MAX_STRING), generator=generator)
        sizes = torch.randint(MIN_STRING, MAX_STRING + 1, (len(missing), 1), generator=generator)
        rows[missing] = symbols * (columns < sizes)
        repeated = []
        for row, key in zip(missing.tolist(), (rows[missing] * base**columns).sum(1).tolist(), strict=True):
            if key in seen:
                repeated.append(row)
            seen.add(key)
        missing = torch.tensor(repeated, dtype=torch.int64)
    flat: list[int] = (rows[rows > 0] + _COMMA).tolist()
    ends = (rows > 0).sum(1).cumsum(0).tolist()
    return (flat[start:end] for start, end in zip([0, *ends], ends, strict=False))


def _write_tree(kinds: Sequence[int], functions: Sequence[int], strings: Iterator[list[int]]) -> list[int]:
    """Return a tree as word ids: functions before their arguments, with a comma between two arguments."""
    nodes = zip(kinds, functions, strict=True)
    words, stack = [], ["f"]
    while stack:
        symbol = stack.pop()
        if symbol == "s":
            words += next(strings)
        elif symbol == ",":
            words.append(_COMMA)
        else:
            kind, function = next(nodes)
            words.append(function)
            stack += _ARGUMENTS[kind]
    return words


def answer_to(question: Sequence[int], longest: int) -> list[int] | None:
    """Return the answer's ids, or None if it is longer than `longest`; such answers are never computed in full."""

    def argument(start: int) -> tuple[list[int] | None, int]:
        """Return the value of the argument that starts here (None if longer than `longest`), and its end."""
        word = question[start]
        if word > _COMMA:
            stop = next((n for n in range(start, len(question)) if question[n] <= _COMMA), len(question))
            return list(question[start:stop]), stop
        first, stop = argument(start + 1)
        if word < len(UNARY):
            value = None if first is None else _BY_ID[word](first)
        else:
            second, stop = argument(stop + 1)  # after the comma
            if word in (_REMOVE_FIRST, _REMOVE_SECOND):
                return second if word == _REMOVE_FIRST else first, stop
            value = None if first is None or second is None else _BY_ID[word](first, second)
        return None if value is None or len(value) > longest else value, stop

    return argument(0)[0]
