"""SCAN: translate a command of a small grammar into actions."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Literal

from jaxtyping import Int
from torch import Tensor

from lengthwise.tasks.finite import FiniteTask
from lengthwise.tasks.pairs import Pairs, pad_rows

VERBS = {"walk": "I_WALK", "look": "I_LOOK", "run": "I_RUN", "jump": "I_JUMP"}
TURNS = {"left": "I_TURN_LEFT", "right": "I_TURN_RIGHT"}
TIMES = {"": 1, "twice": 2, "thrice": 3}
WORDS = (*VERBS, "turn", *TURNS, "opposite", "around", "twice", "thrice", "and", "after")
ACTIONS = (*VERBS.values(), *TURNS.values())
REPOSITORY_ACTIONS = {action: action.removeprefix("I_").removeprefix("TURN_").capitalize() for action in ACTIONS}
LONGEST_TRAINED = {"length": 22, "length-all": 22, "tr25": 25}  # actions, by split
MAX_WORDS = 9  # of a command: turn around left thrice after turn around left thrice

Phrase = tuple[tuple[str, ...], tuple[str, ...]]  # words, actions


class SCAN(FiniteTask):
    """Translate a command of SCAN's grammar, one of 20,910, into actions. `length` counts the actions of the answer.

    Length 3, the scored targets underlined (the actions and EOS):

        inputs   BOS jump  twice and  turn left SEP       I_JUMP I_JUMP      I_TURN_LEFT
        targets  jump twice and  turn left SEP  I_JUMP    I_JUMP I_TURN_LEFT EOS
                                                ‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾

        command  phrase | phrase and phrase | phrase after phrase      (after: the second comes first)
        phrase   verb | verb twice | verb thrice
        verb     walk | look | run | jump                              I_WALK, ...
                 move left                                             turn left, then move
                 move opposite left                                    turn left twice, then move
                 move around left                                      four times: turn left, then move

    move: walk, look, run, jump or turn (which adds no action to the turns); right works like left.

    `split`:

    - `length`: the published length split, with up to 22 actions in training and 24 to 48 in tests.
    - `tr25`: the split of the NoPE study, which divides the same set differently: up to 25 in training, 26 to 48 in
      tests.
    - `length-all`: exactly the published length split, which trains on all 16,990 short commands and has no tests at
      their lengths.

    No command has 23, 29, 31, 34, 35, 37 to 39 or 41 to 47 actions. In `length` and `tr25`, one in 8 of the commands
    that are short enough for training is held out by its hash, to test at trained lengths. Only the 6 commands of one
    action are in both splits, because the hash holds none of them out. `FiniteTask` describes what a training step
    draws.

    The score is exact match: 1 if all actions and EOS are correct.

    Source: Lake and Baroni 2018; for tr25 Kazemnejad et al. 2023, section 3.
    Differs: the published length split trains on all of its 16,990 short commands and tests on none of them
    (`length-all`); the NoPE study held out a random tenth of its 17,774. Its published text has other names for actions
    (see `texts`).
    """

    unit = "actions"
    separator = "[SEP] "

    def __init__(self, *, split: Literal["length", "length-all", "tr25"] = "length"):
        self.split = split
        super().__init__([*WORDS, *ACTIONS], sizes(), LONGEST_TRAINED[split], held_out=split != "length-all")

    def all_examples(self, length: int) -> Pairs:
        return Pairs(*_commands(length))

    def widths(self, length: int) -> tuple[int, int]:
        return MAX_WORDS, length

    def length_of(self, question: Sequence[str], answer: Sequence[str]) -> int:
        return len(answer)

    def repository_text(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        return f"Solve: {' '.join(question)}", " ".join(REPOSITORY_ACTIONS[action] for action in answer)


@lru_cache(maxsize=1)
def sizes() -> Mapping[int, int]:
    """Return the number of commands by their number of actions."""
    single = Counter(len(actions) for _, actions in phrases())
    pairs = Counter[int]()
    for (first_length, n), (second_length, m) in product(single.items(), repeat=2):
        pairs[first_length + second_length] += 2 * n * m  # joined by "and" or by "after"
    return single + pairs


@lru_cache(maxsize=1)
def phrases() -> tuple[Phrase, ...]:
    """Return the 102 phrases: each of 34 verbs once, twice and thrice."""
    return tuple(
        ((*words, *([adverb] if adverb else [])), actions * times)
        for words, actions in _verbs()
        for adverb, times in TIMES.items()
    )


def _verbs() -> list[Phrase]:
    verbs: list[Phrase] = [((verb,), (action,)) for verb, action in VERBS.items()]
    moves = [*((verb, (action,)) for verb, action in VERBS.items()), ("turn", ())]
    for (move, action), (side, turn) in product(moves, TURNS.items()):
        verbs.append(((move, side), (turn, *action)))
        verbs.append(((move, "opposite", side), (turn, turn, *action)))
        verbs.append(((move, "around", side), (turn, *action) * 4))
    return verbs


@lru_cache(maxsize=64)
def _commands(length: int) -> tuple[Int[Tensor, "b p"], Int[Tensor, "b a"]]:
    commands: list[Phrase] = [phrase for phrase in phrases() if len(phrase[1]) == length]
    for (words, actions), (more_words, more_actions) in product(phrases(), repeat=2):
        if len(actions) + len(more_actions) == length:
            commands.append(((*words, "and", *more_words), actions + more_actions))
            commands.append(((*words, "after", *more_words), more_actions + actions))
    ids = {word: n for n, word in enumerate((*WORDS, *ACTIONS))}
    questions = pad_rows([[ids[word] for word in words] for words, _ in commands])
    return questions, pad_rows([[ids[action] for action in actions] for _, actions in commands])
