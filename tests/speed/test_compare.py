"""The comparison of two measurements: changes are found, and two runs of the same thing rarely differ."""

import dataclasses
import math
import random
from itertools import permutations

import pytest

from lengthwise.measurements.answer_file import FileAnswer
from lengthwise.measurements.speed import KINDS
from lengthwise.speed.compare import LEVEL, Comparison, _Measured, compare, p_values, rounds_needed
from tests.speed.measurements import heavy, little, refused, results, with_settings


def test_a_change_is_found_with_its_size() -> None:
    comparison = compare(results(1), results(2, factor={"FIRE": 1.2}))
    assert {(c.encoding, c.length, c.kind, c.verdict) for c in comparison.claimed} == {
        ("FIRE", length, kind, "slower") for length in (256, 512) for kind in KINDS
    }
    assert len(comparison.changes) == 3 * 2 * 3
    assert [c.change for c in comparison.claimed] == pytest.approx([0.2] * 6, abs=0.05)
    assert comparison.notes == ()


def test_what_became_faster_is_called_faster() -> None:
    claimed = compare(results(1, factor={"FIRE": 1.2}), results(2)).claimed
    assert {c.verdict for c in claimed} == {"faster"}
    assert [c.change for c in claimed] == pytest.approx([1 / 1.2 - 1] * 6, abs=0.05)


def test_a_small_change_is_not_claimed_however_certain_it_is() -> None:
    """Processes differ by a few percent, which many rounds do not average out."""
    comparison = compare(results(1, rounds=90), results(2, rounds=90, factor={"FIRE": 1.03}))
    assert min(c.p for c in comparison.changes if c.encoding == "FIRE") < 0.001
    assert comparison.claimed == []


def test_a_large_change_is_not_claimed_if_the_rounds_are_too_noisy() -> None:
    def noise(chance: random.Random) -> float:
        return chance.lognormvariate(0.0, 1.0)

    comparison = compare(results(1, noise=noise), results(2, noise=noise))
    assert max(abs(c.change) for c in comparison.changes) > 0.3
    assert comparison.claimed == []


def test_a_machine_that_is_twice_as_slow_changes_no_ratio() -> None:
    after = results(2)
    rows = [{k: 2 * v if k in KINDS else v for k, v in row.items()} for row in after.rows]
    assert compare(results(1), dataclasses.replace(after, rows=rows)).claimed == []


def false_alarms(noise, count: int) -> int:
    """Return how many of `count` comparisons of the same thing claim a change of any size."""
    alarms = 0
    for n in range(count):
        pair = [results(2 * n + k, lengths=(1, 2, 4), rounds=10, noise=noise) for k in (0, 1)]
        alarms += any(change.p <= LEVEL for change in compare(*pair).changes)
    return alarms


@pytest.mark.medium
@pytest.mark.parametrize("noise", [little, heavy])
def test_false_alarms_are_rare(noise) -> None:
    assert false_alarms(noise, 100) <= 11  # 2.8 standard deviations above 5 %


@pytest.mark.slow
@pytest.mark.parametrize("noise", [little, heavy])
def test_the_rate_of_false_alarms_is_at_most_5_percent(noise) -> None:
    count = 2000
    assert false_alarms(noise, count) <= LEVEL * count + 3 * math.sqrt(LEVEL * (1 - LEVEL) * count)


def test_without_a_correction_the_rate_would_be_higher() -> None:
    """So the test above can fail."""
    alarms = 0
    for n in range(30):
        pair = [results(2 * n + k, lengths=(1, 2, 4), rounds=10) for k in (0, 1)]
        a, b = (
            [c.ratios[cell][kind] for cell in c.ratios if cell[0] != "NoPE" for kind in KINDS]
            for c in map(_Measured, pair)
        )
        samples = list(zip(a, b, strict=True))
        alarms += min(p_values(samples)) <= LEVEL
    assert alarms > 6


