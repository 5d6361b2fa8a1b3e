"""The GPU's kernels are compared with the reference before they are used: verdicts, without a GPU. The process that compares is
replaced by others that crash, hang and lie; the comparison itself runs with the kernels in Triton's interpreter."""

import importlib
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
import torch

from lengthwise import cache_folder, encodings
from lengthwise.attention import BACKENDS, Mask, plan
from lengthwise.attention.fused import backend as fused
from lengthwise.attention.fused import gpu
from lengthwise.attention.fused.gpu import verdicts
from lengthwise.attention.fused.gpu.verdicts import Form
from lengthwise.config import ConfigError
from lengthwise.forms import (
    AttentionModifiers,
    CumulativeBias,
    RelativeKeyBias,
    RelativeValues,
    SinkLogit,
    ToeplitzBias,
)
from lengthwise.span import Span

SOURCE = Path(verdicts.__file__).parents[4]
CUDA = torch.device("cuda", 0)
ABOUT = {"device": "NVIDIA Imagined 1", "capability": "9.0", "driver": "1", "torch": "2", "triton": "3", "sources": "4"}
EQUAL = 'print(\'{"result": "equal", "reason": null}\')'

needs_triton = pytest.mark.skipif(gpu.missing() is not None, reason=str(gpu.missing()))


class Machine:
    """A GPU that is not there, and a program in place of the comparison."""

    def __init__(self, tmp_path, monkeypatch):
        self.cache, self.log, self.patch = tmp_path / "cache", tmp_path / "log", monkeypatch
        self.about = dict(ABOUT)
        monkeypatch.setenv("LENGTHWISE_CACHE", str(self.cache))
        monkeypatch.delenv("LENGTHWISE_GPU_CHECK", raising=False)
        monkeypatch.setattr(verdicts, "environment_of", lambda device: dict(self.about))
        self.runs(EQUAL)
        self.restart()

    def runs(self, code):
        code = f"open({str(self.log)!r}, 'a').write('x'); {code}"
        self.patch.setattr(verdicts, "comparison_command", lambda form, device: [sys.executable, "-c", code])

    def restart(self):
        """As in a new process."""
        self.patch.setattr(verdicts, "_known", {})
        self.patch.setattr(cache_folder, "_warned", set())

    @property
    def times(self):
        return len(self.log.read_text()) if self.log.exists() else 0

    def ask(self, biases="table", dim=64, dtype=torch.bfloat16, device=CUDA):
        """The objection, and the warnings."""
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            found = verdicts.objection(biases, dim, dtype, device)
        return found, [str(one.message) for one in seen]

    @property
    def files(self):
        return sorted(self.cache.glob("gpu-*.json"))


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return Machine(tmp_path, monkeypatch)


def test_kernels_that_are_right_are_asked_once_and_kept(machine):
    assert machine.ask() == (None, []) == machine.ask()
    machine.restart()
    assert machine.ask() == (None, [])
    assert machine.times == 1 and len(machine.files) == 1


def test_every_form_device_and_environment_is_asked_by_itself(machine):
    machine.ask()
    machine.ask("segments")
    machine.ask("")
    machine.ask(dim=128)
    machine.ask(dtype=torch.float16)
    assert machine.times == 5
    for name in ABOUT:
        machine.restart()
        machine.about = {**ABOUT, name: "other"}
        machine.ask()
    assert machine.times == 5 + len(ABOUT) == len(machine.files)
    machine.about = dict(ABOUT)
    machine.ask(device=torch.device("cuda", 1))  # another device of the same kind is asked of the cache
    assert machine.times == 5 + len(ABOUT)


