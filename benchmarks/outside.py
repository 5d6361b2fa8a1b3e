"""Compare transformers, x-transformers and fla-core with the published formulas, and store the figures of docs/outside.md.

    python benchmarks/outside.py

Needs `pip install '.[outside]'`.
"""

from record import save

from lengthwise.conformance.outside import check, select_implementations
from lengthwise.conformance.outside.scoreboard import as_data


def main() -> None:
    save(
        "outside",
        as_data(check(select_implementations(()), lambda row: print(f"{row.implementation}, {row.question}"))),
    )


if __name__ == "__main__":
    main()
