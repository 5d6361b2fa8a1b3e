"""Store the figures of a benchmark as JSON in benchmarks/results/, with commit, machine, versions, command and date.

A file is {"made": header, "figures": ...}. The header's `commit` is the one that was measured, and
`uncommitted_changes` says whether tracked files differed from it. Older files have no commit (null); there
`recorded_in` is the commit that stored the figures, which were measured on that commit or shortly before.
"""

import json
import os
import platform
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import lengthwise
from lengthwise.studies.provenance import commit

RESULTS = Path(__file__).parent / "results"


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def command() -> str:
    """Return the command that runs, as others can repeat it: of a path on this machine its last part stays."""
    script = Path(sys.argv[0])
    program = ["-m", script.parent.name] if script.name == "__main__.py" else [f"benchmarks/{script.name}"]
    return shlex.join(["python", *program, *map(without_folders, sys.argv[1:])])


def without_folders(word: str) -> str:
    """Return a word of a command, an absolute path in it (`--results=/a/b`, `text=/a/b`) without its folders."""
    option, equals, value = word.rpartition("=")
    path = Path(value).expanduser()
    return f"{option}{equals}{path.name}" if path.is_absolute() else word


def header() -> dict[str, Any]:
    """What every file in results/ begins with."""
    source = commit(Path(lengthwise.__file__), besides="benchmarks/results")
    return {
        "commit": source.get("commit"),
        "uncommitted_changes": source.get("uncommitted_changes"),
        "command": command(),
        "date": datetime.now(UTC).date().isoformat(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "lengthwise": lengthwise.__version__,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def as_text(value: Any, before: str = "") -> str:
    """Return JSON with two spaces for each level, in which each item of a list has one line: a study has thousands of
    rows.
    """
    inside = before + "  "
    if isinstance(value, dict) and value:
        members = (f"{inside}{json.dumps(name)}: {as_text(item, inside)}" for name, item in value.items())
        return "{\n" + ",\n".join(members) + f"\n{before}}}"
    if isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        return "[\n" + ",\n".join(f"{inside}{json.dumps(item)}" for item in value) + f"\n{before}]"
    return json.dumps(value)


def write(path: Path, facts: dict[str, Any], figures: dict[str, Any]) -> None:
    """Write a file of results in one step, so that a process that is killed leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(as_text({"made": facts, "figures": figures}) + "\n")
    new.replace(path)


def save(name: str, figures: dict[str, Any]) -> None:
    """Print where the figures come from and write them to results/<name>.json."""
    facts = header()
    path = RESULTS / f"{name}.json"
    write(path, facts, figures)
    changed = ", with uncommitted changes" if facts["uncommitted_changes"] else ""
    print(f"\n{facts['processor']}, {facts['cores']} cores, Python {facts['python']}, torch {facts['torch']}")
    print(f"commit {facts['commit']}{changed}")
    print(
        f"command: {facts['command']}\nkept in "
        f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}"
    )