DIFFERENT = json.dumps({"result": "different", "reason": "decoding: the gradient of q is off by 3.0e-01"})
FAILURES = {
    "crash": ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "the comparison was ended by SIGSEGV"),
    "abort": ("import os; os.abort()", "the comparison was ended by SIGABRT"),
    "wrong numbers": (f"print('compiling'); print({DIFFERENT!r})", "decoding: the gradient of q is off by 3.0e-01"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_kernels_that_fail_are_said_once_and_kept(name, machine):
    code, reason = FAILURES[name]
    machine.runs(code)
    for _ in range(2):
        found, (said,) = machine.ask()
        for words in (found, said):
            assert f"GPU kernels (table, 64 dims, bfloat16) are not used on NVIDIA Imagined 1: {reason}" in words
            assert "\n" not in words and "LENGTHWISE_GPU_CHECK=skip" in words
        assert machine.files[0].name in said, "to ask again"
        assert machine.ask() == (found, [])
        machine.restart()
    assert machine.times == 1
    machine.files[0].unlink()
    machine.runs(EQUAL)
    assert machine.ask() == (None, [])


@pytest.mark.medium
def test_kernels_that_hang_are_ended_with_all_that_they_started(machine, tmp_path, monkeypatch):
    monkeypatch.setattr(verdicts, "SECONDS", 1.5)
    child = (
        f"import time; open({str(tmp_path / 'child')!r}, 'w').write(str(__import__('os').getpid())); time.sleep(600)"
    )
    machine.runs(f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(600)")
    started = time.monotonic()
    found, said = machine.ask()
    assert "the comparison took more than" in found and len(said) == 1
    assert time.monotonic() - started < 60
    process = int((tmp_path / "child").read_text())
    with pytest.raises(ProcessLookupError):
        for _ in range(100):  # until whoever inherited it has taken note
            os.kill(process, 0)
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                raise ProcessLookupError
            time.sleep(0.05)
    assert len(machine.files) == 1


UNAVAILABLE = json.dumps({"result": "unavailable", "reason": "OutOfMemoryError: CUDA out of memory"})


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (f"print({UNAVAILABLE!r})", "OutOfMemoryError"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "ended by SIGKILL"),
        ("import no_such_module", "ended with exit status 1: ModuleNotFoundError: No module named 'no_such_module'"),
        ("print('fine')", "gave no answer: 'fine'"),
        ("", "gave no answer: 'without a word'"),
        ("print('[1]')", "gave no answer: '[1]'"),
    ],
)
def test_what_may_pass_is_not_kept(code, reason, machine):
    machine.runs(code)
    found, (said,) = machine.ask()
    assert reason in found and "delete" not in said and not machine.files
    machine.ask()
    assert machine.times == 1, "once in a process"
    machine.restart()
    machine.runs(EQUAL)
    assert machine.ask() == (None, [])


def test_a_comparison_that_does_not_start(machine, monkeypatch):
    monkeypatch.setattr(verdicts, "comparison_command", lambda form, device: ["/nowhere/python"])
    found, _ = machine.ask()
    assert "does not start (No such file or directory)" in found and not machine.files


GOOD = {"about": {**ABOUT, "form": "table, 64 dims, bfloat16"}, "reason": None}
BAD = [
    b"", b"{", b"null", b"[]", b'{"reason": null}', {**GOOD, "more": 1}, {**GOOD, "reason": 1}, {**GOOD, "about": {}},
    {**GOOD, "reason": True}, {**GOOD, "about": {**GOOD["about"], "driver": "other"}},
]  # fmt: skip


@pytest.mark.parametrize("content", [*BAD, GOOD], ids=str)
def test_a_verdict_that_is_damaged_is_asked_for_again(content, machine):
    machine.ask()
    (file,) = machine.files
    written = file.read_bytes()
    cache_folder.store(file.name, content if isinstance(content, bytes) else json.dumps(content).encode())
    machine.restart()
    assert machine.ask() == (None, [])
    assert machine.times == (1 if content is GOOD else 2) and file.read_bytes() == written


@pytest.mark.slow
def test_processes_that_start_together_compare_once(machine, tmp_path):
    program = f"""
import json, sys, torch
from lengthwise.attention.fused.gpu import verdicts
verdicts.environment_of = lambda device: {ABOUT!r}
code = "import time; open({str(machine.log)!r}, 'a').write('x'); time.sleep(2); " + {EQUAL!r}
verdicts.comparison_command = lambda form, device: [sys.executable, "-c", code]
print("ready", flush=True)
sys.stdin.readline()
print(verdicts.objection("table", 64, torch.bfloat16, torch.device("cuda", 0)))
"""
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    started = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        for _ in range(2)
    ]  # fmt: skip
    assert [process.stdout.readline() for process in started] == ["ready\n"] * 2
    for process in started:
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.communicate()[0] for process in started] == ["None\n"] * 2
    assert machine.times == 1


