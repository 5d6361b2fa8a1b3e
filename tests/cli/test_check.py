"""`lengthwise check`: the encodings that it tests."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from lengthwise.conformance import QUESTIONS, Answer, Row, Verdict, table


def test_check_asks_those_that_are_named(here: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(names: list[str], on_answer: Any) -> list[Row]:
        return [Row(name, "reference", QUESTIONS[0], Answer(Verdict.OK)) for name in names]

    monkeypatch.setattr(table, "ask_in_processes", answer)
    ran = here("check", "NOPE", "--encodings", "Rope", "--json")
    assert ran.code == 0, ran.err
    assert [row["encoding"] for row in json.loads(ran.out)["answers"]] == ["NoPE", "RoPE"]
