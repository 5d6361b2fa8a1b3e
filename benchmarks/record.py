"""What every benchmark says beside its figures: machine, versions, command; kept as JSON in benchmarks/results/."""

import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import lengthwise

RESULTS = Path(__file__).parent / "results"


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def save(name: str, figures: dict[str, Any]) -> None:
    """Print where the figures come from and write them to results/<name>.json."""
    facts = {
        "command": " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "date": datetime.now(UTC).date().isoformat(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "lengthwise": lengthwise.__version__,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"made": facts, "figures": figures}, indent=2) + "\n")
    print(f"\n{facts['processor']}, {facts['cores']} cores, Python {facts['python']}, torch {facts['torch']}")
    print(
        f"command: {facts['command']}\nkept in {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}"
    )
