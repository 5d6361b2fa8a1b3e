"""Measure how far effective lengths are from the true ones, in simulated studies.

    python benchmarks/effective_length.py [--studies 2000]

Each population has shares of correct answers at four lengths, which never get better with the length. A study draws 3,
5 or 10 seeds and 512 examples for each. The estimate of `lengthwise statistics`, which fits a non-increasing curve to
the means, is compared with the first failure: where the means themselves fall below the threshold for the first time.

Stored for each: the share of studies whose estimate is too short, the share with an estimate in the shorter half of the
tested lengths, and the mean error and its root mean square in octaves (lengths below the shortest count as 32, and
above the longest as 1,024).
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is there

import numpy as np
from coverage import FALLING, LENGTHS, PLATEAU, SEEDS, SharesByLength, true_length
from record import save

from lengthwise.analysis.statistics import effective_length
from lengthwise.analysis.statistics.effective_length import first_failure
from lengthwise.metrics import EXACT_MATCH

THRESHOLD = 0.8
ENDS = (LENGTHS[0] / 2, LENGTHS[-1] * 2)  # for lengths that are not between tested ones
POPULATIONS = {
    "stays above: 0.83, 0.82, 0.81, 0.81": PLATEAU,
    "falls slowly: 0.83, 0.82, 0.80, 0.78": SharesByLength((0.83, 0.82, 0.8, 0.78), 60, independent=True),
    "stays below: 0.83, 0.79, 0.79, 0.79": SharesByLength((0.83, 0.79, 0.79, 0.79), 60, independent=True),
    "falls: 0.97, 0.9, 0.6, 0.2": FALLING,
    "drops: 0.99, 0.99, 0.98, 0.01": SharesByLength((0.99, 0.99, 0.98, 0.01), 60, independent=True),
}


def figures_of(estimates: list[float], true: float) -> dict[str, float]:
    values, expected = np.clip(estimates, *ENDS), float(np.clip(true, *ENDS))
    errors = np.log2(values / expected)
    return {
        "too short": round(float(np.mean(values < expected * 0.999)), 3),
        "below 128": round(float(np.mean(values < 128)), 3),
        "mean error": round(float(errors.mean()), 3),
        "root mean square error": round(float(np.sqrt(np.mean(errors**2))), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=2000)
    args = parser.parse_args()
    rows = []
    for case, population in POPULATIONS.items():
        true = true_length(population.means, THRESHOLD, EXACT_MATCH)
        for seeds in SEEDS:
            chance = np.random.default_rng([2, seeds])
            fits, firsts = [], []
            for _ in range(args.studies):
                curves = population.draw(chance, seeds)
                found = effective_length(LENGTHS, curves, THRESHOLD, EXACT_MATCH)
                assert found is not None
                fits.append(found.value)
                means = np.mean([[score.mean for score in curve.scores] for curve in curves], 0)
                firsts.append(first_failure(LENGTHS, (means - THRESHOLD).tolist()))
            row = {"case": case, "true": None if np.isinf(true) else round(true), "seeds": seeds}
            rows.append(row | {"first failure": figures_of(firsts, true), "fit": figures_of(fits, true)})
            print(rows[-1], flush=True)
    save("effective_length", {"settings": vars(args), "rows": rows})


if __name__ == "__main__":
    main()
