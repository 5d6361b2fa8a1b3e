"""T5: bucket(d) = d for d < m = B // 2, else min(B - 1, m + floor(ln(d/m) / ln(D/m) (B - m))); bias E[head, bucket].

Both ways: B/2 buckets for each by the same rule of |d|, the second half for keys after the query.

Plain Python, whole numbers. `computed`: the first distance that falls in each bucket, and some both ways. `printed`:
the matrix of the NoPE paper for B 5, D 6. E is set to the bucket's number (head 0) and to 100 minus it (head 1): a bias
shows its bucket.
"""

from shared import write


def bucket(distance, buckets, reach):
    """By whole numbers, so that a distance that is a border is on the right side: with n = B - m,
    floor(ln(d/m) / ln(D/m) n) >= k  means  (d/m)^n >= (D/m)^k  means  d^n m^k >= D^k m^n."""
    m = buckets // 2
    if distance < m:
        return distance
    n, k = buckets - m, 0
    while m + k < buckets - 1 and distance**n * m ** (k + 1) >= reach ** (k + 1) * m**n:
        k += 1
    return m + k


def both(distance, buckets, reach):
    half = buckets // 2
    return bucket(abs(distance), half, reach) + (half if distance < 0 else 0)


def case(name, buckets, reach, distances, numbers, made, **settings):
    far = max(0, *distances)
    return {
        "name": f"B {buckets}, D {reach}: {name}",
        "what": "bias",
        "from": made,
        "atol": 0.0,
        "rtol": 0.0,
        "context": {"num_heads": 2},
        "settings": {"num_buckets": buckets, "max_distance": reach, **settings},
        "parameters": {"weight": [list(range(buckets)), [100 - b for b in range(buckets)]]},
        "query": [far],
        "key": [far - d for d in distances],
        "expected": [[numbers], [[100 - n for n in numbers]]],
    }


FIRST = {
    (32, 128): {
        **{d: d for d in range(17)},
        17: 19,
        18: 21,
        19: 24,
        20: 27,
        21: 31,
        22: 35,
        23: 40,
        24: 46,
        25: 52,
        26: 59,
        27: 67,
        28: 77,
        29: 87,
        30: 99,
        31: 113,
    },
    (64, 128): {
        **{d: d for d in range(33)},
        33: 34,
        34: 35,
        35: 37,
        36: 39,
        37: 40,
        38: 42,
        39: 44,
        40: 46,
        41: 48,
        42: 50,
        43: 52,
        44: 54,
        45: 57,
        46: 59,
        47: 62,
        48: 64,
        49: 67,
        50: 70,
        51: 73,
        52: 77,
        53: 80,
        54: 83,
        55: 87,
        56: 91,
        57: 95,
        58: 99,
        59: 104,
        60: 108,
        61: 113,
        62: 118,
        63: 123,
    },
    (64, 2048): {32: 32, 33: 37, 34: 42, 35: 48, 36: 54, 37: 62, 38: 70, 39: 80, 40: 91, 48: 256, 56: 725, 63: 1799},
}
cases = [
    case("the printed matrix", 5, 6, list(range(10)), [0, 1, 2, 3, 3, 4, 4, 4, 4, 4], "printed")
    | {"source": "Kazemnejad et al. 2023, appendix: the matrix of buckets for B 5, D 6"},
    case("far", 32, 128, [113, 128, 1000], [31, 31, 31], "computed"),
]
for (buckets, reach), first in FIRST.items():
    cases.append(case("first distances", buckets, reach, list(first.values()), list(first), "computed"))
    before = {number - 1: distance - 1 for number, distance in first.items() if number and number - 1 in first}
    cases.append(case("last distances", buckets, reach, list(before.values()), list(before), "computed"))
for buckets, reach, upto in [
    (32, 128, 400),
    (64, 128, 200),
    (5, 6, 12),
    (64, 2048, 2200),
    (3, 2, 8),
    (2, 2, 5),
    (32, 129, 140),
    (9, 128, 140),
    (8, 64, 70),
]:
    distances = list(range(upto)) if upto <= 400 else list(range(0, upto, 7))
    cases.append(case("formula", buckets, reach, distances, [bucket(d, buckets, reach) for d in distances], "formula"))
# Printed as key position - query position: {-3: 3, 0: 0, 3: 19, -20: 10, 20: 26, -200: 15, 200: 31}.
WAYS = {3: 3, 0: 0, -3: 19, 20: 10, -20: 26, 200: 15, -200: 31}
cases.append(case("both ways", 32, 128, list(WAYS), list(WAYS.values()), "computed", bidirectional=True))
for buckets, reach, upto in [(32, 128, 200), (64, 128, 140), (64, 2048, 300), (4, 2, 8), (6, 3, 8), (18, 128, 140)]:
    distances = list(range(-upto, upto + 1))
    numbers = [both(d, buckets, reach) for d in distances]
    cases.append(case("both ways", buckets, reach, distances, numbers, "formula", bidirectional=True))
rows = list(range(9))
SQUARES = [
    ({"num_buckets": 4, "max_distance": 5}, lambda d: bucket(d, 4, 5) if d >= 0 else None, [0.5, -1.5, 2.0, 7.0]),
    (
        {"num_buckets": 6, "max_distance": 5, "bidirectional": True},
        lambda d: both(d, 6, 5),
        [0.5, -1.5, 2.0, 7.0, 3.0, -4.0],
    ),
]
for settings, at, weight in SQUARES:
    cases.append(
        {
            "name": "a square" + (", both ways" if len(settings) == 3 else ""),
            "what": "bias",
            "from": "formula",
            "atol": 0.0,
            "rtol": 0.0,
            "context": {"num_heads": 1},
            "settings": settings,
            "parameters": {"weight": [weight]},
            "query": rows,
            "key": rows,
            "everywhere": len(settings) == 3,
            "expected": [[[None if at(i - j) is None else weight[at(i - j)] for j in rows] for i in rows]],
        }
    )
write("T5", __doc__, cases)
