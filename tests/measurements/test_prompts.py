"""Prompts of repeated examples, place by place: by hand for small ones, and the parts of published ones."""

import pytest

from lengthwise.config import ConfigError
from lengthwise.measurements import repeated_examples as prompts
from lengthwise.measurements.duplicates import Duplicates, DuplicatesOptions
from lengthwise.measurements.repeated_examples import WHERE, Parts

SMALL = Parts(dims=2, points=7, length=12)  # I = 0 1 2 3, z = 3, A = 5 6, target = 6
ODD = Parts(dims=3, points=10, length=20)  # I = 0 ... 5, z = 5, A = 7 8 9, target = 8 9
PUBLISHED = Parts(dims=16, points=50, length=400)


def published_duplicates():
    options = DuplicatesOptions(length=400, points=50, noise=tuple(range(5, 21)))
    return Duplicates().prompts(options, 16)


def shown(made):
    return " ".join(map(str, made.examples))


def test_small_prompts_by_hand():
    assert shown(prompts.noise_prompt(SMALL, 2)) == "0 1 2 3 4 3 3 6"
    assert shown(prompts.all_noise_prompt(SMALL)) == "3 3 3 3 3 3 3 3 3 3 3 3"
    assert [shown(prompts.instruction_prompt(SMALL, where)) for where in WHERE] == [
        "0 1 2 3 3 3 3 3 3 3 3 3",
        "3 3 3 3 0 1 2 3 3 3 3 3",
        "3 3 3 3 3 3 3 3 0 1 2 3",
    ]
    assert [shown(prompts.target_prompt(SMALL, where)) for where in WHERE] == [
        "0 1 2 3 3 3 3 6",
        "0 1 2 3 3 3 3 6",
        "0 1 2 3 3 3 3 3 3 3 3 6",
    ]
    assert [shown(prompts.answers_prompt(SMALL, where)) for where in WHERE] == [
        "0 1 2 3 5 6 3 3 3 3 3 6",
        "0 1 2 3 3 3 5 6 3 3 3 6",
        "0 1 2 3 3 3 3 3 3 5 6 6",
    ]
    assert shown(prompts.duplicate_prompt(6, 2)) == "0 0 1 0 0 1"
    assert shown(prompts.duplicate_prompt(6, None)) == "0 0 0 0 0 1"


def test_an_odd_number_of_dims_has_the_larger_half():
    """Python's −3 // 2 is −2: two of three."""
    assert ODD.target == (8, 9)
    assert shown(prompts.noise_prompt(ODD, 3)) == "0 1 2 3 4 5 6 5 5 5 8 9"
    assert shown(prompts.target_prompt(ODD, "begin")) == "0 1 2 3 4 5 5 5 5 5 8 9"
    assert shown(prompts.target_prompt(ODD, "middle")) == "0 1 2 3 4 5 5 5 5 5 5 5 8 9"
    assert shown(prompts.answers_prompt(ODD, "begin")) == "0 1 2 3 4 5 7 8 9 5 5 5 5 5 5 5 5 5 8 9"
    assert shown(prompts.answers_prompt(ODD, "middle")) == "0 1 2 3 4 5 5 5 5 5 7 8 9 5 5 5 5 5 8 9"
    assert shown(prompts.answers_prompt(ODD, "end")) == "0 1 2 3 4 5 5 5 5 5 5 5 5 5 5 7 8 9 8 9"


def test_an_odd_count_of_noise_keeps_the_length():
    parts = Parts(dims=2, points=7, length=13)
    assert shown(prompts.instruction_prompt(parts, "middle")) == "3 3 3 3 0 1 2 3 3 3 3 3 3"
    assert {len(prompts.answers_prompt(parts, where).examples) for where in WHERE} == {13}


def test_where_the_published_prompts_have_their_targets():
    assert [prompts.target_prompt(PUBLISHED, where).start for where in WHERE] == [50, 212, 392]
    assert [len(prompts.target_prompt(PUBLISHED, where).examples) for where in WHERE] == [58, 220, 400]
    for made in published_duplicates():
        if made.kind in ("noise", "target"):
            assert made.examples[made.start : made.stop] == tuple(range(42, 50))
            assert made.stop == len(made.examples)
        if made.kind == "instruction":
            assert made.examples[made.start : made.stop] == tuple(range(32))
            assert made.start == {"begin": 0, "middle": 184, "end": 368}[made.at]
        if made.kind == "noise":
            assert (made.start, len(made.examples)) == (50, 58)
            assert made.examples[: 50 - made.at] == tuple(range(50 - made.at))
            assert made.examples[50 - made.at : 50] == (31,) * made.at
    assert prompts.all_noise_prompt(PUBLISHED).examples == (31,) * 400
    for where, start in zip(WHERE, (32, 204, 376), strict=True):
        made = prompts.answers_prompt(PUBLISHED, where)
        assert made.examples.count(31) == 1 + 344, "noise, and the last of the instruction"
        assert made.examples[start : start + 16] == tuple(range(34, 50))
        assert (made.start, made.stop, made.examples[392:]) == (392, 400, tuple(range(42, 50)))


def test_which_prompts_there_are():
    made = [(one.kind, one.at) for one in published_duplicates()]
    assert made[:16] == [("noise", n) for n in range(5, 21)]
    assert made[16:] == [("all", "all"), *(("instruction", w) for w in WHERE), *(("target", w) for w in WHERE)]


def test_positions_reach_from_the_first_to_the_last():
    assert prompts.positions(12, 6) == [0, 2, 4, 6, 8, 10]
    assert prompts.positions(5, 21) == [0, 1, 2, 3]
    found = prompts.positions(400, 21)
    assert (len(found), found[0], found[-1]) == (21, 0, 398)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Parts(4, 7, 100), "points must be at least 8 .* got 7"),
        (lambda: prompts.noise_prompt(SMALL, 7), "noise must be from 1 to 6 of the 7 examples, got 7"),
        (lambda: prompts.instruction_prompt(Parts(4, 8, 7), "begin"), "length must be at least 8 with 4 dims, got 7"),
        (lambda: prompts.target_prompt(Parts(2, 7, 4), "end"), "length must be at least 5 "),
        (lambda: prompts.target_prompt(Parts(2, 7, 7), "begin"), "length must be at least 8 "),
        (lambda: prompts.answers_prompt(Parts(2, 7, 6), "middle"), "length must be at least 7 "),
    ],
)
def test_prompts_that_cannot_be(make, words):
    with pytest.raises(ConfigError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)
