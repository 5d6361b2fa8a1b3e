"""The check of a few examples of a user's task, and the baselines of tasks."""

import re
from typing import Any

import pytest
import torch

from lengthwise.config import ConfigError
from lengthwise.evaluation.untrained import baseline_scores, baselines_of
from lengthwise.metrics import EXACT_MATCH, Metric
from lengthwise.tasks import TASKS, Batch, Task, contract, exact_match
from lengthwise.tasks.base import Baseline, generator
from lengthwise.tasks.copy import Copy
from lengthwise.tasks.pairs import Pairs
from lengthwise.tasks.sequences import SequenceTask, combinations

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
        exists = (length - getattr(task, "shortest", 0)) % task.length_step == 0
        contract.require_consistent(task, length if exists else length + 1)


class Echo(SequenceTask):
    """A user's task whose methods return what a test says."""

    unit = "digits"
    result: Any = None

    def __init__(self, *, words: Any = "0123456789"):
        super().__init__(words)

    def draw(self, generator: Any, count: int, length: int) -> Any:
        digits = torch.randint(10, (count, length), generator=generator)
        return Pairs(digits, digits)

    def widths(self, length: int) -> Any:
        return length, length

    def length_of(self, question: Any, answer: Any) -> int:
        return len(question)


def echo(method: str, result: Any) -> Echo:
    return type("Own", (Echo,), {method: lambda self, *_: result, "__module__": __name__})()


class Unseeded(Echo):
    """A user's task that does not draw with its generator."""

    def draw(self, generator: Any, count: int, length: int) -> Any:
        digits = torch.randint(10, (count, length))
        return Pairs(digits, digits)


def test_examples_that_do_not_follow_the_generator() -> None:
    contract.require_consistent(Echo(), 3)
    with pytest.raises(ConfigError, match=r"test_contract\.py, line \d+: Unseeded\.draw must return the same examples"):
        contract.require_consistent(Unseeded(), 3)


IDS = torch.zeros(2, 3).long()
WRONG = {
    "no pairs": (IDS, IDS),
    "too few answers": Pairs(IDS, IDS[:1]),
    "real numbers": Pairs(IDS.float(), IDS),
    "truth values": Pairs(IDS, IDS.bool()),
    "other words": Pairs(IDS + 10, IDS),
    "one question": Pairs(IDS[0], IDS),
}


@pytest.mark.parametrize("examples", [*WRONG.values(), Pairs(IDS[:0], IDS[:0])], ids=[*WRONG, "none"])
def test_all_examples_of_another_type_or_size(examples: Any) -> None:
    with pytest.raises(ConfigError, match=r"Own\.all_examples must return .*, got ") as error:
        echo("all_examples", examples).available(3)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("examples", [*WRONG.values(), Pairs(IDS, IDS)], ids=[*WRONG, "too few"])
def test_drawn_examples_of_another_type_or_size(examples: Any) -> None:
    with pytest.raises(ConfigError, match=r"test_contract\.py, line \d+: Own\.draw must return .*, got ") as error:
        contract.require_consistent(echo("draw", examples), 3)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("method", "result", "says"),
    [
        ("widths", (3, 2), r"at most (3, 2) words in a question and its answer, as `widths` says, got (3, 3)"),
        ("length_of", 4, "examples of length 3, as `length_of` counts, got 4"),
    ],
)
def test_methods_that_contradict_each_other(method: str, result: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=rf"test_contract\.py, line \d+: Own\.draw must return {re.escape(says)}$"):
        contract.require_consistent(echo(method, result), 3)


class Sampled(Task):
    """A user's task that is no `SequenceTask`."""

    metric, unit, per_token = EXACT_MATCH, "tokens", False
    vocab_size = output_size = 5

    def __init__(self, *, batch: Any = None):
        self.batch = batch

    def tokens(self, length: int) -> int:
        return length

    def sample(self, generator: Any, batch: int, length: int, split: str = "train") -> Any:
        return self.batch

    def score(self, logits: Any, batch: Any) -> Any:
        return exact_match(logits, batch)

    def render(self, batch: Any) -> Any:
        return []


def batch_of(examples: int, slots: int, scored: int | None = None) -> Batch:
    tokens = torch.zeros(examples, slots).long()
    return Batch(tokens, tokens, torch.ones(examples, slots if scored is None else scored).bool())