def test_another_process_is_not_waited_for_for_ever(machine, monkeypatch):
    monkeypatch.setattr(verdicts, "SECONDS", -59.8)
    name = []
    store = cache_folder.store
    monkeypatch.setattr(cache_folder, "store", lambda n, data: name.append(n) or store(n, data))
    monkeypatch.setattr(verdicts, "compare_in_process", lambda *_: verdicts.Verdict(None))
    machine.ask()
    machine.files[0].unlink()
    machine.restart()
    with cache_folder.locked(machine.cache / f".{name[0]}.lock", 0, what="busy"):
        found, (said,) = machine.ask()
    assert "another process has been comparing them for too long" in found and "delete" not in said
    assert not machine.files


def test_without_a_cache_it_is_asked_in_every_process(machine, monkeypatch):
    machine.cache.mkdir(mode=0o777)
    machine.cache.chmod(0o777)
    for times in (1, 2):
        found, (said,) = machine.ask()
        assert found is None and "other users may write to" in said and machine.times == times
        assert machine.ask() == (None, [])
        machine.restart()


def test_the_user_may_skip_it(machine, monkeypatch):
    machine.runs("1 / 0")
    monkeypatch.setenv("LENGTHWISE_GPU_CHECK", "skip")
    assert machine.ask() == (None, []) and machine.times == 0
    monkeypatch.setenv("LENGTHWISE_GPU_CHECK", "no")
    with pytest.raises(ConfigError, match=r"LENGTHWISE_GPU_CHECK is 'no'; it has to be run \(the default\) or skip"):
        machine.ask()


def test_a_tensor_without_a_device_is_refused_quietly(machine, monkeypatch):
    def no_device(device):
        raise AssertionError("Torch not compiled with CUDA enabled")

    monkeypatch.setattr(verdicts, "environment_of", no_device)
    assert machine.ask() == ("cuda:0 cannot be asked about (Torch not compiled with CUDA enabled)", [])


# ---- who asks


class OnGPU(torch.Tensor):
    """A tensor that says so."""

    device = property(lambda self: CUDA)
    is_cuda = True


@pytest.fixture
def q(monkeypatch):
    monkeypatch.setattr(gpu, "missing", lambda: None)
    return torch.zeros(1, 2, 8, 64).as_subclass(OnGPU)


TABLE = AttentionModifiers(terms=(ToeplitzBias(torch.zeros(2, 8).as_subclass(OnGPU)),))


