"""The measurement with a clock that is no clock: what is measured, in which order, and what is refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from lengthwise.config import ConfigError
from lengthwise.measurements.speed import KINDS, Speed, SpeedOptions
from lengthwise.measurements.table import Row, Table
from lengthwise.speed import measure, memory
from lengthwise.speed.clock import Clock
from lengthwise.speed.measure import Benchmark
from lengthwise.speed.memory import NoMemory, measure_memory
from lengthwise.speed.model import EncodingPlan, Subject, encoding_plans, order

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


def measured(clock: Scripted, *encodings: str, **settings: Any) -> list[Row]:
    options = SpeedOptions(encodings=encodings, **{**TINY, "rounds": 3, "warmup": 1, "memory": False, **settings})
    return [row for rows in Benchmark(options, clock=clock).rows([]) for row in rows]


def rounds_of(rows: list[Row]) -> dict[tuple[str, int], int]:
    """Return the number of rounds of each encoding at each length that count."""
    shown = [
        (row["encoding"], row["length"])
        for row in Speed().derive(Table.from_rows(rows), {})
        if row.get("round") is not None
    ]
    return {cell: shown.count(cell) for cell in dict.fromkeys(shown)}


def reasons_of(rows: list[Row]) -> dict[tuple[str, int], str]:
    return {(row["encoding"], row["length"]): row["reason"] for row in rows if "reason" in row}


def test_every_encoding_is_measured_once_in_every_round() -> None:
    clock = Scripted()
    rows = measured(clock, "alibi", "rope", "fire", "nope")
    names = ["NoPE", "ALiBi", "RoPE", "FIRE"]
    assert rounds_of(rows) == {(name, length): 3 for length in (4, 8) for name in names}
    rounds = [clock.calls[n : n + 12] for n in range(0, len(clock.calls), 12)]
    assert len(rounds) == (1 + 3) * 2
    for one in rounds:
        assert sorted(one[::3]) == sorted((name, one[0][1], "forward") for name in names)
        assert [(*call[:2], "decoding") for call in one[::3]] == one[1::3]
        assert [(*call[:2], "training") for call in one[::3]] == one[2::3]
    assert len({tuple(call[0] for call in one) for one in rounds}) > 1, "the order is random"
    for row in rows:
        if "round" in row:
            seconds = 1.0 if row["encoding"] == "NoPE" else 2.0
            assert (row["forward"], row["training"]) == (1e3 * seconds, 1e4 * seconds), "in milliseconds"
            assert row["decoding"] == 1e3 * seconds / min(8, row["length"]), "of one token"
        else:
            assert row["batch"] == {4: 4, 8: 2}[row["length"]] and row["backends"]


def test_ratios_are_those_of_the_same_round() -> None:
    rows = [
        {"encoding": name, "length": 4, "round": n} | {kind: (k + n) * factor for k, kind in enumerate(KINDS, 1)}
        for name, factor in (("NoPE", 1.0), ("RoPE", 1.5))
        for n in range(3)
    ]
    rows += [{"encoding": name, "length": 4, "memory": size} for name, size in (("NoPE", 10.0), ("RoPE", 15.0))]
    for row in Speed().derive(Table.from_rows(rows), {}):
        factor = 1.0 if row["encoding"] == "NoPE" else 1.5
        ratios = [row[f"{name}_ratio"] for name in (*KINDS, "memory")]
        assert ratios == ([factor] * 3 + [None] if row["memory"] is None else [None] * 3 + [factor])


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
    rows = measured(Scripted(), "lstm", "rope")
    mixers = {row["encoding"]: row["settings"].get("mixer") for row in rows if "settings" in row}
    assert mixers == {"NoPE": None, "LSTM": "lstm", "RoPE": None}
    assert set(rounds_of(rows).values()) == {3} and len(rounds_of(rows)) == 6


def test_a_pattern_needs_its_layers() -> None:
    with pytest.raises(ConfigError, match="num_layers must be at least 4"):
        measured(Scripted(), "rope*3+nope")


def test_an_encoding_that_refuses_a_length_has_its_reason() -> None:
    rows = measured(Scripted(), "learned:max_length=6", "rope")
    ((cell, reason),) = reasons_of(rows).items()
    assert cell == ("Learned(max_length=6)", 8) and cell not in rounds_of(rows)
    assert "position 7 is past the 6 rows" in reason


def test_an_encoding_that_runs_out_of_memory_is_left_out_and_the_others_go_on() -> None:
    def before(subject: Subject, kind: str) -> None:
        if subject.plan.label == "RoPE" and subject.length == 8 and kind == "training":
            raise RuntimeError(
                "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to allocate "
                "9 bytes"
            )

    rows = measured(Scripted(before), "rope", "alibi")
    assert reasons_of(rows) == {("RoPE", 8): "not enough memory"}
    cells = [(name, length) for length in (4, 8) for name in ("NoPE", "RoPE", "ALiBi")]
    assert rounds_of(rows) == {cell: 3 for cell in cells if cell != ("RoPE", 8)}


def test_times_before_a_failure_do_not_count() -> None:
    def before(subject: Subject, kind: str) -> None:
        if subject.plan.label == "RoPE" and len(clock.calls) > 12:
            raise torch.OutOfMemoryError("CUDA out of memory")

    clock = Scripted(before)
    rows = measured(clock, "rope", lengths=(4,))
    assert any(row["encoding"] == "RoPE" and "round" in row for row in rows)
    assert rounds_of(rows) == {("NoPE", 4): 3}


def test_without_nope_there_is_no_ratio() -> None:
    def before(subject: Subject, kind: str) -> None:
        if subject.plan.label == "NoPE" and subject.length == 4:
            raise torch.OutOfMemoryError("CUDA out of memory")

    rows = measured(Scripted(before), "rope")
    assert reasons_of(rows) == {
        ("NoPE", 4): "not enough memory",
        ("RoPE", 4): "NoPE, to which it is compared, could not be measured: not enough memory",
    }
    assert rounds_of(rows) == {("NoPE", 8): 3, ("RoPE", 8): 3}


def test_other_errors_are_not_hidden() -> None:
    def before(subject: Subject, kind: str) -> None:
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        measured(Scripted(before))


@pytest.mark.medium
@pytest.mark.parametrize("stop_after", [0, 1, 5, 11, 12, 15, 19])
def test_an_interrupted_measurement_continues_with_the_rounds_that_are_missing(stop_after: int) -> None:
    def before(subject: Subject, kind: str) -> None:
        if len(clock.calls) == stop_after:
            raise KeyboardInterrupt

    options = SpeedOptions(encodings=("rope", "learned:max_length=6"), **TINY, rounds=2, warmup=0, memory=False)
    whole = Scripted()
    expected = [row for rows in Benchmark(options, clock=whole).rows([]) for row in rows]
    clock, rows = Scripted(before), list[Row]()
    with pytest.raises(KeyboardInterrupt):
        for more in Benchmark(options, clock=clock).rows(rows):
            rows += more
    assert all(
        len({row["encoding"] for row in rows if (row["length"], row.get("round")) == at}) in (2, 3)
        for at in {(row["length"], row["round"]) for row in rows if "round" in row}
    )
    second = Scripted()
    for more in Benchmark(options, clock=second).rows(rows):
        rows += more
    assert rows == expected
    finished = {(row["length"], row["round"]) for row in expected if "round" in row}
    assert len(finished) == 4
    assert len(second.calls) <= len(whole.calls) - stop_after + 6, "no finished round is measured again"
    assert [row for rows in Benchmark(options, clock=Scripted(before)).rows(expected) for row in rows] == []


@pytest.mark.parametrize("lost", range(1, 6))
def test_a_round_of_which_some_rows_are_lost_is_completed(lost: int) -> None:
    options = SpeedOptions(encodings=("rope", "alibi"), **TINY, rounds=2, warmup=0, memory=False)
    complete = [row for rows in Benchmark(options, clock=Scripted()).rows([]) for row in rows]
    rows = complete[:-lost]
    for more in Benchmark(options, clock=Scripted()).rows(list(rows)):
        rows += more

    def places(rows: list[Row]) -> list[tuple[str, int, int]]:
        return sorted((row["encoding"], row["length"], row.get("round", -1)) for row in rows)

    assert places(rows) == places(complete)


def test_all_encodings_share_the_weights_and_their_moments() -> None:
    options = SpeedOptions(encodings=(), **TINY)
    nope, fire = encoding_plans(["fire"])
    base = Subject(nope, options, 4)
    base.training()
    subject = Subject(fire, options, 4, base)
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
    benchmark = Benchmark(SpeedOptions(encodings=("rope",), **TINY, rounds=2, memory=False), clock=Scripted())
    rows = [row for more in benchmark.rows([], lambda *at: shown.append(at[1:])) for row in more]
    assert shown == [(n, 20.0) for n in range(20)]
    shown.clear()
    assert not any(benchmark.rows(rows, lambda *at: shown.append(at[1:])))
    assert shown == [(n, 20.0) for n in range(20)]


def test_where_the_results_come_from() -> None:
    answer = Benchmark(SpeedOptions(encodings=("rope",), **TINY), clock=Scripted()).answer()
    assert answer.subject["device"].startswith("cpu") and answer.subject["cores"] >= 1
    assert answer.subject["versions"]["torch"] == torch.__version__ and answer.subject["clock"] == "wall time"
    assert set(answer.origin) == {"date"} and answer.question["rounds"] == 12


def test_clocks() -> None:
    cpu = torch.device("cpu")
    assert Clock(cpu, 1).name == "CPU time"
    assert Clock(cpu, 2).name == "wall time"
    for threads in (1, 2):
        done: list[int] = []
        assert Clock(cpu, threads).seconds(lambda done=done: done.extend(range(100_000))) > 0
        assert len(done) == 100_000


# ---- memory -------------------------------------------------------------------------------------------------------


def plan(name: str) -> EncodingPlan:
    return encoding_plans([name])[-1]


@pytest.mark.skipif(not memory.STATUS.exists(), reason="peak memory is read from /proc")
@pytest.mark.slow
def test_memory_of_a_matrix_of_all_pairs_is_seen() -> None:
    """The reference backend has logits [2 heads, T, T] in float32: 8 MiB each at T 1,024."""
    settings = {**TINY, "batch_tokens": 1, "num_layers": 1}
    options = SpeedOptions(**settings)
    little, reason = measure_memory(plan("rope"), options, 1024)
    assert reason is None and little is not None
    much, _ = measure_memory(plan("rope"), SpeedOptions(**settings, backend="reference"), 1024)
    assert much is not None and 16 < (much - little) / 2**20 < 120
    none, reason = measure_memory(plan("learned:max_length=6"), options, 8)
    assert none is None and reason is not None and "position 7 is past the 6 rows" in reason


def test_a_process_that_is_killed_for_its_memory_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(plan: EncodingPlan, options: SpeedOptions, length: int) -> tuple[int | None, str | None]:
        if plan.label == "RoPE":
            raise NoMemory(memory.death_message(-9))
        return 2**20, None

    monkeypatch.setattr(measure, "measure_memory", killed)
    rows = measured(Scripted(), "rope", memory=True)
    assert {(row["encoding"], row["length"], row["memory"]) for row in rows if "memory" in row} == {
        ("NoPE", 4, 1.0), ("NoPE", 8, 1.0)
    }  # fmt: skip
    killed_text = "not enough memory: the process that trained one step was killed"
    assert reasons_of(rows) == {("RoPE", 4): killed_text, ("RoPE", 8): killed_text}
    assert rounds_of(rows) == {("NoPE", 4): 3, ("NoPE", 8): 3}


@pytest.mark.medium
@pytest.mark.skipif(not memory.STATUS.exists(), reason="peak memory is read from /proc")
def test_a_process_that_dies_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Doomed:  # its unpickling ends the process that receives it
        text = None

        def __reduce__(self) -> Any:
            import os

            return os._exit, (7,)

    doomed = Doomed()
    with pytest.raises(NoMemory, match="ended with code 7"):
        measure_memory(
            EncodingPlan(doomed, plan("rope").choice, None),  # type: ignore[arg-type]
            SpeedOptions(encodings=(), **TINY),  # type: ignore[arg-type]
            4,
        )


def test_other_systems_say_why_there_is_no_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(memory, "STATUS", tmp_path / "none")
    size, reason = measure_memory(plan("rope"), SpeedOptions(encodings=(), **TINY), 4)
    assert size is None and reason is not None and "Linux only" in reason
    assert measure_memory(plan("rope"), SpeedOptions(encodings=(), **TINY, device="mps"), 4)[0] is None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lengths": ()}, "lengths must be numbers of at least 1"),
        ({"lengths": (0,)}, "at least 1"),
        ({"rounds": 0}, "rounds must be a whole number of at least 1"),
        ({"warmup": -1}, "at least 0"),
        ({"batch_tokens": 0}, "at least 1"),
        ({"d_model": 255}, "d_model must be a multiple of num_heads"),
        ({"dtype": "int8"}, "must be one of 'float32', 'bfloat16'"),
    ],
)
def test_a_wrong_question_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        SpeedOptions(**settings)


def test_a_batch_has_at_least_one_sequence() -> None:
    options = SpeedOptions(batch_tokens=1000)
    assert [options.batch(n) for n in (100, 256, 2048)] == [10, 3, 1]
