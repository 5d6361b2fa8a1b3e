"""Developments from the training to the store, to summaries and to the page; damaged rows do not pass the checks."""

import math
from types import SimpleNamespace
from typing import Any

from lengthwise.analysis.gather import probe_summaries
from lengthwise.analysis.intervals import over_seeds
from lengthwise.probes import PROBES
from lengthwise.probes.development import DevelopmentQuestion, layers_text
from lengthwise.probes.development.section import MAX_CHARTS
from lengthwise.report.charts.scales import frame
from lengthwise.report.palette import looks

ASKED = DevelopmentQuestion().to_data()
LABELS = {"a0": "FIRE", "a1": "FIRE", "b0": "T5"}


def quantity(name: str, layers: list[int], shape: list[int], values: list[list[Any]]) -> dict[str, Any]:
    entries = list(range(shape[1])) if len(shape) == 2 else []
    return {"name": name, "layers": layers, "shape": shape, "entries": entries, "values": values}


def fire(last: float) -> dict[str, Any]:
    slopes = quantity("slope", [1, 2], [2], [[1.0, 3.0], [2.0, None], [last, 5.0]])
    return {"steps": [0, 2, 3], "quantities": [quantity("c", [1], [], [[0.1], [0.2], [last]]), slopes]}


T5_RESULT = {
    "steps": [0, 3],
    "quantities": [quantity("bias of bucket", [1, 2], [2, 3], [[1.0, 2, 3, 4, 5, 6], [2.0, 3, 4, 5, 6, 7]])],
}


def row(key: str, result: dict[str, Any]) -> Any:
    return SimpleNamespace(key=key, asked=ASKED, result=result, facts={"device": "cpu"})


ROWS = [row("a0", fire(0.5)), row("a1", fire(0.7)), row("b0", T5_RESULT)]


def summary_of(rows: list[Any]) -> Any:
    (found,) = probe_summaries(rows, LABELS, {})["development"]
    return found


def test_means_and_changes_over_seeds() -> None:
    of_fire, of_t5 = summary_of(ROWS).series
    c, slopes = of_fire.quantities
    assert c.last == over_seeds([0.5, 0.7])
    assert c.change == over_seeds([0.5 - 0.1, 0.7 - 0.1])
    assert c.values == (((0.1, 0.2, 0.5),), ((0.1, 0.2, 0.7),))
    assert slopes.first.mean == 2
    assert math.isnan(slopes.values[0][1][1])
    (buckets,) = of_t5.quantities
    assert (buckets.first.mean, buckets.first.basis, buckets.change.mean) == (3.5, "none", 1.0)


def test_the_section() -> None:
    task: Any = SimpleNamespace(title="Copy")
    section = PROBES.find("development").section(summary_of(ROWS), task, looks(["FIRE", "T5"]))
    names = [item["name"] for item in section["multiples"]]
    assert names == [
        "FIRE: c, layer 1",
        "FIRE: slope, layers 1 to 2",
        "T5: bias of bucket, layers 1 to 2, head 1",
        "T5: bias of bucket, layers 1 to 2, head 2",
    ]
    lines = section["multiples"][3]["chart"].data["spec"]["data"]["values"]
    assert [line["y"] for line in lines] == [[4, 5], [5, 6], [6, 7]], "the buckets of the second head"
    pale, full = section["multiples"][0]["chart"].data["spec"]["data"]["values"]
    assert (pale["y"], full["y"]) == ([0.1, 0.2, 0.7], [0.1, 0.2, 0.5])
    assert pale["opacity"] < full["opacity"] == 1
    described = section["multiples"][1]["chart"].described
    assert "Horizontal axis: steps 0 to 3" in described
    assert "one line for each of 2 heads and each of 2 seeds" in described
    assert [cell["mean"] for cell in section["rows"][0]["cells"]] == ["0.100", "0.600", "0.500"]
    assert (section["tables"], section["cut"]) == (True, [])


def test_few_charts_of_an_encoding_with_many_layers() -> None:
    many = {"steps": [0, 1], "quantities": [quantity("c", [n], [], [[1.0], [2.0]]) for n in range(1, 31)]}
    task: Any = SimpleNamespace(title="Copy")
    section = PROBES.find("development").section(summary_of([row("a0", many)]), task, looks(["FIRE"]))
    assert len(section["multiples"]) == MAX_CHARTS
    assert section["cut"] == [("FIRE", 30)]
    assert len(section["rows"]) == 30


def test_the_frame() -> None:
    assert frame([512.0, 530.0]) == (510.0, 530.0)
    assert frame([0.1, 0.13]) == (0.1, 0.13)
    assert frame([0.2, 1.0]) == (0.0, 1.0)
    assert frame([-0.3, 0.1]) == (-0.3, 0.1)
    assert frame([math.nan]) == (0.0, 1.0)
    for values in ([5e-324], [0.0], [0.0, 5e-324], [1e100, -1e100], [7.0, 7.0], [-3.0]):
        low, high = frame(values)
        assert low < high
        assert low <= min(values) <= max(values) <= high


def test_layers_in_words() -> None:
    assert [layers_text(layers) for layers in ([3], [1, 2, 3], [1, 3])] == [
        "layer 3",
        "layers 1 to 3",
        "2 layers from 1 to 3",
    ]
