import hashlib
import math

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.config import ConfigError, choose
from lengthwise.metrics import METRICS
from lengthwise.tasks import TASKS, Batch, Tagging, Task, exact_match, generator, mean_nats
from lengthwise.tasks.base import AnswerTask
from lengthwise.tasks.functions import FunctionTask

parts = st.lists(st.integers() | st.text(), max_size=4)


def make_batch(targets, scored):
    targets = torch.tensor(targets)
    return Batch(torch.zeros_like(targets), targets, torch.tensor(scored))


def has(task, length, split):
    try:
        task.check_length(length, split)
    except ConfigError:
        return False
    return True


def nearest(task, length, split="test"):
    """This length, or the next longer one that the task has."""
    return next(n for n in range(length, length + 9) if has(task, n, split))


@given(parts, parts)
def test_generators_are_told_apart_by_their_parts(one, other):
    first, second = (torch.randint(2**62, (4,), generator=generator(*p)).tolist() for p in (one, other))
    assert (first == second) == (one == other)


def test_a_generator_keeps_the_borders_and_types_of_its_parts():
    seeds = {generator(*p).initial_seed() for p in ((1, 23), (12, 3), (123,), ("1", 23), ("1,23",), ())}
    assert len(seeds) == 6
    with pytest.raises(TypeError, match="ints and strings"):
        generator(True)


def test_a_generator_s_stream_is_the_same_everywhere():
    """A Mersenne twister, seeded by 32 bits of the hash of the parts as JSON."""
    seed = int.from_bytes(hashlib.sha256(b'[0, "train", 7]').digest()[:4], "big")
    want = numpy.random.RandomState(seed).randint(0, 2**32, 5, dtype=numpy.uint32) % 1000
    assert torch.randint(1000, (5,), generator=generator(0, "train", 7)).tolist() == want.tolist()


def test_mean_nats_by_hand():
    # two symbols; logits (0, ln 3): probabilities 1/4 and 3/4
    logits = torch.tensor([0.0, math.log(3)]).expand(2, 3, 2)
    batch = make_batch([[0, 1, 1], [0, 0, 0]], [[True, True, True], [False, True, False]])
    got = mean_nats(logits, batch)
    assert got.dtype == torch.float64
    assert got.tolist() == pytest.approx([(math.log(4) + 2 * math.log(4 / 3)) / 3, math.log(4)], rel=1e-6)


def test_exact_match_by_hand():
    logits = torch.eye(3)[torch.tensor([[0, 1, 2], [0, 1, 2], [0, 1, 2]])]  # says 0, 1, 2
    batch = make_batch([[0, 1, 2], [2, 1, 2], [0, 1, 0]], [[True] * 3, [False, True, True], [False, True, True]])
    got = exact_match(logits, batch)
    assert got.dtype == torch.float64
    assert got.tolist() == [1.0, 1.0, 0.0]


def test_exact_match_of_what_is_not_a_number():
    logits = torch.eye(3)[torch.tensor([[0, 1, 2]] * 3)]
    logits[1, 2, 0] = logits[2, 0, 2] = math.nan
    batch = make_batch([[0, 1, 2]] * 3, [[True] * 3, [True] * 3, [False, True, True]])
    assert repr(exact_match(logits, batch).tolist()) == "[1.0, nan, 1.0]"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_loss_is_the_mean_over_all_scored_places(dtype):
    logits = torch.tensor([0.0, math.log(3)]).to(dtype).expand(2, 3, 2)
    batch = make_batch([[0, 1, 1], [0, 0, 0]], [[True, True, True], [False, True, False]])
    got = Task.loss(TASKS.find("copy")(), logits, batch)
    p = torch.softmax(logits[0, 0].double(), 0)
    assert got.dtype == torch.float32
    assert got.item() == pytest.approx(-float(2 * p[0].log() + 2 * p[1].log()) / 4, rel=1e-6)


def test_a_place_that_is_not_scored_gets_no_gradient():
    logits = torch.zeros(1, 3, 4, requires_grad=True)
    Task.loss(TASKS.find("copy")(), logits, make_batch([[1, 2, 3]], [[False, True, False]])).backward()
    assert logits.grad.abs().sum((0, 2)).gt(0).tolist() == [False, True, False]


def test_batches_can_be_cut_and_moved():
    batch = make_batch([[1, 2], [3, 4], [5, 6]], [[True, False]] * 3)
    assert len(batch) == 3
    assert batch[1:].targets.tolist() == [[3, 4], [5, 6]]
    assert batch.to("cpu").targets.equal(batch.targets)


