"""Measure how long a user waits at the start: imports and `lengthwise --help`.

    python benchmarks/startup.py [--rounds 7]

Each figure is the wall time of a new process: the median and the range over rounds that run all commands in turn. The
cost of `import lengthwise` with all parts that need torch is its difference from `import torch` in the same round.
"""

import argparse
import statistics
import subprocess
import sys
import time

from record import save

PARTS = "lengthwise.encodings, lengthwise.attention, lengthwise.models, lengthwise.tasks"
COMMANDS = {
    "python": [sys.executable, "-c", "pass"],
    "import torch": [sys.executable, "-c", "import torch"],
    "import torch and lengthwise": [sys.executable, "-c", f"import torch, lengthwise, {PARTS}"],
    "import lengthwise": [sys.executable, "-c", "import lengthwise"],
    "lengthwise --help": [sys.executable, "-m", "lengthwise", "--help"],
    "lengthwise list runs": [sys.executable, "-m", "lengthwise", "list", "runs"],
}


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    for command in COMMANDS.values():
        seconds(command)
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, command in COMMANDS.items():
            times[name].append(seconds(command))
    added = [b - a for a, b in zip(times["import torch"], times["import torch and lengthwise"], strict=True)]
    times["added by lengthwise"] = added
    figures = {n: {"median": statistics.median(t), "low": min(t), "high": max(t)} for n, t in times.items()}
    for name, f in figures.items():
        print(f"{name:<30}{f['median']:>7.2f} s   ({f['low']:.2f} - {f['high']:.2f})")
    save("startup", figures)


if __name__ == "__main__":
    main()
