"""SCAN against its published counts and examples, and against a second reading of its grammar."""

import functools
import hashlib
import itertools
import re
from collections import Counter

import pytest
import torch

from lengthwise.config import ConfigError
from lengthwise.tasks import SCAN, generator
from lengthwise.tasks.splits import held_out

# The published length split, actions: commands.
TRAIN = {
    1: 6,
    2: 88,
    3: 398,
    4: 860,
    5: 1184,
    6: 1178,
    7: 1104,
    8: 1450,
    9: 1256,
    10: 1696,
    11: 1072,
    12: 1578,
    13: 432,
}
TRAIN |= {14: 848, 15: 688, 16: 304, 17: 512, 18: 784, 19: 448, 20: 464, 21: 64, 22: 576}
TEST = {24: 336, 25: 448, 26: 512, 27: 448, 28: 448, 30: 576, 32: 448, 33: 256, 36: 64, 40: 256, 48: 128}

# SHA-256 of all lines "IN: ... OUT: ...", sorted by code point, each with a line feed: `LC_ALL=C sort tasks.txt |
# sha256sum` of the published file. That file is in random order; put into it, the lines of the task have its own
# SHA-256, d824c7d9... (docs/log/2026-11-21.md). Two programs that were written apart give the lines: the task, and
# `second` below.
CHECKSUM = "6be4b39bc8bf3a20be810b6991250d0493e608560609db6765dd679e1ed1c98e"

# Rows and bytes of the published files that a rule makes of the whole set: of the splits, training and test. From
# datasets/scan/dataset_infos.json of huggingface/datasets, commit 040102f1 (rows, and bytes of each file downloaded).
FILES = {
    "length": ((16_990, 2_723_418), (3920, 1_356_970)),
    "addprim_jump": ((14_670, 2_579_619), (7706, 1_531_555)),
    "addprim_turn_left": ((21_890, 3_974_537), (1208, 173_679)),
    "template_right": ((15_225, 3_173_282), (4476, 729_823)),
    "template_opposite_right": ((15_225, 2_990_057), (4476, 871_363)),
    "template_around_right": ((15_225, 2_558_693), (4476, 1_243_177)),
    "template_jump_around_right": ((18_528, 3_468_272), (1173, 333_598)),
}


@functools.cache
def whole(**settings):
    """Everything in the task with these settings: split, question, answer."""
    task = SCAN(**settings)
    return [
        (split, *pair)
        for length in task.lengths()
        for split, pairs in task.whole(length).items()
        for pair in task.pairs(task.pack(pairs))
    ]


def line(question, answer):
    return f"IN: {' '.join(question)} OUT: {' '.join(answer)}"


def checksum(lines):
    return hashlib.sha256("".join(f"{one}\n" for one in sorted(lines)).encode()).hexdigest()


# ---- the second program: every row of words, and what each means by rewriting text ------------------------------


@functools.cache
def second():
    heads = ["walk", "look", "run", "jump"]
    sides = [" ".join(row) for row in itertools.product(["", "opposite", "around"], ["left", "right"])]
    simple = heads + [f"{head} {side.strip()}" for head in [*heads, "turn"] for side in sides]
    often = [f"{verb} {times}".strip() for verb in simple for times in ("", "twice", "thrice")]
    both = [f"{one} {word} {other}" for one in often for word in ("and", "after") for other in often]
    return {command: meaning(command) for command in [*often, *both]}


def meaning(command):
    if " and " in command:
        first, then = command.split(" and ")
        return meaning(first) + meaning(then)
    if " after " in command:
        first, then = command.split(" after ")
        return meaning(then) + meaning(first)
    if command.endswith(" twice"):
        return meaning(command.removesuffix(" twice")) * 2
    if command.endswith(" thrice"):
        return meaning(command.removesuffix(" thrice")) * 3
    words = command.split()
    move = [] if words[0] == "turn" else ["I_" + words[0].upper()]
    if len(words) == 1:
        return move
    turn = ["I_TURN_" + words[-1].upper()]
    if "opposite" in words:
        return turn + turn + move
    return (turn + move) * (4 if "around" in words else 1)


