"""`lengthwise check`: the encodings that it tests."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from lengthwise.conformance import QUESTIONS, Answer, Row, Verdict, table


def test_check_asks_those_that_are_named(here: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(names: list[str], on_answer: Any) -> list[Row]:
        return [Row(name, "reference", QUESTIONS[0].name, Answer(Verdict.OK)) for name in names]

    monkeypatch.setattr(table, "ask_in_processes", answer)
    ran = here("check", "NOPE", "--encodings", "Rope", "--json")
    assert ran.code == 0, ran.err
    assert [row["encoding"] for row in json.loads(ran.out)["answers"]] == ["NoPE", "RoPE"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--device", "cuda:7"), "device 'cuda:7' cannot be used with this PyTorch on this machine; available: cpu"),
        (("--device", "nope"), "device 'nope' cannot be used with this PyTorch on this machine; available: cpu"),
        (("rope", "--device", "cuda"), "--device compares the GPU kernels for all encodings; omit the other options"),
        (("--theorems", "--device", "cuda"), "--device compares the GPU kernels for all encodings; omit the other"),
    ],
)
def test_a_device_that_cannot_be_used(here: Callable[..., Any], arguments: tuple[str, ...], error: str) -> None:
    ran = here("check", *arguments)
    assert ran.code == 2 and error in ran.err and ran.err.count("\n") == 1


def test_a_gpu_gets_the_comparison_of_its_kernels(here: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lengthwise.studies.Compute.require_usable", lambda self: None)
    seen = []
    monkeypatch.setattr(
        "lengthwise.conformance.gpu_table.main", lambda device, json, progress: seen.append((device, json)) or 1
    )
    assert here("check", "--device", "cuda:1", "--json").code == 1
    assert seen == [("cuda:1", True)]
