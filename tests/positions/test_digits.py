"""Digits: places in numbers, by hand, and against a loop."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.config import ConfigError
from lengthwise.positions import Digits
from lengthwise.tasks import Copy, Text


def places(text: str, documents: list[int] | None = None, training: bool = False) -> list[int]:
    ids = None if documents is None else torch.tensor([documents], dtype=torch.long)
    scheme, g = Digits(max_offset=30), torch.Generator().manual_seed(3)
    found = scheme.positions(torch.tensor([list(text.encode())], dtype=torch.long), ids, g, training)
    return found[0].tolist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12+345=", [1, 2, 0, 1, 2, 3, 0]),
        ("=0", [0, 1]),
        ("907", [1, 2, 3]),
        ("a:b/", [0, 0, 0, 0]),  # the neighbours of the digits in ASCII are none
        ("", []),
    ],
)
def test_places_by_hand(text, expected):
    assert places(text) == expected


def test_documents_by_hand():
    assert places("12345", [0, 0, 1, 1, 1]) == [1, 2, 1, 2, 3]
    assert places("1x2345", [0, 1, 0, 1, 1, 0]) == [1, 0, 2, 1, 2, 3]  # scattered: "124" and "x34" + "5" of the first


@given(text=st.text("019+=", max_size=30), data=st.data())
def test_places_are_those_of_a_loop(text, data):
    documents = data.draw(st.lists(st.integers(-1, 1), min_size=len(text), max_size=len(text)))
    expected, run = [], dict.fromkeys((-1, 0, 1), 0)
    for letter, document in zip(text, documents, strict=True):
        run[document] = run[document] + 1 if letter.isdigit() else 0
        expected.append(run[document])
    assert places(text, documents) == expected
    moved = places(text, documents, training=True)
    offsets = {m - e for m, e in zip(moved, expected, strict=True) if e}
    assert len(offsets) <= 1
    assert all(m == 0 for m, e in zip(moved, expected, strict=True) if not e)


def test_offsets_go_from_none_to_the_greatest():
    scheme, inputs = Digits(max_offset=3), torch.tensor([[48]])
    found = {int(scheme.positions(inputs, None, torch.Generator().manual_seed(n), True)) for n in range(60)}
    assert found == {1, 2, 3, 4}
    assert scheme.num_positions(1, training=True) == 5


class WithDigits(Copy):
    digit_tokens = (0, 1, 2, 5)


def test_the_digits_are_those_of_the_setting_then_of_the_task_then_bytes():
    inputs = torch.tensor([[0, 5, 9, 49, 3]])
    g = torch.Generator()

    def of(scheme):
        return scheme.positions(inputs, None, g, False)[0].tolist()

    assert of(Digits()) == [0, 0, 0, 1, 0]
    assert of(Digits(zero=3)) == [0, 1, 2, 0, 1]
    assert of(Digits().for_task(WithDigits())) == [1, 2, 0, 0, 0]
    assert of(Digits(zero=3).for_task(WithDigits())) == [0, 1, 2, 0, 1]
    usual = Digits()
    usual.for_task(WithDigits())
    assert of(usual) == [0, 0, 0, 1, 0], "a task changed the position scheme of another"


class Vectors(Copy):
    def __init__(self):
        super().__init__()
        self.vocab_size = None


@pytest.mark.parametrize(
    ("scheme", "task", "words"),
    [
        (Digits(), Copy(), r"Copy has the token IDs 0 ... 28, and the digits would be none; give zero="),
        (Digits(), Copy(symbols=100), "would be none"),  # the bytes of digits are other symbols there
        (Digits(zero=20), Copy(), "20 ... 29"),
        (Digits(), Vectors(), "has vectors, not tokens"),
    ],
)
def test_a_task_without_digits_is_refused(scheme, task, words):
    with pytest.raises(ConfigError, match=words) as error:
        scheme.for_task(task)
    assert "\n" not in str(error.value)
    Digits(zero=19).for_task(Copy())
    assert Text.vocab_size > 57


def test_vectors_are_refused():
    with pytest.raises(ConfigError, match="must be token IDs, got vectors"):
        Digits().positions(torch.zeros(1, 4, 2), None, torch.Generator(), False)
