"""PaTH: <q_i, H_i H_i-1 ... H_j+1 k_j> with H_t = I - beta_t w_t w_t^T, over the tokens of the query's document after
the key.

w_t = y / sqrt(|y|^2 + 1e-6), y = silu(sum over n of c_n z_(t - n)), z = A B x; beta_t = 2 sigmoid(<u, x_t> + b). Yang
et al. 2025, "PaTH Attention"; fla, layers/path_attn.py. Plain Python, float64; every matrix H_t is applied to the key,
one after the other, and every convolution computed anew. No digits are in print.
"""

import math

from shared import path_case, path_parameters, table, write


def random_case(name, groups, dim, d_model, count, queries=None, *, seed, more=None, **others):
    own = path_parameters(groups, dim, d_model, seed, **(more or {}))
    return path_case(name, own, table(count, d_model, seed + 5, 2.0), queries, seed=seed, **others)


# w is e1, e2, e1 up to 1e-12 of their length, because silu of a large number is that number; beta is 1, 2, 0.5, from
# log-odds of half of it, where 2 needs an infinite one and 40 comes close enough. The logits can be computed by hand:
# 1; 1, 0; -1.5, 1, 1.
BY_HAND = {
    "A": [[[1e6, 0.0], [0.0, 1e6]]],
    "B": [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]],
    "c": [[[1.0], [1.0]]],
    "u": [[0.0, 0.0, 40.0, -math.log(3)]],
    "b": [0.0],
}
hand = path_case(
    "by hand",
    BY_HAND,
    [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0]],
    scale=1.0,
    q=[[[1.0, 0.0], [1.0, 0.0], [1.0, 1.0]]],
    k=[[[1.0, 2.0], [0.0, 1.0], [1.0, 0.0]]],
)
digits = [[[1.0, None, None], [1.0, 0.0, None], [-1.5, 1.0, 1.0]]]
worst = max(abs(a - b) for r, s in zip(hand["expected"][0], digits[0]) for a, b in zip(r, s) if b is not None)
assert worst < 1e-9, worst
cases = [
    hand,
    hand | {"name": "by hand, digits", "from": "computed", "atol": 1e-9, "expected": digits},
    random_case("1 head", 1, 3, 4, 7, seed=10),
    random_case("4 heads", 4, 2, 5, 8, seed=20),
    random_case("strong weights", 2, 4, 3, 9, seed=30, more={"size": 4.0}),
    random_case("nearly no direction", 1, 2, 3, 5, seed=33, more={"size": 0.05}),
    random_case("other sizes", 2, 5, 3, 7, seed=40, more={"rank": 5, "width": 4}),
    random_case("wider than the text", 1, 3, 3, 3, seed=45, more={"width": 6}),
    random_case("two heads for each H", 2, 3, 4, 6, seed=48, heads=4),
    random_case("one query", 2, 3, 2, 11, 1, seed=50),
    random_case("the last 4, positions change nothing", 2, 3, 2, 7, 4, seed=60, key=[0, 5, 6, 70, 100, 101, 999]),
    random_case("documents", 2, 3, 2, 9, seed=70, documents=[1, 1, 1, 2, 2, 2, 2, 3, 3]),
    random_case("documents in each other", 2, 3, 2, 8, seed=80, documents=[1, 2, 1, 1, 2, 2, 1, 2]),
    random_case("the last 3, padding", 2, 3, 2, 9, 3, seed=90, documents=[-1, -1, -1, -1, 0, 0, 0, 0, 0]),
]
write("PaTH", __doc__, cases)
