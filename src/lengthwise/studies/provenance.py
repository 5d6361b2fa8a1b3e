"""The origin of results: versions, device and commit."""

import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy
import torch

import lengthwise
from lengthwise.models.linear import matmul_library


def facts(device: str, threads: int) -> dict[str, Any]:
    """Return the facts that are stored with every result of this process."""
    return {
        "versions": {"lengthwise": lengthwise.__version__, "torch": torch.__version__, "numpy": numpy.__version__},
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "device": device_name(device),
        "threads": threads,
        "matmul_library": matmul_library() if torch.device(device).type == "cpu" else "torch",
        **commit(Path(lengthwise.__file__)),
    }


def device_name(device: str) -> str:
    """Return the device with its model name: "cpu (AMD EPYC 7763)", "cuda (NVIDIA H200)"."""
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
    """Return the commit of the git checkout that tracks `file`, and whether tracked files have uncommitted changes.

    Changes in the folder `besides`, relative to the checkout's root, are ignored. Return {} without a checkout.
    """
    folder = str(file.parent)
    try:
        # An installed copy may lie inside an unrelated checkout, which does not track it.
        _git(folder, "ls-files", "--error-unmatch", file.name)
        head = _git(folder, "rev-parse", "--short=12", "HEAD")
        paths = ["--", ":/", f":(top,exclude){besides}"] if besides else []
        changes = _git(folder, "status", "--porcelain", "--untracked-files=no", *paths)
        return {"commit": head, "uncommitted_changes": bool(changes)}
    except (OSError, subprocess.SubprocessError):
        return {}


def _git(folder: str, *arguments: str) -> str:
    command = ["git", "--no-optional-locks", "-C", folder, *arguments]
    process = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=True, timeout=10
    )
    return process.stdout.decode("utf-8", "replace").strip()
