"""What is read from the source of our classes is what importing them says."""

import json
import subprocess
import sys

import pytest

from lengthwise.cli import source_reading
from lengthwise.cli.list import method_row
from lengthwise.encodings import ENCODINGS
from lengthwise.positions import POSITION_SCHEMES
from lengthwise.tasks import TASKS

LISTS = [
    ("lengthwise.encodings", "ENCODINGS", ENCODINGS),
    ("lengthwise.tasks", "TASKS", TASKS),
    ("lengthwise.positions", "POSITION_SCHEMES", POSITION_SCHEMES),
]


@pytest.mark.parametrize(("package", "name", "registry"), LISTS, ids=[name for _, name, _ in LISTS])
def test_it_is_what_importing_says(package: str, name: str, registry) -> None:
    read = source_reading.listed(package, name)
    assert [one.name for one in read] == registry.names()
    for one, make in zip(read, registry, strict=True):
        assert one.documentation, make
        row = method_row(make)
        assert row["documentation"] == one.documentation
        assert list(row["settings"].items()) == list(one.settings.items()), make
        if "metric" in row:
            assert one.attribute("metric") == make.metric, make
            assert one.attribute("unit") == row["unit"], make


@pytest.mark.parametrize("name", ["encodings", "tasks", "positions"])
def test_a_list_does_not_import_torch(name: str) -> None:
    """Importing it takes longer than everything else."""
    code = (
        "import json, sys\nfrom lengthwise.cli import main\n"
        f"code = main(['list', '{name}'])\nprint(json.dumps([code, 'torch' in sys.modules]))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout.splitlines()[-1]) == [0, False]
    assert "settings and their defaults" in ran.stdout
