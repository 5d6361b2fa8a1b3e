"""Whether the Triton kernels are right on this GPU: compared with the reference once, before they are first used.

Each device, dtype, head dim and combination of biases has kernels of its own, so each has a verdict of its own. The comparison
(comparison.py) runs in another process, which may crash or hang without harm. Its verdict is kept in the cache folder under a
hash of all that it depends on: the device's name and capability, driver, torch, Triton, and the sources of attention. Several
processes that start together wait for the first to compare.

`LENGTHWISE_GPU_CHECK=skip` uses the kernels without a comparison.
"""

import contextlib
import functools
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from lengthwise import cache_folder
from lengthwise.cache_folder import CacheError
from lengthwise.child_processes import python_command
from lengthwise.values import ConfigError

BIASES = ("table", "segments", "many segments", "vectors", "sink", "prefix sum", "values")
SECONDS = 600.0  # for one comparison; most of them go into compiling the kernels
_ATTENTION = Path(__file__).parents[2]
# This very package, and all others from where this process has them; nothing from whatever the current folder is.
_CODE = """
import importlib, json, sys, typing
root, others = json.loads(sys.argv[1])
sys.path[:] = [root, *others]
import lengthwise
sys.path[:] = others
importlib.import_module("lengthwise.attention.fused.gpu.comparison").main()
"""


@dataclass(frozen=True)
class Form:
    """What decides which kernels are compiled: the kinds of bias, in the order of `BIASES`, the head dim and the dtype.

    A sink counts as a kind of bias here.
    """

    biases: tuple[str, ...]
    dim: int
    dtype: str

    def __str__(self) -> str:
        return f"{' and '.join(self.biases) or 'no bias'}, {self.dim} dims, {self.dtype}"


@dataclass(frozen=True)
class Verdict:
    """`reason`: why the kernels are not used, or None. `final`: it would be the same if it were asked again."""

    reason: str | None
    final: bool = True


_known: dict[tuple[Form, torch.device], Verdict] = {}
_asking = threading.Lock()


def objection(biases: str, dim: int, dtype: torch.dtype, device: torch.device) -> str | None:
    """Return why kernels are not to be used, or None. `biases`: kinds out of `BIASES`, joined by "+".

    The first call for a form on a device compares, which can take minutes; a comparison that fails is a warning, once.
    """
    if skipped():
        return None
    form = Form(tuple(biases.split("+")) if biases else (), dim, str(dtype).removeprefix("torch."))
    with _asking:
        if (form, device) not in _known:
            _known[form, device] = _judge(form, device)
        return _known[form, device].reason


# A graph is made for the verdict; its arguments are constants there. See `native.missing`.
objection._dynamo_marked_constant = True  # type: ignore[attr-defined]


def skipped() -> bool:
    """Whether the user asked to use the kernels without a comparison."""
    asked = os.environ.get("LENGTHWISE_GPU_CHECK", "")
    if asked not in ("", "run", "skip"):
        raise ConfigError(f"LENGTHWISE_GPU_CHECK is {asked!r}; it has to be run (the default) or skip")
    return asked == "skip"


def _judge(form: Form, device: torch.device) -> Verdict:
    """The verdict out of the cache, or of a comparison. Warns where the kernels are not used."""
    try:
        about = {**environment_of(device), "form": str(form)}
    except (AssertionError, RuntimeError) as error:  # a tensor without a device: of a tracer
        return Verdict(f"{device} cannot be asked about ({_first_line(error)})")
    name = f"gpu-{hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]}.json"
    verdict = _stored(name, about)
    if verdict is None:
        with _alone(name) as alone:
            verdict = _stored(name, about)
            if verdict is None and not alone:
                verdict = Verdict("another process has been comparing them for too long", final=False)
            elif verdict is None:
                verdict = compare_in_process(form, device, about["device"])
                if verdict.final:
                    cache_folder.store(name, json.dumps({"about": about, "reason": verdict.reason}).encode())
    if verdict.reason is None:
        return verdict
    reason = f"lengthwise's GPU kernels ({form}) are not used on {about['device']}: {verdict.reason}"
    again = f"To compare them again, delete {name} in the cache folder. " if verdict.final else ""
    warnings.warn(
        f"{reason}. Other backends serve attention instead. {again}LENGTHWISE_GPU_CHECK=skip uses them unchecked",
        stacklevel=6,
    )
    return Verdict(f"{reason} (LENGTHWISE_GPU_CHECK=skip uses them unchecked)", verdict.final)


# ---- what a verdict depends on


