"""SCAN: follow a command of a small grammar, action by action."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Literal

from jaxtyping import Int
from torch import Tensor

from lengthwise.tasks.given import GivenSet
from lengthwise.tasks.pairs import Pairs
from lengthwise.tasks.sequences import ragged

VERBS = {"walk": "I_WALK", "look": "I_LOOK", "run": "I_RUN", "jump": "I_JUMP"}
TURNS = {"left": "I_TURN_LEFT", "right": "I_TURN_RIGHT"}
TIMES = {"": 1, "twice": 2, "thrice": 3}
WORDS = (*VERBS, "turn", *TURNS, "opposite", "around", "twice", "thrice", "and", "after")
ACTIONS = (*VERBS.values(), *TURNS.values())
PUBLISHED = {action: action.removeprefix("I_").removeprefix("TURN_").capitalize() for action in ACTIONS}
TRAINED = {"length": 22, "length-all": 22, "tr25": 25}  # the most actions in training
MOST_WORDS = 9  # of a command: turn around left thrice after turn around left thrice

Phrase = tuple[tuple[str, ...], tuple[str, ...]]  # words, actions


class SCAN(GivenSet):
    """Follow a command of SCAN's grammar: all 20,910 of them. `length` counts the actions of the answer.

    Length 3, the scored targets underlined (the actions and EOS):

        inputs   BOS jump  twice and  turn left SEP       I_JUMP I_JUMP      I_TURN_LEFT
        targets  jump twice and  turn left SEP  I_JUMP    I_JUMP I_TURN_LEFT EOS
                                                ‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾

        command  phrase | phrase and phrase | phrase after phrase      (the second first)
        phrase   verb | verb twice | verb thrice
        verb     walk | look | run | jump                              I_WALK, ...
                 move left                                             turn left, then move
                 move opposite left                                    turn left twice, then move
                 move around left                                      four times: turn left, then move

    move: walk, look, run, jump or turn (which does nothing beyond the turns); right is like left.

    `split`: `length`, the published length split: up to 22 actions in training, 24 to 48 in tests; `tr25`, the split of
    the NoPE study, which divides the same set anew: up to 25 in training, 26 to 48 in tests. No command has 23, 29, 31, 34, 35,
    37 to 39 or 41 to 47 actions. Of the commands that are short enough for training one in 8 is held out by its hash, to test
    at trained lengths; only the 6 commands of one action, of which the hash holds none out, are in both splits. `length-all` is
    the published length split to the letter, which trains on all 16,990 of them and has no tests there. See `GivenSet` for what a
    training step draws.

    The score is exact match: 1 where all actions and EOS are right.

    Source: Lake and Baroni 2018; for tr25 Kazemnejad et al. 2023, section 3.
    Differs: the published length split trains on all of its 16,990 short commands and tests on none of them (`length-all`); the
    NoPE study held out a tenth of its 17,774, drawn at random. Its published text has other names for actions (see `texts`).
    """

    unit = "actions"
    separator = "[SEP] "

    def __init__(self, *, split: Literal["length", "length-all", "tr25"] = "length"):
        self.split = split
        super().__init__([*WORDS, *ACTIONS], sizes(), TRAINED[split], held_out=split != "length-all")

    def every(self, length: int) -> Pairs:
        return Pairs(*_commands(length))

    def widths(self, length: int) -> tuple[int, int]:
        return MOST_WORDS, length

    def length_of(self, question: Sequence[str], answer: Sequence[str]) -> int:
        return len(answer)

    def published(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        return f"Solve: {' '.join(question)}", " ".join(PUBLISHED[action] for action in answer)


@lru_cache(maxsize=1)
def sizes() -> Mapping[int, int]:
    """How many commands have so many actions."""
    alone = Counter(len(actions) for _, actions in phrases())
    pairs = Counter[int]()
    for (one, n), (other, m) in product(alone.items(), repeat=2):
        pairs[one + other] += 2 * n * m  # and, after
    return alone + pairs


@lru_cache(maxsize=1)
def phrases() -> tuple[Phrase, ...]:
    """The 102 phrases: each of 34 verbs once, twice and thrice."""
    return tuple(
        ((*words, *([often] if often else [])), actions * times)
        for words, actions in _verbs()
        for often, times in TIMES.items()
    )


def _verbs() -> list[Phrase]:
    found: list[Phrase] = [((verb,), (action,)) for verb, action in VERBS.items()]
    moves = [*((verb, (action,)) for verb, action in VERBS.items()), ("turn", ())]
    for (move, action), (side, turn) in product(moves, TURNS.items()):
        found.append(((move, side), (turn, *action)))
        found.append(((move, "opposite", side), (turn, turn, *action)))
        found.append(((move, "around", side), (turn, *action) * 4))
    return found


@lru_cache(maxsize=64)
def _commands(length: int) -> tuple[Int[Tensor, "b p"], Int[Tensor, "b a"]]:
    """Words and actions of all commands of so many actions, as ids."""
    found: list[Phrase] = [phrase for phrase in phrases() if len(phrase[1]) == length]
    for (words, actions), (more, others) in product(phrases(), repeat=2):
        if len(actions) + len(others) == length:
            found.append(((*words, "and", *more), actions + others))
            found.append(((*words, "after", *more), others + actions))
    ids = {word: n for n, word in enumerate((*WORDS, *ACTIONS))}
    questions = ragged([[ids[word] for word in words] for words, _ in found])
    return questions, ragged([[ids[action] for action in actions] for _, actions in found])
