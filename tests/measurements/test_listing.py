"""The list of measurements: each is a file that declares all that the command line, the store and the page need."""

import re
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

import lengthwise.measurements
from lengthwise.config import ConfigError
from lengthwise.measurements import MEASUREMENTS, PROBES, Measurement, Probe, find
from lengthwise.measurements.scores import FurtherScores, Scores

FOLDER = Path(lengthwise.measurements.__file__).parent
DOCS = Path(__file__).parents[2] / "docs"
OF_SUMMARIES = {"n", "reference", "pairing", "sequences"}


@pytest.mark.parametrize("measurement", MEASUREMENTS.values(), ids=MEASUREMENTS)
def test_every_measurement_is_a_described_file(measurement: Measurement) -> None:
    file = FOLDER / f"{type(measurement).__module__.rpartition('.')[2]}.py"
    assert file.is_file()
    assert not re.search(r"^(import|from) torch", file.read_text(), re.MULTILINE), "reports need no PyTorch"
    assert measurement.summary.endswith(".")
    assert measurement.tables and (measurement.charts or isinstance(measurement, (Scores, FurtherScores)))
    assert any(f"`{measurement.name}`" in page.read_text() for page in DOCS.glob("*.md"))


@pytest.mark.parametrize("measurement", MEASUREMENTS.values(), ids=MEASUREMENTS)
def test_declarations_name_columns(measurement: Measurement) -> None:
    columns = {column.name: column for column in measurement.columns}
    options = {part.name for part in measurement.Options.__dataclass_fields__.values()}
    texts = OF_SUMMARIES | options | {name for name, column in columns.items() if column.role == "note"}
    texts |= set(measurement.texts({"field": "input"}))
    for chart in measurement.charts:
        named = {chart.x, chart.y, chart.steps, *chart.facet, *chart.where, chart.colour, *(chart.shaded or ())}
        assert named - {"encoding", ""} <= set(columns)
        for text in (chart.title, chart.about):
            assert {name for _, name, _, _ in Formatter().parse(text) if name} <= texts
    for table in measurement.tables:
        assert {name for _, name, _, _ in Formatter().parse(table.about) if name} <= texts
        for number in table.numbers:
            assert {number.y, *number.by, *number.where, *table.rows} <= set(columns)
            assert columns[number.y].role in ("value", "note")
            assert {name for _, name, _, _ in Formatter().parse(number.head) if name} <= set(number.by)
    for column in columns.values():
        assert {column.error, column.groups, column.examples, column.weight} - {""} <= set(columns)


@pytest.mark.parametrize("probe", PROBES.values(), ids=PROBES)
def test_every_option_says_its_default(probe: Probe) -> None:
    for part in probe.Options.fields():
        assert part.metadata["text"].endswith(".")
        assert probe.shown_default(part)
    assert list(probe.settings) == [part.name for part in probe.Options.fields()]


def test_an_option_means_the_same_for_every_probe() -> None:
    texts: dict[str, set[Any]] = {}
    for probe in PROBES.values():
        for part in probe.Options.fields():
            texts.setdefault(part.name, set()).add((part.metadata["text"], part.type))
    assert [name for name, found in texts.items() if len(found) > 1] == []


def test_names() -> None:
    assert find("lengths").name == "lengths"
    with pytest.raises(ConfigError, match="there is no measurement 'recncy'; did you mean 'recency'"):
        find("recncy")
