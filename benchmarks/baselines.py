"""Measure the baselines of in-context learning, and how often the intervals of the report contain the true mean.

    python benchmarks/baselines.py [--prompts 1280] [--examples 400] [--dims 16] [--studies 1500] [--skip intervals]

Each baseline predicts all prefixes of prompts of linear regression. The time is CPU time of the process with one
thread, in seconds. For comparison, NumPy's solver is called for each prefix of 16 prompts, and its time is scaled up to
all prompts. The lasso is fitted at ten lengths. Then studies are simulated in which seeds, the prompts that all seeds
share, or both vary. The figure is the share of 95 % intervals that contain the true mean.
"""

import argparse
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is there

import numpy as np
from record import save

from lengthwise.analysis.estimates import RESAMPLES, identity, over_seeds, over_seeds_and_groups
from lengthwise.baselines.in_context import BASELINES, Array, predictions

SOLVED = 16  # prompts for the solver
FITTED = 10  # lengths for the lasso
GROUPS = 40
CASES = {  # standard deviations of seeds, of groups of prompts, and of both together
    "seeds alone": (1.0, 0.0, 0.0),
    "prompts, and a little both": (0.0, 1.0, 0.5),
    "prompts and seeds": (0.3, 1.0, 1.0),
}


def seconds(name: str, xs: Array, ys: Array) -> float:
    at = list(np.linspace(1, xs.shape[1] - 1, FITTED).astype(int)) if name == "lasso" else None
    begin = time.process_time()
    predictions(name, xs, ys, at)
    return time.process_time() - begin


def solver(xs: Array, ys: Array) -> float:
    begin = time.process_time()
    for x, y in zip(xs[:SOLVED], ys[:SOLVED], strict=True):
        for i in range(1, len(x)):
            np.linalg.lstsq(x[:i], y[:i], rcond=None)[0] @ x[i]
    return (time.process_time() - begin) * len(xs) / min(SOLVED, len(xs))


def students_t(values: Array) -> tuple[float, float]:
    interval = over_seeds(values.mean(1).tolist())
    return interval.low, interval.high


def of_the_report(values: Array) -> tuple[float, float]:
    interval = over_seeds_and_groups(values.tolist())
    return interval.low, interval.high


def crossed(values: Array) -> tuple[float, float]:
    """The bootstrap of two crossed factors (Owen 2007), which draws both seeds and groups with replacement."""
    seeds, groups = values.shape
    chance = np.random.default_rng(identity(values.ravel().tolist(), seeds))
    drawn = chance.integers(0, groups, (RESAMPLES, groups))
    of_seeds = values[chance.integers(0, seeds, (RESAMPLES, seeds))].mean(1)  # [resample, group]
    low, high = np.quantile(np.take_along_axis(of_seeds, drawn, 1).mean(1), [0.025, 0.975], method="hazen")
    return float(low), float(high)


METHODS = {"seeds and prompts": of_the_report, "crossed": crossed, "Student's t over seeds": students_t}


def covered(seeds: int, spread: tuple[float, float, float], method: str, studies: int) -> float:
    """The share of intervals with the true mean, 0."""
    chance, hits = np.random.default_rng(seeds), 0
    for _ in range(studies):
        values = spread[0] * chance.standard_normal((seeds, 1)) + spread[1] * chance.standard_normal(GROUPS)
        values = values + spread[2] * chance.standard_normal((seeds, GROUPS))
        low, high = METHODS[method](values)
        hits += low <= 0 <= high
    return hits / studies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=1280)
    parser.add_argument("--examples", type=int, default=400)
    parser.add_argument("--dims", type=int, default=16)
    parser.add_argument("--studies", type=int, default=1500)
    parser.add_argument("--skip", choices=["baselines", "intervals"])
    args = parser.parse_args()
    found: dict[str, object] = {}
    if args.skip != "baselines":
        chance = np.random.default_rng(0)
        xs = chance.standard_normal((args.prompts, args.examples, args.dims))
        ys = np.einsum("bnd,bd->bn", xs, chance.standard_normal((args.prompts, args.dims)))
        for name in BASELINES:
            found[name] = round(seconds(name, xs, ys), 2)
            print(f"{name:22} {found[name]:6.2f} s", f"at {FITTED} lengths" if name == "lasso" else "", flush=True)
        found["a solver for each prefix"] = round(solver(xs, ys), 1)
        print(f"{'a solver for each':22} {found['a solver for each prefix']:6.1f} s")
    if args.skip != "intervals":
        for seeds in (2, 3, 5):
            for words, spread in CASES.items():
                shares = {method: round(covered(seeds, spread, method, args.studies), 3) for method in METHODS}
                found[f"{seeds} seeds, {words}"] = shares
                print(f"{seeds} seeds, {words:26}", shares, flush=True)
    save("baselines", {"settings": vars(args), "found": found})


if __name__ == "__main__":
    main()
