"""Where a number comes from: versions, device, commit."""

import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy
import torch

import lengthwise
from lengthwise.models.linear import multiplied_by


def facts(device: str, threads: int) -> dict[str, Any]:
    """What is the same for everything that this process computes."""
    return {
        "versions": {"lengthwise": lengthwise.__version__, "torch": torch.__version__, "numpy": numpy.__version__},
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "device": device_name(device),
        "threads": threads,
        "linear_maps": multiplied_by() if torch.device(device).type == "cpu" else "torch",
        **commit(Path(lengthwise.__file__)),
    }


def device_name(device: str) -> str:
    """The device as its maker calls it: "cpu (AMD EPYC 7763)", "cuda (NVIDIA H200)"."""
    kind = torch.device(device).type
    name = torch.cuda.get_device_name(device) if kind == "cuda" else _processor() if kind == "cpu" else ""
    return f"{kind} ({name})" if name else kind


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.lower().startswith("model name"):
                    return " ".join(line.partition(":")[2].split())
    except OSError:
        pass
    return platform.processor()


def commit(file: Path, besides: str | None = None) -> dict[str, Any]:
    """The commit of the checkout that `file` is tracked in, and whether tracked files were changed, those in the folder
    `besides` (from the checkout's root) left out; {} without one."""
    folder = str(file.parent)
    try:
        # A copy in site-packages may lie inside some checkout without being part of it.
        _git(folder, "ls-files", "--error-unmatch", file.name)
        head = _git(folder, "rev-parse", "--short=12", "HEAD")
        which = ["--", ":/", f":(top,exclude){besides}"] if besides else []
        return {"commit": head, "dirty": bool(_git(folder, "status", "--porcelain", "--untracked-files=no", *which))}
    except (OSError, subprocess.SubprocessError):
        return {}


def _git(folder: str, *arguments: str) -> str:
    command = ["git", "--no-optional-locks", "-C", folder, *arguments]
    ran = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=True, timeout=10
    )
    return ran.stdout.decode("utf-8", "replace").strip()