def exact_p(a: list[float], b: list[float]) -> float:
    """Count the orders of the values in which the rank sum is at least as far from its mean as the observed one."""
    values = [*a, *b]
    middle = len(a) * (len(values) + 1) / 2
    ranks = {value: n for n, value in enumerate(sorted(values), 1)}
    far = abs(sum(ranks[x] for x in a) - middle)
    sums = [abs(sum(ranks[x] for x in order[: len(a)]) - middle) for order in permutations(values)]
    return sum(s >= far for s in sums) / len(sums)


@pytest.mark.parametrize(
    ("a", "b"), [([1.0, 2.0, 5.0], [3.0, 4.0, 6.0, 7.0]), ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]), ([1.0], [2.0, 3.0])]
)
def test_p_values_are_exact(a: list[float], b: list[float]) -> None:
    assert p_values([(a, b), (b, a)]) == pytest.approx([exact_p(a, b)] * 2)


def test_equal_values_are_no_change() -> None:
    assert p_values([([1.0] * 8, [1.0] * 8)]) == [1.0]


def test_too_few_rounds_are_said() -> None:
    """With 3 rounds each, the smallest possible p-value is 2 / 20."""
    assert [rounds_needed(n) for n in (1, 12, 208)] == [4, 6, 8]
    (note,) = compare(results(1, rounds=3), results(2, rounds=3, factor={"FIRE": 9.0})).notes
    assert "With 18 comparisons, a change can only be claimed from 6 rounds" in note


# ---- what is comparable -------------------------------------------------------------------------------------------


def notes_of(before: FileAnswer, after: FileAnswer) -> str:
    return "\n".join(compare(before, after).notes)


def test_other_machines_and_versions_are_said() -> None:
    other = results(2, subject={"device": "cpu (Imaginary 2)", "versions": {"lengthwise": "0.2.0", "torch": "2.13.0"}})
    comparison = compare(results(1), other)
    assert len(comparison.changes) == 18
    assert comparison.notes == (
        "The machines or the versions differ, so a change may come from them: device cpu (Imaginary 1) and cpu "
        "(Imaginary 2) and versions.lengthwise 0.1.0 and 0.2.0.",
    )


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"d_model": 128}, "d_model 256 and 128"),
        ({"device": "cuda:1"}, "device cpu and cuda"),
        ({"threads": 2, "dtype": "bfloat16"}, "dtype float32 and bfloat16 and threads 1 and 2"),
        ({"batch_tokens": 99}, "batch_tokens 2048 and 99"),
    ],
)
def test_ratios_of_different_questions_are_not_compared(setting: dict, words: str) -> None:
    expected = Comparison((), (f"Nothing is compared, because the questions differ: {words}.",))
    assert compare(results(1), results(2, question=setting)) == expected


def test_encodings_and_lengths_in_one_file_only_are_named() -> None:
    before, after = results(1, names=("RoPE", "T5")), results(2, names=("RoPE", "FIRE"), lengths=(512, 1024))
    comparison = compare(before, after)
    assert {(c.encoding, c.length) for c in comparison.changes} == {("RoPE", 512)}
    assert comparison.notes == (
        "Not compared, because only A has it: NoPE at 256; RoPE at 256; T5 at 256 and 512.",
        "Not compared, because only B has it: FIRE at 512 and 1,024; NoPE at 1,024; RoPE at 1,024.",
    )
    assert "no encoding and length in common" in notes_of(results(1, names=()), after)


def test_a_refusal_is_not_compared() -> None:
    comparison = compare(results(1), refused(results(2), "RoPE", 512))
    assert len(comparison.changes) == 15
    assert comparison.notes == ("Not compared, because only A has it: RoPE at 512.",)


def test_other_settings_under_the_same_name_are_not_compared_but_other_versions_are() -> None:
    newer = with_settings(results(2), "RoPE", **{"class": {"version": 99}})
    assert len(compare(results(1), newer).changes) == 18
    comparison = compare(results(1), with_settings(results(2), "RoPE", base=500.0))
    assert len(comparison.changes) == 12
    assert comparison.notes == ("Not compared, because the settings differ: RoPE at 256 and 512.",)
