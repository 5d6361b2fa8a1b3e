"""The measurement with a clock that is no clock: what is measured, in which order, and what is refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from lengthwise.config import ConfigError
from lengthwise.speed import measure, memory
from lengthwise.speed.clocks import CPUTime, WallTime, clock_for
from lengthwise.speed.measure import Measurement
from lengthwise.speed.memory import NoMemory, measure_memory
from lengthwise.speed.model import EncodingPlan, Subject, encoding_plans, order
from lengthwise.speed.plan import Question
from lengthwise.speed.results import Results

TINY: dict[str, Any] = {"d_model": 16, "num_layers": 2, "num_heads": 2, "batch_tokens": 16, "lengths": (4, 8)}


class Scripted:
    """Run each action and report 1 second for NoPE, 2 for others, and 10 times as much for training."""

    name = "wall time"

    def __init__(self, before: Callable[[Subject, str], None] = lambda subject, kind: None) -> None:
        self.calls: list[tuple[str, int, str]] = []
        self.before = before

    def seconds(self, action: Any) -> float:
        subject, kind = action.__self__, action.__name__
        self.before(subject, kind)
        self.calls.append((subject.plan.label, subject.length, kind))
        assert subject.model.training == (kind == "training")
        action()
        return (1.0 if subject.plan.label == "NoPE" else 2.0) * (10.0 if kind == "training" else 1.0)


def measured(clock: Scripted, *encodings: str, **settings: Any) -> Results:
    question = Question(encodings=encodings, **{**TINY, "rounds": 3, "warmup": 1, "memory": False, **settings})
    return Measurement(question, clock=clock).run()


def test_every_encoding_is_measured_once_in_every_round() -> None:
    clock = Scripted()
    results = measured(clock, "alibi", "rope", "fire", "nope")
    assert results.encodings == ["NoPE", "ALiBi", "RoPE", "FIRE"]
    assert results.lengths == [4, 8]
    assert results.complete
    rounds = [clock.calls[n : n + 8] for n in range(0, len(clock.calls), 8)]
    assert len(rounds) == (1 + 3) * 2
    for one in rounds:
        assert sorted(one[::2]) == sorted((name, one[0][1], "forward") for name in results.encodings)
        assert [(*call[:2], "training") for call in one[::2]] == one[1::2]
    assert len({tuple(call[0] for call in one) for one in rounds}) > 1, "the order is random"
    for cell in results.cells:
        seconds = 1.0 if cell.encoding == "NoPE" else 2.0
        assert (cell.forward, cell.training) == ((seconds,) * 3, (10 * seconds,) * 3), "without the warm-up"
        assert cell.batch == {4: 4, 8: 2}[cell.length]
        assert cell.backends and cell.memory_refusal == "not measured" and cell.memory_bytes is None


def test_the_order_depends_on_the_seed_and_changes_with_the_round() -> None:
    orders = [order(10, 0, 4, n) for n in range(20)]
    assert orders == [order(10, 0, 4, n) for n in range(20)]
    assert orders != [order(10, 1, 4, n) for n in range(20)]
    assert all(sorted(one) == list(range(10)) for one in orders)
    assert len({one[0] for one in orders}) > 5


def test_names_settings_and_patterns() -> None:
    plans = encoding_plans(["rope", "rope*3+nope", "fire-s", "fire:hidden_layers=1", "t5-per-layer", "RoPE", "nope"])
    labels = ["NoPE", "RoPE", "RoPE*3+NoPE", "FIRE-S", "FIRE(hidden_layers=1)", "T5-per-layer"]
    assert [plan.label for plan in plans] == labels
    assert len(encoding_plans([])) > 25
    with pytest.raises(ConfigError, match="did you mean 'FIRE'"):
        encoding_plans(["fier"])


def test_mixers_are_measured_beside_encodings() -> None:
    assert [plan.label for plan in encoding_plans(["retnet", "linear-transformer"])] == [
        "NoPE", "RetNet", "LinearTransformer"
    ]  # fmt: skip
    results = measured(Scripted(), "lstm", "rope")
    assert {cell.encoding: cell.settings.get("mixer") for cell in results.cells} == {
        "NoPE": None, "LSTM": "lstm", "RoPE": None
    }  # fmt: skip
    assert all(cell.forward and cell.refusal is None for cell in results.cells)


def test_a_pattern_needs_its_layers() -> None:
    with pytest.raises(ConfigError, match="num_layers must be at least 4"):
        measured(Scripted(), "rope*3+nope")


def test_an_encoding_that_refuses_a_length_has_its_reason() -> None:
    results = measured(Scripted(), "learned:max_length=6", "rope")
    reasons = {(c.encoding, c.length): c.refusal for c in results.cells if c.refusal}
    (key, reason), *others = reasons.items()
    assert (key, others) == (("Learned(max_length=6)", 8), [])
    assert "position 7 is past the 6 rows" in reason
    cell = results.cell(*key)
    assert cell is not None and cell.forward == cell.training == ()


def test_an_encoding_that_runs_out_of_memory_is_left_out_and_the_others_go_on() -> None:
    def before(subject: Subject, kind: str) -> None:
        if subject.plan.label == "RoPE" and subject.length == 8 and kind == "training":
            raise RuntimeError(
                "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
            )

    results = measured(Scripted(before), "rope", "alibi")
    assert {(c.encoding, c.length, len(c.forward), c.refusal) for c in results.cells} == {
        ("NoPE", 4, 3, None),
        ("RoPE", 4, 3, None),
        ("ALiBi", 4, 3, None),
        ("NoPE", 8, 3, None),
        ("RoPE", 8, 0, "not enough memory"),
        ("ALiBi", 8, 3, None),
    }


def test_without_nope_there_is_no_ratio() -> None:
    def before(subject: Subject, kind: str) -> None:
        if subject.plan.label == "NoPE" and subject.length == 4:
            raise torch.OutOfMemoryError("CUDA out of memory")

    results = measured(Scripted(before), "rope")
    assert [(c.encoding, len(c.forward), c.refusal) for c in results.cells] == [
        ("NoPE", 0, "not enough memory"),
        ("RoPE", 0, "NoPE, to which it is compared, could not be measured: not enough memory"),
        ("NoPE", 3, None),
        ("RoPE", 3, None),
    ]


def test_other_errors_are_not_hidden() -> None:
    def before(subject: Subject, kind: str) -> None:
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        measured(Scripted(before))


@pytest.mark.parametrize("stop_after", range(1, 26, 4))
def test_an_interrupt_leaves_the_finished_rounds(stop_after: int) -> None:
    def before(subject: Subject, kind: str) -> None:
        if len(clock.calls) == stop_after:
            raise KeyboardInterrupt

    clock = Scripted(before)
    question = Question(encodings=("rope",), **TINY, rounds=3, warmup=0, memory=False)
    measurement = Measurement(question, clock=clock)
    if stop_after >= 24:
        assert measurement.run().complete
        return
    with pytest.raises(KeyboardInterrupt):
        measurement.run()
    results = measurement.results()
    assert not results.complete
    finished = [min(3, stop_after // 4), max(0, (stop_after - 12) // 4)]
    counts = [(len(c.forward), len(c.training)) for c in results.cells]
    assert counts == [(n, n) for n in finished for _ in range(2)][: len(counts)]
    assert all((c.refusal is None) == bool(c.forward) for c in results.cells)


def test_all_encodings_share_the_weights_and_their_moments() -> None:
    question = Question(encodings=(), **TINY)
    nope, fire = encoding_plans(["fire"])
    base = Subject(nope, question, 4)
    base.training()
    subject = Subject(fire, question, 4, base)
    shared = set(base.model.parameters())
    own = [p for p in subject.model.parameters() if p not in shared]
    assert {id(p) for p in own} == {id(p) for p in subject.model.encodings.parameters()}
    before = [p.detach().clone() for p in subject.model.parameters()]
    subject.training()
    assert all(not torch.equal(p, old) for p, old in zip(subject.model.parameters(), before, strict=True))
    assert all(p.grad is None for p in subject.model.parameters())
    for p in shared:
        assert subject.optimizer.state[p]["exp_avg"] is base.optimizer.state[p]["exp_avg"]
        assert subject.optimizer.state[p]["step"] == 2
    assert all(subject.optimizer.state[p]["step"] == 1 for p in own)


def test_the_random_state_of_the_caller_stays() -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    measured(Scripted(), "fire")
    assert torch.equal(torch.get_rng_state(), before)


def test_progress_ends_at_its_total() -> None:
    shown: list[tuple[float, float]] = []
    question = Question(encodings=("rope",), **TINY, rounds=2, memory=False)
    Measurement(question, clock=Scripted()).run(lambda text, done, total: shown.append((done, total)))
    assert shown == [(n, 20.0) for n in range(20)]


def test_where_the_results_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sys.argv", ["lengthwise", "bench", "rope", "--output", "/home/somebody/a.json", "--plot=/b/c.svg"]
    )
    origin = measured(Scripted(), "rope").origin
    assert origin.command == "lengthwise bench rope --output a.json --plot=c.svg"
    assert origin.device.startswith("cpu") and origin.cores >= 1 and origin.versions["torch"] == torch.__version__
    assert origin.clock == "wall time"


def test_clocks() -> None:
    cpu = torch.device("cpu")
    assert isinstance(clock_for(cpu, 1), CPUTime)
    assert isinstance(clock_for(cpu, 2), WallTime)
    for threads in (1, 2):
        done: list[int] = []
        assert clock_for(cpu, threads).seconds(lambda done=done: done.extend(range(100_000))) > 0
        assert len(done) == 100_000


# ---- memory -------------------------------------------------------------------------------------------------------


def plan(name: str) -> EncodingPlan:
    return encoding_plans([name])[-1]


@pytest.mark.skipif(not memory.STATUS.exists(), reason="peak memory is read from /proc")
@pytest.mark.slow
def test_memory_of_a_matrix_of_all_pairs_is_seen() -> None:
    """The reference backend has logits [2 heads, T, T] in float32: 8 MiB each at T 1,024."""
    question = Question(encodings=(), **{**TINY, "batch_tokens": 1, "num_layers": 1})
    little, reason = measure_memory(plan("rope"), question, 1024)
    assert reason is None and little is not None
    much, _ = measure_memory(plan("rope"), Question(**{**question.to_data(), "backend": "reference"}), 1024)
    assert much is not None and 16 < (much - little) / 2**20 < 120
    none, reason = measure_memory(plan("learned:max_length=6"), question, 8)
    assert none is None and reason is not None and "position 7 is past the 6 rows" in reason


def test_a_process_that_is_killed_for_its_memory_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(plan: EncodingPlan, question: Question, length: int) -> tuple[int | None, str | None]:
        if plan.label == "RoPE":
            raise NoMemory(memory._death(-9))
        return 2**20, None

    monkeypatch.setattr(measure, "measure_memory", killed)
    results = measured(Scripted(), "rope", memory=True)
    assert [(c.encoding, c.memory_bytes, c.refusal, len(c.forward)) for c in results.cells] == [
        ("NoPE", 2**20, None, 3),
        ("RoPE", None, "not enough memory: the process that trained one step was killed", 0),
    ] * 2


@pytest.mark.skipif(not memory.STATUS.exists(), reason="peak memory is read from /proc")
def test_a_process_that_dies_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Doomed:  # its unpickling ends the process that receives it
        text = None

        def __reduce__(self) -> Any:
            import os

            return os._exit, (7,)

    doomed = Doomed()
    with pytest.raises(NoMemory, match="ended with code 7"):
        measure_memory(EncodingPlan(doomed, plan("rope").choice, None), Question(encodings=(), **TINY), 4)  # type: ignore[arg-type]


def test_other_systems_say_why_there_is_no_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(memory, "STATUS", tmp_path / "none")
    size, reason = measure_memory(plan("rope"), Question(encodings=(), **TINY), 4)
    assert size is None and reason is not None and "Linux only" in reason
    assert measure_memory(plan("rope"), Question(encodings=(), **TINY, device="mps"), 4)[0] is None
