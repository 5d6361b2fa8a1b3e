"""The two wordings of the NoPE study: what its paper prints, and what its repository makes of the same words."""

import pytest

from lengthwise.config import ConfigError
from lengthwise.tasks import LEGO, PCFG, SCAN, Addition, Copy, Parity, Polynomial, Reverse, Sorting, Summation
from lengthwise.tasks.base import generator

# Task, question, answer; prompt and target as printed (appendix D.1; of addition, table 1), and as the repository's.
PRINTED = [
    (
        Addition(), "5 3 7 2 6 + 1 9 1 7", "5 5 6 4 3",
        ("Compute: 5 3 7 2 6 + 1 9 1 7 ?", "The answer is 5 5 6 4 3."),
        ("Compute 5 3 7 2 6 + 1 9 1 7 ? ", "The answer is 5 5 6 4 3."),
    ),
    (
        Polynomial(), "3 : 3 x 0 + 1 x 1 + 1 x 2", "5",
        ("Evaluate x = 3 in (3 x ** 0 + 1 x ** 1 + 1 x ** 2) % 10 ?", "The answer is 5."),
        ("Evaluate at x = 3 in 3 * x ** 0 + 1 * x ** 1 + 1 * x ** 2 ? ", "The answer is 5."),
    ),
    (
        Sorting(), "3 1 4 1 5", "1 1 3 4 5",
        ("Sort the following numbers: 3 1 4 1 5 ?", "The answer is 1 1 3 4 5."),
        ("Sort the following list [ 3, 1, 4, 1, 5 ]. ", "The sorted list is [ 1, 1, 3, 4, 5 ]."),
    ),
    (
        Summation(), "1 2 3 4 7", "7",
        ("Compute: (1+2+3+4+7)%10?", "The answer is 7."),
        ("Compute: 1 + 2 + 3 + 4 + 7 .", "The answer is 7 ."),
    ),
    (
        Parity(), "1 0 0 1 1", "No",
        ("Is the number of 1's even in [1 0 0 1 1] ?", "The answer is No."),
        ("Is the number of 1's even in the sequence [ 1, 0, 0, 1, 1 ] ? ", "The answer is No."),
    ),
    (
        LEGO(), "a -1 b - a c + b d + c ? c", "+1",
        ("If a = -1; b = -a; c = +b; d = +c. Then what is c?", "The answer is +1."),
        ("If a = -1, b = - a, c = + b, d = + c. Then, what is the value of c? ", "The answer is +1."),
    ),
    (
        Copy(), "a b c", "a b c",
        ("Copy the following words: a b c .", "a b c"),
        ("Copy: a b c ", "a b c"),
    ),
    (
        Reverse(), "a b c", "c b a",
        ("Reverse the following words: a b c .", "c b a"),
        ("Reverse: a b c ", "c b a"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("task", "question", "answer", "paper", "repository"), PRINTED, ids=[type(row[0]).__name__ for row in PRINTED]
)
def test_both_wordings(task, question, answer, paper, repository):
    words = question.split(), answer.split()
    assert task.paper_text(*words) == paper
    assert task.repository_text(*words) == repository
    batch = task.sample(generator(0), 5, 4)
    for wording, write in (("paper", task.paper_text), ("repository", task.repository_text)):
        texts = [(text["prompt"], text["target"]) for text in task.texts(batch, wording)]
        assert texts == [write(*pair) for pair in task.pairs(batch)]
    assert task.texts(batch) == task.texts(batch, "repository")
    assert {text["separator"] for text in task.texts(batch, "paper")} == {""}


def test_numbers_of_several_digits_have_commas_between_them():
    question = "3 1 , 4 1 , 5 9 , 1 2 6 , 5 3 3".split()  # noqa: SIM905 (as people read it)
    prompt, target = Sorting(items="numbers").paper_text(question, question)
    assert prompt == "Sort the following numbers: 31, 41, 59, 126, 533 ?"
    assert target == "The answer is 31, 41, 59, 126, 533."


def test_negative_numbers_have_their_sign():
    question = "- 2 : - 2 x 2 + 3 x 0".split()  # noqa: SIM905 (as people read it)
    assert Polynomial().paper_text(question, ["5"])[0] == "Evaluate x = -2 in (-2 x ** 2 + 3 x ** 0) % 10 ?"


@pytest.mark.parametrize(
    "task",
    [
        SCAN(),
        PCFG(),
        Copy(pattern="replaced"),
        Copy(times=2),
        Copy(pattern="repeated", times=2),
        Reverse(answer="twice"),
        Reverse(answer="back"),
    ],
    ids=lambda task: type(task).__name__,
)
def test_what_the_paper_does_not_print(task):
    batch = task.sample(generator(0), 2, 4)
    assert task.texts(batch, "repository")
    with pytest.raises(
        ConfigError, match=r"the paper prints no example of \w+ with these settings; take the wording of"
    ):
        task.texts(batch, "paper")


@pytest.mark.parametrize("make", [Addition, Polynomial, Sorting, Summation, Parity, LEGO])
def test_the_paper_s_examples_have_no_scratchpad(make):
    task = make(scratchpad="full")
    batch = task.sample(generator(0), 2, 3)
    assert "Thinking step by step" in task.texts(batch)[0]["target"]
    with pytest.raises(ConfigError, match="have no scratchpad; take the wording of its repository"):
        task.texts(batch, "paper")


def test_a_wording_that_there_is_not():
    task = Copy()
    with pytest.raises(ConfigError, match="no wording 'repositry'; did you mean 'repository'"):
        task.texts(task.sample(generator(0), 1, 3), "repositry")
