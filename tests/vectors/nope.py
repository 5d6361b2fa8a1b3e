"""NoPE: logits are scale <q, k>, nothing else. Plain Python, float64; `computed` values have 6 digits.

The construction of the NoPE paper's first theorem: equal keys and a value that marks the first token give token t
(counted from 1) the number 1/t.
"""

import math

from shared import write

Q = [[[1.0, -2.0], [0.5, 3.0], [-1.5, 0.25]]]
K = [[[2.0, 1.0], [-1.0, 0.5], [0.75, -3.0]]]
SCALE = 1 / math.sqrt(2)


def logits():
    return [
        [
            [SCALE * sum(a * b for a, b in zip(q, k)) if j <= i else None for j, k in enumerate(K[0])]
            for i, q in enumerate(Q[0])
        ]
    ]


def theorem(n):
    return {
        "q": [[[0.3 * t, 1.0] for t in range(n)]],
        "k": [[[1.0, 1.0]] * n],
        "v": [[[1.0 if t == 0 else 0.0, 0.0] for t in range(n)]],
        "scale": SCALE,
        "query": list(range(n)),
        "key": list(range(n)),
    }


EXACT = {"from": "formula", "atol": 1e-13, "rtol": 1e-13}
cases = [
    {
        "name": "no bias",
        "what": "logits",
        **EXACT,
        "q": Q,
        "k": K,
        "scale": SCALE,
        "query": [0, 1, 2],
        "key": [0, 1, 2],
        "expected": logits(),
    },
    {
        "name": "positions do not matter",
        "what": "logits",
        **EXACT,
        "q": Q,
        "k": K,
        "scale": SCALE,
        "query": [5, 90, 4000],
        "key": [5, 90, 4000],
        "expected": logits(),
    },
    {
        "name": "theorem 1",
        "what": "output",
        **EXACT,
        **theorem(6),
        "expected": [[[1 / (t + 1), 0.0] for t in range(6)]],
    },
    {
        "name": "theorem 1",
        "what": "output",
        "from": "computed",
        "atol": 5e-7,
        "rtol": 0.0,
        **theorem(6),
        "expected": [[[x, 0.0] for x in (1, 0.5, 0.333333, 0.25, 0.2, 0.166667)]],
    },
]
write("NoPE", __doc__, cases)