@pytest.mark.parametrize("make", list(TASKS), ids=lambda make: make.__name__)
class TestEveryTask:
    """What holds for each task on the list, those of other packages too. Text is asked about its smallest part."""

    @pytest.fixture
    def task(self, make, tmp_path):
        if make.__name__ != "Text":
            return choose(make).build()
        for n in range(8):
            (tmp_path / f"{n}.txt").write_bytes(bytes((i * i * (n + 3)) % 251 for i in range(500)))
        return choose(make, path=str(tmp_path), validation=0.3, chunk=64).build()

    @pytest.mark.parametrize("split", ["train", "test"])
    @pytest.mark.parametrize("length", [1, 2, 7, 32])
    def test_batches_have_the_declared_shape(self, task, split, length):
        if not has(task, length, split):
            with pytest.raises(ConfigError):
                task.sample(generator(0), 5, length, split)
            return
        batch = task.sample(generator(0), 5, length, split)
        places = task.tokens(length)
        if isinstance(task, (AnswerTask, Tagging)):  # as wide as the longest example is, and no wider
            places = min(places, batch.scored.shape[1])
            assert batch.scored[:, -1].any()
        assert batch.targets.shape == batch.scored.shape == (5, places)
        assert batch.inputs.shape[:2] == batch.targets.shape
        if task.input_width is not None:  # vectors
            assert batch.inputs.dtype == batch.targets.dtype == torch.float32
            assert batch.inputs.shape[2:] == (task.input_width,)
            assert task.vocab_size is None
        else:
            assert batch.inputs.dtype == batch.targets.dtype == torch.int64
            assert batch.inputs.min() >= 0
            assert batch.inputs.max() < task.vocab_size
            assert batch.targets.min() >= 0
            assert batch.targets.max() < task.output_size
        assert batch.scored.any(1).all()
        assert len(task.sample(generator(0), 0, length, split)) == 0

    @pytest.mark.parametrize("split", ["train", "test"])
    def test_sampling_is_pure(self, task, split):
        longest = 16 if has(task, 16, split) or has(task, 17, split) else 8
        length, another = (nearest(task, n, split) for n in (longest, longest // 2))
        first = task.sample(generator(3), 20, length, split)
        task.sample(generator(4), 7, another, split)  # what happened in between does not matter
        torch.manual_seed(1)
        again = task.sample(generator(3), 20, length, split)
        other = task.sample(generator(5), 20, length, split)
        assert again.inputs.equal(first.inputs)
        assert again.targets.equal(first.targets)
        assert not other.targets.equal(first.targets)

    def test_examples_depend_on_their_arguments_alone(self, task):
        length = nearest(task, 16)
        first = task.examples(1, 6, length)
        task.examples(2, 3, nearest(task, 8))
        assert task.examples(1, 6, length).targets.equal(first.targets)
        assert not task.examples(2, 6, length).targets.equal(first.targets)
        assert len(first) == 6

    def test_what_is_scored_was_asked(self, task):
        """Inputs do not contain the target of their own place or a later one: place t sees targets before t only."""
        batch = task.sample(generator(0), 4, nearest(task, 16), "test")
        if isinstance(task, FunctionTask):
            assert batch.inputs[:, 1::2, 0].equal(batch.targets[:, 0::2])
            assert batch.scored[:, 0::2].all() and not batch.scored[:, 1::2].any()
            return
        if isinstance(task, Tagging):  # labels are no inputs
            assert set(task.words).isdisjoint(task.labels)
            return
        assert batch.inputs[:, 1:].equal(batch.targets[:, :-1])

    def test_examples_render_to_text(self, task):
        length = nearest(task, 5)
        rows = task.render(task.sample(generator(0), 3, length))
        assert [row.keys() for row in rows] == [{"input", "target", "length"}] * 3
        assert all(
            row["length"] == length and row["input"].isprintable() and row["target"].isprintable() for row in rows
        )

    @pytest.mark.parametrize(
        ("length", "split", "says"),
        [(0, "test", r"at least \d+"), (4, "tset", "did you mean 'test'"), (10**24, "test", "at most 1,000,000,000")],
    )
    def test_impossible_questions_are_refused_in_one_line(self, task, length, split, says):
        for ask in (task.check_length, lambda *a: task.sample(generator(0), 2, *a), lambda *a: task.examples(0, 2, *a)):
            with pytest.raises(ConfigError, match=says) as caught:
                ask(length, split)
            assert "\n" not in str(caught.value)

    def test_it_says_what_it_is(self, make):
        assert make.kind == "task"
        assert make.metric in METRICS
        assert make.unit
        assert isinstance(make.per_token, bool)
        if issubclass(make, FunctionTask):
            assert " -> ?" in make.__doc__
            assert "target  " in make.__doc__
            return
        assert "inputs" in make.__doc__
        assert "targets" in make.__doc__
