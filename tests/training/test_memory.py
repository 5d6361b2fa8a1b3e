"""The peak memory of a training."""

import pytest
import torch

from lengthwise.training.memory import STATUS, PeakMemory

MEGABYTE = 1 << 20
CPU = torch.device("cpu")


@pytest.mark.skipif(not STATUS.exists(), reason="the memory of a process is read from /proc")
def test_the_peak_counts_what_was_freed_in_the_meantime_and_nothing_before() -> None:
    before = PeakMemory(CPU).bytes() or 0
    large = torch.ones(256 * MEGABYTE // 4)
    del large
    peak = PeakMemory(CPU)
    assert 0 < (peak.bytes() or 0) < before + 64 * MEGABYTE
    small = torch.ones(128 * MEGABYTE // 4)
    del small
    assert before + 100 * MEGABYTE < (peak.bytes() or 0) < before + 192 * MEGABYTE


def test_unknown_on_other_devices_and_other_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PeakMemory(torch.device("mps")).bytes() is None
    monkeypatch.setattr("lengthwise.training.memory.RESET_PEAK", STATUS.parent / "no-such-file")
    assert PeakMemory(CPU).bytes() is None
