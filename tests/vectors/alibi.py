"""ALiBi: b = -m_h (i - j), m_h = 2^(-8h/H) for H a power of two, else the slopes of the power below, then every second
of twice that power. Symmetric: -m_h |i - j|. Learned: m_h = exp(log_slopes_h), which starts at those slopes. Plain
Python, float64; besides, slopes that are typed in: of 8 heads as they are `printed`, of others `computed` (8 digits).
"""

import math

from shared import write

SLOPES = {
    1: [0.00390625],
    2: [0.0625, 0.00390625],
    3: [0.0625, 0.00390625, 0.25],
    4: [0.25, 0.0625, 0.015625, 0.00390625],
    6: [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125],
    8: [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625],
    12: [
        0.5,
        0.25,
        0.125,
        0.0625,
        0.03125,
        0.015625,
        0.0078125,
        0.00390625,
        0.70710678,
        0.35355339,
        0.1767767,
        0.088388348,
    ],
    16: [2.0 ** (-h / 2) for h in range(1, 17)],
}


def power_slopes(heads):
    ratio = 2.0 ** (-8.0 / heads)
    return [ratio**h for h in range(1, heads + 1)]


def slopes(heads):
    below = 1
    while 2 * below <= heads:
        below *= 2
    return power_slopes(below) + power_slopes(2 * below)[0::2][: heads - below]


IN_PRINT = {
    "from": "printed",
    "source": "Press et al. 2022, section 3: for 8 heads the slopes 1/2^1, 1/2^2, ..., 1/2^8",
}
KEYS = [1000, 999, 998, 990, 900, 500, 1, 0]
SPAN = [[0, 1, 2, 5, 6], [0, 1, 2, 5, 6]]
cases = []
for heads, typed in SLOPES.items():
    said = {"what": "bias", "context": {"num_heads": heads}}
    cases.append(
        {
            "name": f"{heads} heads",
            **said,
            **(IN_PRINT if heads == 8 else {"from": "computed"}),
            "atol": 5e-9,
            "rtol": 0.0,
            "query": [1],
            "key": [0],
            "expected": [[[-m]] for m in typed],
        }
    )
    cases.append(
        {
            "name": f"{heads} heads",
            **said,
            "from": "formula",
            "atol": 0.0,
            "rtol": 1e-14,
            "query": [1000],
            "key": KEYS,
            "expected": [[[-m * (1000 - j) for j in KEYS]] for m in slopes(heads)],
        }
    )
for heads in (5, 7, 32):
    cases.append(
        {
            "name": f"{heads} heads, a square",
            "what": "bias",
            "context": {"num_heads": heads},
            "from": "formula",
            "atol": 0.0,
            "rtol": 1e-14,
            "query": SPAN[0],
            "key": SPAN[1],
            "expected": [[[-m * (i - j) if j <= i else None for j in SPAN[1]] for i in SPAN[0]] for m in slopes(heads)],
        }
    )
AROUND = [0, 1, 490, 499, 500, 501, 502, 510, 999, 1000]
GIVEN = [-0.5, 0.0, -3.25, 1.5, -5.545177444479562, 0.7]
for heads in (2, 6):
    said = {"what": "bias", "from": "formula", "atol": 0.0, "context": {"num_heads": heads}}
    behind = [1000 - j for j in KEYS]
    cases += [
        {
            "name": f"{heads} heads, bidirectional",
            **said,
            "rtol": 1e-14,
            "settings": {"bidirectional": True},
            "query": [500],
            "key": AROUND,
            "expected": [[[-m * abs(500 - j) for j in AROUND]] for m in slopes(heads)],
        },
        {
            "name": f"{heads} heads, bidirectional, a square",
            **said,
            "rtol": 1e-14,
            "settings": {"bidirectional": True},
            "query": SPAN[0],
            "key": SPAN[1],
            "everywhere": True,
            "expected": [[[-m * abs(i - j) for j in SPAN[1]] for i in SPAN[0]] for m in slopes(heads)],
        },
        {
            "name": f"{heads} heads, learned",
            **said,
            "rtol": 1e-14,
            "settings": {"learned": True},
            "parameters": {"log_slopes": GIVEN[:heads]},
            "query": [1000],
            "key": KEYS,
            "expected": [[[-math.exp(m) * d for d in behind]] for m in GIVEN[:heads]],
        },
        # The parameter is float32: 6e-8 of a logarithm of at most 5.6.
        {
            "name": f"{heads} heads, learned, as it begins",
            **said,
            "rtol": 4e-7,
            "settings": {"learned": True},
            "query": [1000],
            "key": KEYS,
            "expected": [[[-m * d for d in behind]] for m in slopes(heads)],
        },
    ]
cases.append(
    {
        "name": "2 heads, bidirectional and learned",
        "what": "bias",
        "from": "formula",
        "atol": 0.0,
        "rtol": 1e-14,
        "context": {"num_heads": 2},
        "settings": {"bidirectional": True, "learned": True},
        "parameters": {"log_slopes": GIVEN[:2]},
        "query": [500],
        "key": AROUND,
        "expected": [[[-math.exp(m) * abs(500 - j) for j in AROUND]] for m in GIVEN[:2]],
    }
)
write("ALiBi", __doc__, cases)
