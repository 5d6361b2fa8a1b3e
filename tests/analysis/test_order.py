"""A report on everything lists tasks and encodings as the studies do, not by the hash of the runs."""

from lengthwise.analysis import findings
from lengthwise.store import open_store


def test_everything_comes_in_the_studies_order(tmp_path):
    def run(key, label, task):
        return {
            "key": key, "label": label, "encoding": label, "task": task, "metric": "exact match", "better": "higher",
            "unit": "symbols", "seed": 0, "train_length": 8, "config": {"task": {"is": task}},
            "questions": [{"length": 8, "examples": 4, "seed": 0}],
        }  # fmt: skip

    listed = [run("f" * 16, "B", "Zebra"), run("0" * 16, "A", "Zebra"), run("a" * 16, "B", "Ape")]
    with open_store(tmp_path / "results.db") as store:
        store.add_study("one", evaluation={}, runs=listed)
        store.add_study("two", evaluation={}, runs=[run("1" * 16, "C", "Zebra"), listed[0]])
        found = findings(store)
    assert [r.key[0] for r in found.runs] == ["f", "0", "a", "1"]
    assert [t.name for t in found.tasks] == ["Zebra", "Ape"]
    assert [s.label for s in found.tasks[0].series] == ["B", "A", "C"]
