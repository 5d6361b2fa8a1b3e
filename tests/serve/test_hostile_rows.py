"""A database that somebody else made: cells are changed at random, and every page is shown or says in a line why not."""

import random
import sqlite3
import warnings
from pathlib import Path

import pytest

from lengthwise.serve.snapshots import Watcher
from lengthwise.store import StoreError, open_results
from tests.cli.test_hostile_rows import CELLS, COLUMNS

from .conftest import key, new_client

ADDRESSES = [
    "/",
    f"/study?name=first&runs={key(1, 0)},{key(1, 3)}",
    f"/study?name=second&runs={key(1, 1)}",
    f"/compare?runs={key(1, 0)},{key(1, 1)}",
    f"/compare?runs={key(1, 0)},{key(1, 3)},{key(2, 0)}",
]


@pytest.mark.medium
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 10))])
def test_pages_on_damaged_rows(folder: Path, seed: int) -> None:
    draw = random.Random(seed)
    whole = (folder / "results.db").read_bytes()
    statuses = []
    for _ in range(15):
        for suffix in ("-wal", "-shm"):
            Path(f"{folder / 'results.db'}{suffix}").unlink(missing_ok=True)
        (folder / "results.db").write_bytes(whole)
        with sqlite3.connect(folder / "results.db") as connection:
            for _ in range(draw.randint(1, 4)):
                table = draw.choice(list(COLUMNS))
                column = draw.choice(COLUMNS[table])
                statement = f"UPDATE OR IGNORE {table} SET {column} = ? WHERE rowid % ? = 0"
                try:
                    connection.execute(statement, (draw.choice(CELLS), draw.randint(1, 3)))
                except sqlite3.IntegrityError:  # NOT NULL
                    continue
        connection.close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                watcher = Watcher(lambda: open_results(folder, create=False))
            except StoreError:
                continue
            try:
                client = new_client(watcher)
                statuses += [client.get(address).status_code for address in ADDRESSES]
            finally:
                watcher.close()
    assert set(statuses) <= {200, 404, 503}
    assert statuses.count(200) > len(statuses) / 2