def test_auto_takes_the_next_backend_and_a_backend_that_is_named_raises(machine, q):
    span, mask = Span.of(8), Mask(8, 8)
    assert plan(TABLE, span, mask, q).backend == "fused" and machine.times == 1
    assert plan(TABLE, span, mask, q, backend="fused").backend == "fused" and machine.times == 1
    machine.restart()
    machine.files[0].unlink()
    machine.runs("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    with pytest.warns(UserWarning, match="NVIDIA Imagined 1: the comparison was ended by SIGSEGV"):
        assert plan(TABLE, span, mask, q).backend == "blocked"
    with pytest.raises(
        ConfigError, match=r"^backend 'fused' does not support .* ended by SIGSEGV .*=skip uses them"
    ) as error:
        plan(TABLE, span, mask, q, backend="fused")
    assert "\n" not in str(error.value)


def test_what_the_kernels_refuse_anyway_is_not_compared(machine, q):
    mask = Mask(8, 8)
    assert BACKENDS["fused"].unsupported_reason(TABLE, Span.of(8), mask, q.double().as_subclass(OnGPU)) == (
        "it does not support torch.float64 on cuda"
    )
    assert machine.times == 0


def test_a_running_sum_is_served(machine, q):
    term = CumulativeBias(torch.zeros(1, 2, 8, dtype=torch.float64).as_subclass(OnGPU))
    modifiers = AttentionModifiers(terms=(term,), sink=SinkLogit(torch.zeros(2).as_subclass(OnGPU)))
    assert fused.bias_kinds(modifiers) == ["sink", "prefix sum"]
    assert plan(modifiers, Span.of(8), Mask(8, 8), q).backend == "fused"


def test_vectors_added_to_values_are_served(machine, q):
    vectors = torch.zeros(1, 33, 64).as_subclass(OnGPU)
    for terms in ((RelativeKeyBias(vectors, -16),), ()):
        modifiers = AttentionModifiers(terms=terms, values=(RelativeValues(vectors, -16),))
        assert plan(modifiers, Span.of(8), Mask(8, 8), q).backend == "fused"


@pytest.mark.parametrize(
    ("encoding", "biases"),
    [
        (None, []),
        (encodings.RoPE(head_dim=8), []),
        (encodings.T5(num_heads=2), ["table"]),
        (encodings.FIRE(num_heads=2), ["segments"]),
        (encodings.FIRE(num_heads=2, activation="gelu"), ["many segments"]),
        (encodings.Shaw(head_dim=8, values=False), ["vectors"]),
        (encodings.Shaw(head_dim=8), ["vectors", "values"]),
        (encodings.Sinks(num_heads=2), ["sink"]),
    ],
    ids=lambda x: type(x).__name__,
)
def test_the_form_of_an_encoding(encoding, biases):
    modifiers = AttentionModifiers() if encoding is None else encoding.modifiers(Span.of(600))
    assert fused.bias_kinds(modifiers) == biases


@pytest.mark.slow
def test_a_graph_holds_the_verdict(machine):
    """Asked for while the graph is made, and not again. In a process without checks of shapes, which break graphs."""
    program = f"""
import sys, torch
from lengthwise.attention.fused import backend as fused
from lengthwise.attention.fused.gpu import verdicts
from lengthwise.forms import AttentionModifiers, ToeplitzBias
verdicts.environment_of = lambda device: {ABOUT!r}
code = "open({str(machine.log)!r}, 'a').write('x'); "
verdicts.comparison_command = lambda form, device: [sys.executable, "-c", code + ({EQUAL!r} if form.biases else "1 / 0")]

@torch.compile(backend="eager", fullgraph=True, dynamic=True)
def attend(x, table):
    refused = fused.kernel_verdict(AttentionModifiers(terms=() if table is None else (ToeplitzBias(table),)), x)
    return x + 1 if refused is None else x - 1

for tokens, table in ((3, torch.zeros(2, 8)), (5, torch.zeros(2, 9)), (3, None)):
    print(attend(torch.zeros(tokens, 64), table).mean().item())
"""
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["1.0", "1.0", "-1.0"], done.stderr[-3000:]
    assert machine.times == 2 and "UserWarning" in done.stderr


# ---- the comparison


@pytest.mark.medium
def test_the_real_command_compares(monkeypatch, tmp_path):
    """On a CPU, whose kernel has its own tests; from a folder whose modules have nothing to say in it."""
    (tmp_path / "torch.py").write_text("raise SystemExit('from the current folder')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    found = verdicts.compare_in_process(Form(("table",), 8, "float32"), torch.device("cpu"), "a CPU")
    assert found == verdicts.Verdict(None)
    if not torch.cuda.is_available():
        found = verdicts.compare_in_process(Form(("table",), 8, "float32"), CUDA, "no GPU")
        assert found.reason and not found.final


def test_the_sources_are_those_that_are_compared():
    names = {path.name for path in verdicts._ATTENTION.rglob("*.py")}
    assert {"operator.py", "output.py", "gradients.py", "reference.py", "comparison.py"} <= names
    assert len(verdicts.source_files()) == 16


@needs_triton
@pytest.mark.parametrize("part", [pytest.param("not slow", id="brief"), "slow"])
@pytest.mark.slow
def test_in_the_interpreter(part):
    """A process of its own: Triton decides when it is imported whether it interprets."""
    file = Path(__file__).with_name("interpreted_comparison.py")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", part, str(file)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    env |= {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=file.parents[3], check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.gpu
@needs_triton
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("biases", ["", "table", "segments", "many segments", "vectors", "sink", "prefix sum"])
def test_on_a_gpu(biases, dtype):
    comparison = importlib.import_module("lengthwise.attention.fused.gpu.comparison")
    assert comparison.difference(Form(tuple(filter(None, [biases])), 64, dtype), "cuda") is None
