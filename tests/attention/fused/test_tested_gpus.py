"""Where `auto` uses the GPU kernels: on GPUs where they were tested. Without a GPU, whose properties are replaced."""

import json
import os
import subprocess
import sys
import types
import warnings
from pathlib import Path

import pytest
import torch

from lengthwise import cache_folder
from lengthwise.attention import BACKENDS, Mask, plan
from lengthwise.attention.fused import gpu
from lengthwise.config import ConfigError
from lengthwise.forms import (
    AttentionModifiers,
    CumulativeBias,
    RelativeKeyBias,
    RelativeValues,
    SinkLogit,
    ToeplitzBias,
)
from lengthwise.native import tested_gpus
from lengthwise.native.tested_gpus import Combination
from lengthwise.span import Span

SOURCE = Path(tested_gpus.__file__).parents[3]
CUDA = torch.device("cuda", 0)
WARNING = (
    r"compute capability 9.0, Triton 3.6\), so backend='auto' takes another backend; `lengthwise check --device cuda`"
)


class Machine:
    """A GPU that is not there."""

    def __init__(self, cache: Path, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch
        patch.setenv("LENGTHWISE_CACHE", str(cache))
        patch.setattr(torch.cuda, "is_available", lambda: True)
        patch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA Imagined 1")
        patch.setattr(gpu, "unsupported_reason", lambda: None)
        self.has(capability=(9, 0), triton="3.6.0")
        self.restart()

    def has(self, *, capability: tuple[int, int], triton: str) -> None:
        self.patch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        self.patch.setitem(sys.modules, "triton", types.SimpleNamespace(__version__=triton))

    def restart(self) -> None:
        """As in a new process."""
        self.patch.setattr(tested_gpus, "results", {})

    @property
    def recorded(self) -> list[dict[str, str]]:
        return json.loads(cache_folder.load(tested_gpus.FILE))

    def record(self, *, passed: bool = True) -> None:
        tested_gpus.record(tested_gpus.combination_of(CUDA), passed=passed)
        self.restart()

    def is_tested(self, device: torch.device = CUDA) -> bool:
        """Whether the kernels are used. Exactly one warning has to say so if they are not."""
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            result = tested_gpus.is_tested(device)
        assert len(seen) == (0 if result else 1)
        return result


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path / "cache", monkeypatch)


def test_a_gpu_that_was_not_tested_gets_one_warning_with_the_command(machine: Machine) -> None:
    with pytest.warns(UserWarning, match=rf"not tested on NVIDIA Imagined 1 \({WARNING}") as seen:
        assert [tested_gpus.is_tested(CUDA) for _ in range(2)] == [False, False]
    assert len(seen) == 1 and "\n" not in str(seen[0].message)
    assert seen[0].filename == __file__


def test_a_combination_that_passed_is_known_to_later_processes(machine: Machine) -> None:
    machine.record()
    assert machine.is_tested() and machine.is_tested(torch.device("cuda", 1))  # another GPU of the same kind
    assert machine.recorded == [{"capability": "9.0", "triton": "3.6", "kernels": tested_gpus.kernels_hash()}]


@pytest.mark.parametrize("other", ["capability", "triton", "kernels", "AMD"])
def test_another_gpu_another_triton_and_other_kernels_are_not_tested(
    machine: Machine, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.record()
    if other == "kernels":
        monkeypatch.setattr(tested_gpus, "kernels_hash", lambda: "other")
    elif other == "AMD":
        monkeypatch.setattr(torch.version, "hip", "7.1")
    else:
        machine.has(
            **{"capability": (9, 0), "triton": "3.6.0"} | {other: {"capability": (8, 0), "triton": "3.7.0"}[other]}
        )
    assert not machine.is_tested()
    machine.record()
    assert machine.is_tested() and len(machine.recorded) == 2
    machine.record()
    assert len(machine.recorded) == 2


def test_a_patch_release_of_triton_is_the_same_combination(machine: Machine) -> None:
    machine.record()
    machine.has(capability=(9, 0), triton="3.6.2+git1234")
    assert machine.is_tested()


def test_kernels_that_fail_later_are_not_used_any_more(machine: Machine) -> None:
    machine.record()
    machine.record(passed=False)
    assert not machine.is_tested()


def test_combinations_of_the_package_need_no_record(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested_gpus, "TESTED", frozenset({Combination("9.0", "3.6", tested_gpus.kernels_hash())}))
    assert machine.is_tested()


@pytest.mark.parametrize("content", [b"", b"{", b"null", b"[1]", b'[{"capability": "9.0"}]', b'{"capability": "9.0"}'])
def test_a_damaged_record_counts_as_none_and_is_replaced(machine: Machine, content: bytes) -> None:
    cache_folder.store(tested_gpus.FILE, content)
    assert not machine.is_tested()
    machine.record()
    assert machine.is_tested()


def test_a_change_of_any_kernel_changes_the_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "split_segments" in tested_gpus.SEGMENTS.read_text()
    names = {path.name for path in tested_gpus.KERNELS.glob("*.py")}
    assert {"output.py", "gradients.py", "bias_gradients.py", "block_sizes.py", "__init__.py"} <= names
    segments = tmp_path / "gpu_segments.py"
    kernels = tmp_path / "gpu"
    kernels.mkdir()
    monkeypatch.setattr(tested_gpus, "SEGMENTS", segments)
    monkeypatch.setattr(tested_gpus, "KERNELS", kernels)
    seen = set()
    for first, second in (("a", "a"), ("b", "a"), ("a", "b")):
        (kernels / "output.py").write_text(first)
        segments.write_text(second)
        seen.add(tested_gpus.kernels_hash.__wrapped__())
    assert len(seen) == 3


def test_a_tensor_of_a_tracer_without_a_gpu_is_refused_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested_gpus, "results", {})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not tested_gpus.is_tested(CUDA)


