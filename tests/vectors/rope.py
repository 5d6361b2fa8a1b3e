"""RoPE: pair p of the first r dims turns by position base^(-2p/r); pairs are dims (2p, 2p+1), or ("half") (p, p + r/2).

Plain Python, float64; `computed` values (8 digits): d = 4, position 3; products of q and k.
"""

from shared import rotary_cases, rotate, write

COMPUTED = {"from": "computed", "rtol": 0.0}
X = [1.0, 2.0, 3.0, 4.0]
cases = [
    {
        "name": "interleaved",
        "what": "rotated",
        **COMPUTED,
        "atol": 5e-9,
        "context": {"head_dim": 4},
        "positions": [3],
        "x": [X],
        "expected": [[-1.27223251, -1.83886499, 2.8786681, 4.08818664]],
    },
    {
        "name": "half",
        "what": "rotated",
        **COMPUTED,
        "atol": 5e-9,
        "context": {"head_dim": 4},
        "settings": {"layout": "half"},
        "positions": [3],
        "x": [X],
        "expected": [[-1.41335252, 1.87911807, -2.82885748, 4.05819114]],
    },
]
# <R_m q, R_n k>, two spans for one product (m, n); position n is the key's, and 3 before 5 looks ahead.
for (m, n), product in {(0, 0): 1.0, (5, 3): 1.9290961, (12, 10): 1.9290961, (3, 5): 0.07050391}.items():
    rows = [rotate(x, p, [1.0, 0.01]) for x, p in (([1.0, 0.0, 1.0, 0.0], m), ([0.0, 1.0, 1.0, 1.0], n))]
    assert abs(sum(a * b for a, b in zip(*rows)) - product) < 5e-8
    cases.append(
        {
            "name": f"product ({m}, {n})",
            "what": "logits",
            **COMPUTED,
            "atol": 5e-8,
            "context": {"head_dim": 4},
            "scale": 1.0,
            "everywhere": True,
            "q": [[[1.0, 0.0, 1.0, 0.0]]],
            "k": [[[0.0, 1.0, 1.0, 1.0]]],
            "query": [m],
            "key": [n],
            "expected": [[[product]]],
        }
    )
for width, settings in [
    (8, {}),
    (8, {"layout": "half"}),
    (8, {"base": 500.0}),
    (16, {"rotary_fraction": 0.25}),
    (16, {"rotary_fraction": 0.25, "layout": "half"}),
    (2, {}),
    (10, {"rotary_fraction": 0.6, "layout": "half", "base": 100.0}),
]:
    r = int(settings.get("rotary_fraction", 1.0) * width)
    theta = [settings.get("base", 1e4) ** (-2 * p / r) for p in range(r // 2)]
    name = f"d {width} " + " ".join(f"{k}={v}" for k, v in settings.items())
    said = {"name": name, "context": {"head_dim": width}, "settings": settings, "from": "formula", "rtol": 0.0}
    cases += rotary_cases(said, width, theta, settings.get("layout", "interleaved"), at=[0, 1, 4, 9], atol=1e-12)
write("RoPE", __doc__, cases)
