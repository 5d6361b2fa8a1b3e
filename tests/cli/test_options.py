"""Options that several commands share."""

import pytest

from lengthwise.cli.options import split_names


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        (None, []),
        ("rope", ["rope"]),
        ("rope, ALIBI ,fire", ["rope", "ALIBI", "fire"]),
        ("rope,fire:c=1,L=8,alibi", ["rope", "fire:c=1,L=8", "alibi"]),
        ("fire:c=1,fire:c=2", ["fire:c=1", "fire:c=2"]),
        ("consecutive,skip:target_length=9,chunks=3", ["consecutive", "skip:target_length=9,chunks=3"]),
        ("longrope:long_factor=[1,2],factor=2,rope", ["longrope:long_factor=[1,2],factor=2", "rope"]),
    ],
)
def test_words(listed, found):
    assert split_names(listed) == found
