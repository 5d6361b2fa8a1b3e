"""How long the examples of a data set are, counted from its lines."""

import json

import pytest

from lengthwise.analysis.lengths import Histogram, lengths
from lengthwise.values import ConfigError


def lines(*values: object, field: str = "input") -> list[bytes]:
    return [json.dumps({field: value}).encode() + b"\n" for value in values]


def test_words_are_what_stands_between_white_space() -> None:
    found = lengths(lines("jump", "jump left", "  jump \t left\n", "", "walk and run"), "input")
    assert found.counts == {0: 1, 1: 1, 2: 2, 3: 1}
    assert (found.total, found.shortest, found.longest, found.median, found.mean) == (5, 0, 3, 2, 8 / 5)


def test_a_whole_number_is_a_length_itself() -> None:
    assert lengths(lines(7, 3, 7, field="length"), "length").counts == {3: 1, 7: 2}


def test_empty_lines_are_skipped() -> None:
    rows = ['{"target": "ä ö"}'.encode(), b"\n", b'{"target": "x"}\r\n', b"  \n"]
    assert lengths(rows, "target").counts == {1: 1, 2: 1}


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("jump left", "line 3 is no JSON: Expecting value: 'jump left'"),
        ('{"input": "a"', "line 3 is no JSON"),
        ("[1, 2]", "line 3 is a list; it has to be a JSON object with the field 'input'"),
        ("null", "line 3 is null; it has to be"),
        ('{"inptu": "a"}', r"line 3 has no field 'input'; did you mean 'inptu'\?; it has: inptu"),
        ("{}", "line 3 has no field 'input'; it is empty"),
        ('{"input": ["a"]}', "line 3: input is a list; it has to be a text or a whole number"),
        ('{"input": true}', "line 3: input is true"),
        ('{"input": -1}', "line 3: input is -1"),
        ('{"input": 2.5}', "line 3: input is 2.5"),
        (b'{"input": "\xff"}', r"line 3 is not UTF-8 text \(at byte 12\)"),
        (b"\xed\xa0\x80 x", r"line 3 is not UTF-8 text \(at byte 1\)"),  # json.loads reads surrogates
    ],
)
def test_a_bad_line_is_named(bad: str | bytes, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as error:
        lengths([b'{"input": "a"}', b"", bad if isinstance(bad, bytes) else bad.encode(), b"worse"], "input")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 200


def test_nothing_at_all() -> None:
    with pytest.raises(ConfigError, match="it must contain at least one example"):
        lengths([b"\n"], "input")


def test_bins() -> None:
    few = Histogram({2: 5, 9: 1})
    assert few.bins(2) == [(2, 2, 5), (9, 9, 1)]
    assert few.bins(1) == [(0, 9, 6)]
    many = Histogram({n: n + 1 for n in range(100)})
    assert many.bins(100) == [(n, n, n + 1) for n in range(100)]
    assert [(first, last) for first, last, _ in many.bins(99)] == [(n, n + 1) for n in range(0, 100, 2)]
    assert len(many.bins(12)) == 10
    for most in (1, 3, 12, 40, 99):
        assert sum(count for _, _, count in many.bins(most)) == many.total
    assert Histogram({5: 1, 1_000_000: 2}).bins(2) == [(5, 5, 1), (1_000_000, 1_000_000, 2)]


@pytest.mark.parametrize(
    ("counts", "middle"), [({3: 1}, 3), ({1: 1, 2: 1}, 1), ({1: 1, 2: 2}, 2), ({1: 2, 5: 1, 9: 2}, 5)]
)
def test_the_median_is_a_length_that_half_do_not_exceed(counts: dict[int, int], middle: int) -> None:
    assert Histogram(counts).median == middle


def test_a_byte_order_mark_at_the_beginning_counts_for_nothing() -> None:
    assert lengths([b'\xef\xbb\xbf{"input": "a b"}\n'], "input").counts == {2: 1}
