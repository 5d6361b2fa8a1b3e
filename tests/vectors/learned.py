"""Learned: x + P[position]; no row, no answer. Plain Python: the expected rows are the table's own."""

from shared import write

TABLE = [[0.5, -1.0, 2.0], [3.0, 0.25, -0.75], [1e-3, 7.0, -2.5], [-4.0, 0.0, 1.0]]
GIVEN = {
    "context": {"d_model": 3},
    "settings": {"max_length": 4},
    "parameters": {"table": TABLE},
    "from": "formula",
    "atol": 0.0,
    "rtol": 0.0,
}
cases = [
    {"name": "in order", "what": "embed", **GIVEN, "positions": [0, 1, 2, 3], "expected": TABLE},
    {
        "name": "as claimed",
        "what": "embed",
        **GIVEN,
        "positions": [3, 0, 0, 2],
        "expected": [TABLE[p] for p in (3, 0, 0, 2)],
    },
    {
        "name": "one past the end",
        "what": "error",
        **GIVEN,
        "positions": [0, 4],
        "expected": ["position 4", "4 rows", "max_length"],
    },
    {"name": "far past the end", "what": "error", **GIVEN, "positions": [1000000], "expected": ["position 1000000"]},
]
write("Learned", __doc__, cases)
