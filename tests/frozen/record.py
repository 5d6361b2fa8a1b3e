"""Record the frozen behaviour anew. Do this on purpose only, and say in CHANGELOG.md why the numbers changed.

    python -m tests.frozen.record attention run_keys

in the root of the repository, with the environment of the tests. Without a name it lists the records. A new encoding,
task, position scheme, mixer or study needs `attention run_keys` too; the entries of the others then stay as they are.
"""

import importlib
import sys
from collections.abc import Sequence

from tests.frozen.comparison import save

RECORDS = ("attention", "run_keys", "scores", "analysis", "mistakes")  # each NAME.json belongs to test_NAME.py


def main(names: Sequence[str]) -> int:
    unknown = [name for name in names if name not in RECORDS]
    if unknown or not names:
        print(f"usage: python -m tests.frozen.record NAME...; the records are: {', '.join(RECORDS)}", file=sys.stderr)
        return 2
    for name in names:
        save(name, importlib.import_module(f"tests.frozen.test_{name}").record())
        print(f"tests/frozen/{name}.json")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
