"""PaTHFoX: the product of PaTH (path.py) plus ln f_j+1 + ... + ln f_i, f_t = sigmoid(<w, x_t> + b), over the query's
document.

With a scaled gate the sum is divided by sqrt(d), as in fla, ops/path_attn/naive.py. Yang et al. 2025, "PaTH Attention".
Plain Python, float64; every matrix H_t is applied to the key, one after the other, and every sum computed anew. No
digits are in print.
"""

from shared import numbers, path_case, path_parameters, table, write


def random_case(name, groups, dim, d_model, count, queries=None, *, seed, **others):
    gates = {"gate.w": table(groups, d_model, seed + 6), "gate.b": numbers(groups, seed + 7)}
    own = path_parameters(groups, dim, d_model, seed) | gates
    return path_case(name, own, table(count, d_model, seed + 5, 2.0), queries, seed=seed, **others)


cases = [
    random_case("1 head", 1, 3, 4, 7, seed=10),
    random_case("4 heads", 4, 2, 5, 8, seed=20),
    random_case("scaled gates", 2, 4, 5, 8, seed=30, scaled=True),
    random_case("one query", 2, 3, 2, 11, 1, seed=50),
    random_case("documents in each other", 2, 3, 2, 8, seed=80, documents=[1, 2, 1, 1, 2, 2, 1, 2]),
    random_case("the last 3, padding, scaled gates", 2, 3, 2, 9, 3, seed=90, documents=[-1] * 4 + [0] * 5, scaled=True),
]
write("PaTHFoX", __doc__, cases)
