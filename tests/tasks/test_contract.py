"""What a task from outside has to keep, asked of our own; slips of others are in tests/cli/test_plugins.py."""

from typing import Any

import pytest

from lengthwise.tasks import TASKS, contract

SCRATCHPADS = ("Addition", "Summation", "Parity", "Polynomial", "Sorting", "LEGO")
CASES = [(make, {}) for make in TASKS] + [
    (make, {"scratchpad": "full"}) for make in TASKS if make.__name__ in SCRATCHPADS
]


@pytest.mark.parametrize(("make", "settings"), CASES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_our_own_tasks_keep_it(make: Any, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """So a class that derives from one of them is not refused for what the base does."""
    monkeypatch.setattr(contract, "is_builtin_class", lambda make: False)
    task = make(**settings)
    given = getattr(task, "lengths", lambda: None)()
    for length in list(given or (3, 8))[:2]:
        contract.require_consistent(task, length)
