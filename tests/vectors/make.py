"""Runs the scripts of this folder, each by itself, and writes their JSON files: one case per line.

python tests/vectors/make.py
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def scripts() -> list[Path]:
    return sorted(path for path in HERE.glob("*.py") if path.name not in ("make.py", "shared.py"))


def run(script: Path) -> dict[str, Any]:
    """What a script says, in an interpreter that has only the standard library and `shared.py`."""
    code = f"import runpy, sys; sys.path.append({str(HERE)!r}); runpy.run_path({str(script)!r}, run_name='__main__')"
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"{script.name} failed:\n{ran.stderr}")
    return json.loads(ran.stdout)


def text(made: dict[str, Any]) -> str:
    cases = ",\n".join("  " + json.dumps(case) for case in made["cases"])
    head = ",\n".join(f" {json.dumps(key)}: {json.dumps(made[key])}" for key in ("encoding", "how"))
    return "{\n" + head + ',\n "cases": [\n' + cases + "\n ]\n}\n"


if __name__ == "__main__":
    for script in scripts():
        script.with_suffix(".json").write_text(text(run(script)), encoding="utf-8")
        print(script.with_suffix(".json").name)