@pytest.mark.parametrize("split", ["length", "length-all", "tr25"])
def test_the_whole_set_is_that_of_a_second_program_with_the_published_counts(split):
    found = whole(split=split)
    lines = [line(question, answer) for _, question, answer in found]
    again = [line(command.split(), actions) for command, actions in second().items()]
    assert len(lines) == len(set(lines)) == 20_910
    assert checksum(lines) == checksum(again) == CHECKSUM
    assert Counter(len(answer) for _, _, answer in found) == TRAIN | TEST
    assert sum(TRAIN.values()) == 16_990
    assert sum(TEST.values()) == 3920
    words = Counter(len(question) for _, question, _ in found)
    assert (min(words), max(words)) == (1, 9)


@pytest.mark.parametrize(("name", "files"), FILES.items())
def test_the_published_files_have_as_many_rows_and_bytes(name, files):
    lines = {" ".join(question): f"{line(question, answer)}\n" for _, question, answer in whole()}
    assert sum(len(text) for text in lines.values()) == 4_080_388  # tasks.txt, and the two files of the simple split
    train, test = published_split(name, lines)
    if name.startswith("addprim"):  # training repeats the one primitive until it has so many rows
        primitive = name.removeprefix("addprim_").replace("_", " ")
        train += [lines[primitive]] * (files[0][0] - len(train))
    assert tuple((len(part), sum(map(len, part))) for part in (train, test)) == files


def published_split(name, lines):
    """Lines of the training and of the test file, by the rules of the SCAN papers."""
    if name == "length":
        later = {command for command, text in lines.items() if text.count("I_") > 22}
        return [t for c, t in lines.items() if c not in later], [lines[c] for c in later]
    kind, _, words = name.replace("_", " ").partition(" ")
    if kind == "addprim":  # no command but the primitive alone has it in training
        held = {command for command in lines if words in command and command != words}
        return [t for c, t in lines.items() if c not in held], [lines[c] for c in held]
    # Templates: turn has no part in them, so that commands with `turn right` and so on are in neither file.
    held = {c for c in lines if re.search(words if "jump" in words else rf"(walk|look|run|jump) {words}", c)}
    neither = {c for c in lines if f"turn {words.removeprefix('jump ')}" in c}
    left_out = held | neither
    return [t for c, t in lines.items() if c not in left_out], [lines[c] for c in held - neither]


@pytest.mark.parametrize(
    ("command", "actions"),
    [
        ("jump opposite left after walk around left", "L W L W L W L W L L J"),
        ("turn opposite right thrice after turn around left", "L L L L R R R R R R"),
        ("jump around right", "R J R J R J R J"),
        ("jump twice and turn left", "J J L"),
        ("look right thrice", "R K R K R K"),
    ],
)
def test_published_commands(command, actions):
    named = {"L": "TURN_LEFT", "R": "TURN_RIGHT", "W": "WALK", "J": "JUMP", "K": "LOOK"}
    wanted = [f"I_{named[one]}" for one in actions.split()]
    task = SCAN()
    found = [
        a for pairs in task.whole(len(wanted)).values() for q, a in task.pairs(task.pack(pairs)) if q == command.split()
    ]
    assert found == [wanted]


@pytest.mark.parametrize(("split", "trained", "beyond"), [("length", 22, 3920), ("tr25", 25, 3136)])
def test_splits(split, trained, beyond):
    """Longer ones are all for tests; of the others one in 8."""
    task = SCAN(split=split)
    by_split = {"train": [], "test": [], "train and test": []}
    for where, question, answer in whole(split=split):
        by_split[where].append((question, len(answer)))
    assert max(n for _, n in by_split["train"]) == trained
    assert sum(n > trained for _, n in by_split["test"]) == beyond
    assert {n for _, n in by_split["train and test"]} == {1}  # 6 commands, too few to split
    inside = [question for question, n in by_split["test"] if n <= trained]
    assert len(inside) / (20_910 - beyond) == pytest.approx(1 / 8, abs=0.01)
    rows = [[*task.ids(question), *[-1] * (9 - len(question))] for question in inside]
    assert held_out(torch.tensor(rows)).all()
    for length in (trained + 1, 30, 48):
        if length in task.sizes:
            assert task.available(length) == (TRAIN | TEST)[length]