def test_a_batch_of_another_type_or_size() -> None:
    contract.require_consistent(Sampled(batch=batch_of(4, 3)), 3)
    with pytest.raises(ConfigError, match=r"Sampled\.sample must return a lengthwise\.tasks\.Batch, got None"):
        contract.require_consistent(Sampled(), 3)
    for wrong in (batch_of(3, 3), batch_of(4, 4), batch_of(4, 3, scored=2)):
        with pytest.raises(
            ConfigError,
            match=r"Sampled\.sample must return a Batch of 4 examples with at most 3 token slots, as `tokens` says, ",
        ):
            contract.require_consistent(Sampled(batch=wrong), 3)


@pytest.mark.parametrize(("words", "problem"), [("abca", "['a', 'b', 'c', 'a']"), (["x", 3], "['x', 3]")])
def test_words_that_are_no_tokens(words: Any, problem: str) -> None:
    place = r"test_contract\.py, line \d+"
    with pytest.raises(ConfigError, match=rf"{place}: the words of Echo .*, got {re.escape(problem)}"):
        Echo(words=words)


@pytest.mark.parametrize("baselines", [None, {"zero": len}, ["zero"]], ids=range(3))
def test_baselines_of_another_type(baselines: Any) -> None:
    with pytest.raises(ConfigError, match=r"Own\.baselines must return "):
        baselines_of(echo("baselines", baselines))


@pytest.mark.parametrize(
    "scores", [{}, torch.zeros(4), torch.zeros(4, 2), torch.full((4, 1), 1.5), torch.full((4, 1), -1.0)], ids=range(5)
)
def test_scores_of_baselines_of_another_type_or_beyond_the_limits(scores: Any) -> None:
    task = echo("baselines", [Baseline(name="mine", scores=lambda batch, lengths: scores)])
    with pytest.raises(ConfigError, match=r"the baseline 'mine' of Own must .*, got "):
        baseline_scores(task, task.examples(0, 4, 8), [8])


def test_a_scale_that_is_no_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Copy, "metric", Metric(name="mine", better="lower", scale="zeros"))
    monkeypatch.setattr(Copy, "baselines", lambda self: [Baseline(name="zero", scores=lambda batch, lengths: None)])
    with pytest.raises(ConfigError, match=r"of Copy has the scale 'zeros', .*; did you mean 'zero'\?; available: zero"):
        baselines_of(Copy())
    monkeypatch.setattr(Copy, "metric", Metric(name="mine", better="lower", scale="zero"))
    assert [baseline.name for baseline in baselines_of(Copy())] == ["zero"]


class Marked(Echo):
    """A user's task whose questions begin with a random letter that does not count in the split."""

    def __init__(self, *, words: Any = "0123456789abcd"):
        super().__init__(words=words)

    def all_examples(self, length: int) -> Any:
        digits = combinations([10] * length, limit=100)
        return None if digits is None else Pairs(digits, digits)

    def widths(self, length: int) -> Any:
        return length + 1, length

    def length_of(self, question: Any, answer: Any) -> int:
        return len(answer)

    def add_random_words(self, pairs: Pairs, generator: torch.Generator, length: int) -> Pairs:
        letters = torch.randint(10, 14, (len(pairs), 1), generator=generator)
        return Pairs(torch.cat([letters, pairs.questions], 1), pairs.answers)


def test_random_words_are_in_every_example_and_do_not_count_in_the_split() -> None:
    task, plain = Marked(), Echo(words="0123456789abcd")
    for length in (2, 5):
        train, test = task.sample(generator(0), 900, length), task.examples(0, 60, length)
        batches = [train, test, task.fixed_examples(0, range(30), length, length)]
        batches += [task.pack(pairs) for pairs in task.whole(2).values()]
        for batch in batches:
            questions = ["".join(question) for question, _ in task.pairs(batch)]
            assert {question[0] for question in questions} == set("abcd")
            assert all(question[1:].isdigit() for question in questions)
        if length == 5:
            assert [a for _, a in task.pairs(test)] == [a for _, a in plain.pairs(plain.examples(0, 60, length))]
        assert not {"".join(a) for _, a in task.pairs(train)} & {"".join(a) for _, a in task.pairs(test)}
