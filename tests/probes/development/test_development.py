"""Developments from the training to the store, to summaries and to the page; damaged rows do not pass the checks."""

import copy
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lengthwise.analysis.gather import probe_summaries
from lengthwise.analysis.intervals import over_seeds
from lengthwise.config import ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import FIRE, T5
from lengthwise.probes import PROBES
from lengthwise.probes.development import Development, DevelopmentQuestion, layers_text
from lengthwise.probes.development.section import MAX_CHARTS
from lengthwise.report.charts.scales import frame
from lengthwise.report.palette import looks
from lengthwise.store.checks import Unreadable
from lengthwise.tasks import Copy
from lengthwise.training import train

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


def test_what_a_training_records_passes_the_checks(tmp_path: Path) -> None:
    for encoding in (FIRE, T5):
        config = ModelConfig(d_model=16, num_layers=2, num_heads=2)
        training = TrainingConfig(train_length=4, steps=3, batch_size=2)
        run = Run(encoding=choose(encoding), task=choose(Copy), model=config, training=training, seed=0)
        question, result = Development().checks()
        question(ASKED)
        result(train(run, tmp_path / run.key).tracked)


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


def test_runs_with_other_quantities_are_skipped() -> None:
    other = row("a1", {"steps": [0, 2, 3], "quantities": fire(0.7)["quantities"][:1]})
    with pytest.warns(UserWarning, match="another shape"):
        (of_fire, *_) = summary_of([ROWS[0], other, ROWS[2]]).series
    assert of_fire.seeds == 1


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


@pytest.mark.parametrize(
    "change",
    [
        {"name": "a\nb"},
        {"layers": []},
        {"layers": [0]},
        {"shape": [2]},
        {"shape": [1, 1, 1]},
        {"entries": [0]},
        {"values": [[0.1], [0.2]]},
        {"values": [[0.1], [0.2], ["x"]]},
        {"values": []},
        {"shape": [1, 1]},
        {"shape": [1, 1], "entries": [0, 1]},
    ],
)
def test_damaged_rows(change: dict[str, Any]) -> None:
    _, check = Development().checks()
    result = copy.deepcopy(fire(0.5))
    check(result)
    check(T5_RESULT)
    result["quantities"][0] |= change
    with pytest.raises(Unreadable):
        check(result)
    for damaged in ({"steps": [0]}, {"quantities": []}, {"steps": [0, 1, 2, 3]}):
        with pytest.raises(Unreadable):
            check(fire(0.5) | damaged)