def test_the_published_length_split_to_the_letter():
    """It trains on all 16,990 short commands, and has no tests at their lengths."""
    task = SCAN(split="length-all")
    by_split = {"train": Counter(), "test": Counter()}
    for where, _, answer in whole(split="length-all"):
        by_split[where][len(answer)] += 1
    assert by_split == {"train": TRAIN, "test": TEST}
    batch = task.training_batch(generator(0), 2000, 1, 22)
    inside = {tuple(q) for q, _ in task.pairs(batch)}
    assert any(held_out(torch.tensor([[*task.ids(q), *[-1] * (9 - len(q))]])).all() for q in inside)
    task.check_length(24)
    with pytest.raises(
        ConfigError,
        match=r"trains on every example of up to 22 actions, so it has no test of 10; take at least 24",
    ):
        task.check_length(10)
    task.check_length(10, "train")
    assert task.note(10) is None
    assert len(task.pairs(task.sample(generator(0), 5, 10, "train"))) == 5


def test_what_a_training_step_draws():
    """Every training example of the lengths asked for has the same chance, and no other has any."""
    task = SCAN()
    drawn = Counter()
    for seed in range(40):
        batch = task.training_batch(generator(seed), 1000, 3, 22)
        assert batch.inputs.shape[1] <= task.tokens(22)
        drawn.update((tuple(q), len(a)) for q, a in task.pairs(batch))
    allowed = {(tuple(q), len(a)) for split, q, a in whole() if split == "train" and len(a) >= 3}
    assert set(drawn) <= allowed
    total = Counter(n for _, n in allowed)
    for length, number in total.items():
        share = sum(count for (_, n), count in drawn.items() if n == length) / 40_000
        expected = number / len(allowed)
        assert share == pytest.approx(expected, abs=5 * (expected / 40_000) ** 0.5)
    one = task.training_batch(generator(0), 50, 22, 22)
    assert {len(a) for _, a in task.pairs(one)} == {22}
    again = SCAN()
    again.training_batch(generator(1), 5, 1, 9)  # what was drawn before changes nothing
    assert again.training_batch(generator(7), 50, 3, 22).inputs.equal(
        task.training_batch(generator(7), 50, 3, 22).inputs
    )


def test_lengths_without_commands():
    task = SCAN()
    assert [n for n in range(1, 49) if n not in task.sizes] == [23, 29, 31, 34, 35, 37, 38, 39, *range(41, 48)]
    for length, near in ((23, "22 and 24"), (38, "36 and 40"), (49, "48")):
        with pytest.raises(ConfigError, match=rf"SCAN has no example of {length} actions; the nearest .* {near}$"):
            task.check_length(length)
    with pytest.raises(ConfigError, match=r"training length must be at most 22 actions for SCAN, got 24"):
        task.check_length(24, "train")
    with pytest.raises(ConfigError, match="at most 25 actions for SCAN, got 26"):
        SCAN(split="tr25").check_length(26, "train")
    with pytest.raises(ConfigError, match="at most 22 actions for SCAN, got 24"):
        task.training_batch(generator(0), 4, 1, 24)
    SCAN(split="tr25").check_length(25, "train")


def test_published_text():
    task = SCAN()
    texts = {t["prompt"]: t for t in task.texts(task.pack(task.all_examples(2)))}
    assert texts["Solve: jump left"] == {"prompt": "Solve: jump left", "separator": "[SEP] ", "target": "Left Jump"}
    names = {word for text in task.texts(task.pack(task.all_examples(11))) for word in text["target"].split()}
    assert names == {"Walk", "Run", "Jump", "Look", "Left", "Right"}
