"""Measure on a GPU, in slices of a few minutes that run in any order and keep their results.

    python benchmarks/gpu_day.py [--slice NAME ...] [--only TEXT] [--minutes 8] [--total-minutes 15]
                                 [--folder gpu-day] [--device cuda]
    python benchmarks/gpu_day.py --list | --dry-run | --summary

Each slice (gpu_slices.py) is a list of measurements. They are stored one by one in FOLDER/NAME.json, so a slice that is
killed or reaches its limit has kept what it measured, and the same command measures the rest. A measurement that failed
is stored with its error and is tried again. Every slice has a process of its own, so a crash of one does not stop the
others. What was measured with another commit or on another GPU is measured again.

Begin with `agreement`: only after it has passed do FIRE and `backend="auto"` use the Triton kernels. That, and the
compiled kernels, are kept in FOLDER/cache.

--only: measure what has this text in its name, such as "8192 tokens, 64 dims". --minutes: the limit of each slice.
--total-minutes: no slice begins after that time, and the last one ends with it.
--tiny: small sizes, with which `--device cpu` shows that the script itself works.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gpu_setting import OutOfTime, Setting
from gpu_slices import SLICES
from record import header, write

from lengthwise.config import ConfigError
from lengthwise.studies import Compute

GRACE = 15  # seconds after its limit in which a slice ends by itself
Figures = dict[str, Any]


def kept(setting: Setting, name: str) -> Figures:
    """Return the measurements of a slice that are stored, by name."""
    path = setting.folder / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))["figures"] if path.exists() else {}


def is_missing(figure: Figures | None, facts: Figures) -> bool:
    """Return whether there is no figure of this commit and GPU."""
    return figure is None or "error" in figure or any(figure[name] != facts[name] for name in ("commit", "gpu"))


def measure(setting: Setting, name: str, only: str = "") -> None:
    """Measure what is missing of a slice, in this process, until its deadline."""
    figures, facts = kept(setting, name), header()
    measurements = [one for one in SLICES[name](setting) if only in one[0]]
    if not measurements:
        print(f"  nothing to measure on {setting.device}{f' with {only!r} in its name' if only else ''}", flush=True)
    for label, action in measurements:
        if not is_missing(figures.get(label), facts):
            continue
        if setting.seconds_left() <= 0:
            print("  no time is left; the same command continues", flush=True)
            return
        begin = time.monotonic()
        try:
            figure = action()
        except OutOfTime:
            print(f"  {label}: no time was left for it", flush=True)
            continue
        except Exception as error:  # whatever fails, the next measurement may work
            lines = str(error).strip().splitlines() or ["without a message"]
            figure = {"error": f"{type(error).__name__}: {lines[0][:300]}"}
        seconds = round(time.monotonic() - begin, 2)
        figures[label] = {**figure, "seconds": seconds, "commit": facts["commit"], "gpu": facts["gpu"]}
        write(setting.folder / f"{name}.json", facts, figures)
        print(f"  {label}: {shown(figure)}", flush=True)


def shown(figure: Figures) -> str:
    """Return a figure as one short text."""
    if "error" in figure:
        return f"failed: {figure['error']}"

    def one(value: Any) -> str:
        if isinstance(value, dict):
            return f"({shown(value)})"
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    hidden = ("commit", "gpu", "output", "errors")
    return ", ".join(f"{name} {one(value)}" for name, value in figure.items() if name not in hidden)


def in_a_process(setting: Setting, name: str, only: str, seconds: float) -> None:
    """Run a slice in a process of its own, and end it with its children if it does not end in time."""
    environment, cache = dict(os.environ), setting.folder.absolute() / "cache"
    if setting.device != "cpu":
        environment |= {"LENGTHWISE_CACHE": str(cache / "lengthwise"), "TRITON_CACHE_DIR": str(cache / "triton")}
    command = [
        sys.executable,
        __file__,
        "--here",
        "--slice",
        name,
        "--only",
        only,
        "--minutes",
        str(seconds / 60),
        "--device",
        setting.device,
    ]
    command += ["--folder", str(setting.folder), *(["--tiny"] if setting.tiny else [])]
    with subprocess.Popen(command, env=environment, start_new_session=True) as process:
        try:
            code = process.wait(seconds + GRACE)
        except subprocess.TimeoutExpired:
            print("  stopped, because it did not end in time", flush=True)
        else:
            if code:
                print(f"  its process ended with exit code {code}", flush=True)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def summary(setting: Setting) -> None:
    """Print the stored measurements of all slices."""
    if not any(kept(setting, name) for name in SLICES):
        print(f"nothing is stored in {setting.folder}")
    for name in SLICES:
        if figures := kept(setting, name):
            print(f"\n{name}")
            width = max(map(len, figures))
            for label, figure in figures.items():
                print(f"  {label:{width}}  {shown(figure)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slice", action="append", choices=SLICES, help="may be repeated [default: all]")
    parser.add_argument("--only", default="", help="measure what has this text in its name")
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--total-minutes", type=float, default=float("inf"))
    parser.add_argument("--folder", type=Path, default=Path("gpu-day"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--list", action="store_true", help="print the slices")
    parser.add_argument("--dry-run", action="store_true", help="print what each slice would measure now")
    parser.add_argument("--summary", action="store_true", help="print what is stored")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # measure in this process
    args = parser.parse_args()
    names = args.slice or list(SLICES)
    setting = Setting(args.device, args.tiny, args.folder, time.monotonic() + 60 * args.minutes)
    if args.list:
        for name in names:
            print(f"{name:18}{(SLICES[name].__doc__ or '').splitlines()[0]}")
    elif args.dry_run:
        facts = header()
        for name in names:
            print(name)
            figures = kept(setting, name)
            for label, _ in SLICES[name](setting):
                if args.only not in label:
                    continue
                print(f"  {label}" + ("" if is_missing(figures.get(label), facts) else " (stored)"))
    elif args.summary:
        summary(setting)
    elif args.here:
        measure(setting, names[0], args.only)
    else:
        try:
            Compute(device=args.device).require_usable()
        except ConfigError as error:
            parser.error(str(error))
        end = time.monotonic() + 60 * args.total_minutes
        for name in names:
            seconds = min(60 * args.minutes, end - time.monotonic() - GRACE)
            if seconds <= 0:
                print(f"{name}: no time is left")
                continue
            print(name, flush=True)
            in_a_process(setting, name, args.only, seconds)
        summary(setting)


if __name__ == "__main__":
    main()