def environment_of(device: torch.device) -> dict[str, str]:
    import triton

    properties = torch.cuda.get_device_properties(device)
    return {
        "device": properties.name,
        "capability": f"{properties.major}.{properties.minor}, {properties.multi_processor_count} multiprocessors",
        "driver": _driver(),
        "torch": f"{torch.__version__}, CUDA {torch.version.cuda}, HIP {torch.version.hip}",
        "triton": triton.__version__,
        "sources": source_files(),
    }


def _driver() -> str:
    """The driver's own words, and the newest CUDA that it serves, as far as they are told."""
    newest = getattr(torch._C, "_cuda_getDriverVersion", lambda: "unknown")()
    for file in ("/proc/driver/nvidia/version", "/sys/module/amdgpu/version"):
        with contextlib.suppress(OSError):
            return f"{newest}; {Path(file).read_text(errors='replace').strip()}"
    return str(newest)


@functools.cache
def source_files() -> str:
    """A hash of all that a comparison runs of ours."""
    found = hashlib.sha256()
    for path in [
        *sorted(_ATTENTION.rglob("*.py")),
        *sorted(_ATTENTION.with_name("forms").rglob("*.py")),
        _ATTENTION.with_name("span.py"),
    ]:
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


# ---- the cache


def _stored(name: str, about: dict[str, str]) -> Verdict | None:
    """The verdict of a file of exactly the kind that is written here; None for any other."""
    data = cache_folder.load(name)
    try:
        found = None if data is None else json.loads(data)
    except ValueError:
        return None
    if not isinstance(found, dict) or found.keys() != {"about", "reason"} or found["about"] != about:
        return None
    reason = found["reason"]
    return Verdict(reason) if reason is None or isinstance(reason, str) else None


@contextlib.contextmanager
def _alone(name: str) -> Iterator[bool]:
    """Yield whether no other process compares the same; without a cache folder this is not known."""
    with contextlib.ExitStack() as stack:
        alone = True
        with contextlib.suppress(CacheError, OSError):  # said when the verdict is stored
            if folder := cache_folder.folder(create=True):
                lock, what = folder / f".{name}.lock", "comparing the GPU kernels with the reference"
                alone = stack.enter_context(cache_folder.locked(lock, SECONDS + 60, what=what))
        yield alone


# ---- the comparison


def compare_in_process(form: Form, device: torch.device, name: str) -> Verdict:
    print(f"lengthwise: comparing its GPU kernels ({form}) with the reference on {name}, once (this can take minutes)",
          file=sys.stderr, flush=True)  # fmt: skip
    try:
        status, out, err = _run(comparison_command(form, device), SECONDS)
    except OSError as error:
        return Verdict(f"the comparison does not start ({error.strerror or error})", final=False)
    if status is None:
        return Verdict(f"the comparison took more than {SECONDS:.0f} s")
    if status < 0:
        ended = signal.Signals(-status) if -status in set(signal.Signals) else None
        by_others = ended in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        return Verdict(f"the comparison was ended by {ended.name if ended else -status}", final=not by_others)
    if status:
        return Verdict(f"the comparison ended with exit status {status}: {_last_line(err)}", final=False)
    return _answer(_last_line(out))


def comparison_command(form: Form, device: torch.device) -> list[str]:
    paths = json.dumps([str(_ATTENTION.parents[1]), [path for path in sys.path if os.path.isabs(path)]])
    question = json.dumps({**asdict(form), "device": str(device)})
    return python_command("-c", _CODE, paths, question)


def _run(command: list[str], seconds: float) -> tuple[int | None, str, str]:
    """The exit status, or None after so many seconds, and what was written. Nothing of the process is left behind."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        start_new_session=True,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=seconds)
        return process.returncode, out, err
    except subprocess.TimeoutExpired:
        _kill(process)
        return None, "", ""
    except BaseException:  # Ctrl-C reaches only this process, because the other has a session of its own
        _kill(process)
        raise


def _kill(process: "subprocess.Popen[str]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # with the compilers that it has started
    with contextlib.suppress(subprocess.TimeoutExpired):  # a hanging device may hold it
        process.communicate(timeout=10)


def _answer(line: str) -> Verdict:
    try:
        found = json.loads(line)
        result, reason = found["result"], found["reason"]
    except (ValueError, KeyError, TypeError):
        return Verdict(f"the comparison gave no answer: {line[:200]!r}", final=False)
    if result == "equal":
        return Verdict(None)
    return Verdict(str(reason), final=result == "different")


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["without a word"])[-1]


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