# ---- plans


class OnGPU(torch.Tensor):
    """A tensor that says so."""

    device = property(lambda self: CUDA)
    is_cuda = True


def on_gpu(x: torch.Tensor) -> torch.Tensor:
    return x.as_subclass(OnGPU)


@pytest.fixture
def q(machine: Machine) -> torch.Tensor:
    return on_gpu(torch.zeros(1, 2, 8, 64))


@pytest.fixture
def modifiers() -> AttentionModifiers:
    return AttentionModifiers(terms=(ToeplitzBias(on_gpu(torch.zeros(2, 8))),))


SPAN, MASK = Span(on_gpu(torch.arange(8)[None]), on_gpu(torch.arange(8)[None]), 8), Mask(8, 8)


def test_auto_takes_the_next_backend_and_warns_once(
    machine: Machine, q: torch.Tensor, modifiers: AttentionModifiers
) -> None:
    with pytest.warns(UserWarning, match=WARNING) as seen:
        plans = [plan(forms, SPAN, MASK, q).backend for forms in (modifiers, AttentionModifiers())]
    assert plans == ["blocked", "sdpa"]
    assert len(seen) == 1
    machine.record()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plan(modifiers, SPAN, MASK, q).backend == "fused"


def test_a_backend_that_is_named_is_used_and_warns_once(
    machine: Machine, q: torch.Tensor, modifiers: AttentionModifiers
) -> None:
    with pytest.warns(UserWarning, match=WARNING) as seen:
        plans = [plan(modifiers, SPAN, MASK, q, backend="fused").backend for _ in range(2)]
    assert plans == ["fused", "fused"]
    assert len(seen) == 1


def test_calls_that_the_kernels_do_not_support_warn_about_nothing(
    machine: Machine, q: torch.Tensor, modifiers: AttentionModifiers
) -> None:
    wide = on_gpu(torch.zeros(1, 2, 8, 64, dtype=torch.float64))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plan(modifiers, SPAN, MASK, wide).backend == "blocked"
        with pytest.raises(ConfigError, match=r"it does not support torch\.float64 on cuda"):
            plan(modifiers, SPAN, MASK, wide, backend="fused")


def test_a_running_sum_is_served(q: torch.Tensor) -> None:
    term = CumulativeBias(on_gpu(torch.zeros(1, 2, 8, dtype=torch.float64)))
    modifiers = AttentionModifiers(terms=(term,), sink=SinkLogit(on_gpu(torch.zeros(2))))
    assert BACKENDS["fused"].unsupported_reason(modifiers, SPAN, MASK, q) is None


def test_vectors_added_to_values_are_served(q: torch.Tensor) -> None:
    vectors = on_gpu(torch.zeros(1, 33, 64))
    for terms in ((RelativeKeyBias(vectors, -16),), ()):
        modifiers = AttentionModifiers(terms=terms, values=(RelativeValues(vectors, -16),))
        assert BACKENDS["fused"].unsupported_reason(modifiers, SPAN, MASK, q) is None


@pytest.mark.slow
@pytest.mark.parametrize(("tested", "expected"), [(True, "1.0"), (False, "-1.0")])
def test_a_graph_holds_the_result(tested: bool, expected: str) -> None:
    """Looked up while the graph is built, and not again. In a process without checks of shapes, which break graphs."""
    program = f"""
import torch
from lengthwise.attention import Mask
from lengthwise.native import tested_gpus
from lengthwise.attention.fused.backend import Fused
from lengthwise.forms import AttentionModifiers
tested_gpus.look_up = lambda device: print("looked up") or {tested}

@torch.compile(backend="eager", fullgraph=True, dynamic=True)
def attend(x):
    return x + 1 if Fused().is_worthwhile(AttentionModifiers(), Mask(3, 3), torch.device("cuda", 0)) else x - 1

for tokens in (3, 5):
    print(attend(torch.zeros(tokens, 64)).mean().item())
"""
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["looked up", expected, expected], done.stderr[-3000:]
