import torch

from lengthwise.tasks.pairs import close_gaps, digits, split


def test_gaps_are_closed():
    rows = torch.tensor([[-1, 3, -1, 0], [-1, -1, -1, -1], [7, -1, 8, 9]])
    assert close_gaps(rows).tolist() == [[3, 0, -1], [-1, -1, -1], [7, 8, 9]]
    assert close_gaps(rows[:0]).shape == (0, 0)
    assert close_gaps(rows[1:2]).shape == (1, 0)


def test_digits_by_hand():
    found = digits(torch.tensor([[0, 7, 10], [305, 9990, 9999]]), 4).tolist()
    assert found == [
        [[-1, -1, -1, 0], [-1, -1, -1, 7], [-1, -1, 1, 0]],
        [[-1, 3, 0, 5], [9, 9, 9, 0], [9, 9, 9, 9]],
    ]


def test_split_keeps_what_is_empty():
    assert split(["1", "2", "+", "3"], "+") == [["1", "2"], ["3"]]
    assert split(["+"], "+") == [[], []]
