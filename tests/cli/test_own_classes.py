"""Users' classes that break a rule: one line that names the class, the rule and what to write."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lengthwise.studies import load as load_study
from lengthwise.training import build

Call = Callable[..., Any]


BIAS = "    def bias(self, distance): return distance[None].double().repeat(self.num_heads, 1)\n"
CLASSES = {
    "unknown size": (
        "class Mine(DistanceBias):\n    def __init__(self, *, num_heads, foo):\n        super().__init__()\n"
        "        self.num_heads = num_heads\n" + BIAS,
        "Mine.__init__ needs foo, which a model does not provide (it provides num_heads, head_dim, d_model, "
        "train_length); give it a default",
    ),
    "dict": (
        "class Mine(DistanceBias):\n    def __init__(self, *, num_heads, options={}):\n        super().__init__()\n"
        "        self.num_heads = num_heads\n" + BIAS,
        "Mine.options is a dict; a setting must be a number, a text, True, False, None or a tuple of such values",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("code", "message"), CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize("command", ["inspect", "compare"])
def test_an_encoding_that_breaks_a_rule(here: Call, tmp_path: Path, code: str, message: str, command: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"import torch\nfrom lengthwise.encodings import DistanceBias\n\n{code}")
    words = {
        "inspect": ["inspect", "mine", "--length", 8],
        "compare": [
            "compare",
            "mine",
            "--task",
            "copy",
            "--train-length",
            4,
            "--steps",
            1,
            "--results",
            tmp_path / "r",
        ],
    }[command]
    ran = here(*words, "--plugin", file)
    assert ran.code == 2
    assert ran.err.startswith("lengthwise: ") and ran.err.strip().count("\n") == 0
    assert message in ran.err


STUDY = """
import random
from lengthwise.config import EvaluationConfig, TrainingConfig
from lengthwise.encodings import DistanceBias
from lengthwise.studies import Study, grid

class NAME(DistanceBias):
    def __init__(self, *, num_heads):
        super().__init__()
        self.num_heads, self.slope = num_heads, random.random()
    def bias(self, distance): return -self.slope * distance[None].double().repeat(self.num_heads, 1)

study = Study(
    name="own", runs=grid([NAME], ["copy"], training=TrainingConfig(train_length=4, steps=2)),
    evaluation=EvaluationConfig(lengths=(4,), examples=8),
)
"""


def test_a_study_whose_class_has_the_name_of_a_built_in_one(here: Call, tmp_path: Path) -> None:
    file = tmp_path / "study.py"
    file.write_text(STUDY.replace("NAME", "Fire"))
    ran = here("run", file, "--results", tmp_path / "r")
    assert ran.code == 2
    assert "line 7: the encoding Fire has the same name as FIRE of lengthwise.encodings.fire; rename it" in ran.err
    assert not (tmp_path / "r").exists()


def test_an_encoding_that_draws_with_python_gives_one_result_for_one_seed(tmp_path: Path) -> None:
    file = tmp_path / "study.py"
    file.write_text(STUDY.replace("NAME", "Mine"))
    run = load_study(file).runs[0]
    state = random.getstate()
    slopes = [build(run)[0].encodings[0].slope for _ in range(2)]
    assert slopes[0] == slopes[1] != build(replace(run, seed=1))[0].encodings[0].slope
    assert random.getstate() == state


SCHEMES = {
    "floats": (
        "return torch.zeros(inputs.shape)",
        "Mine.positions must return a tensor of int64 of shape [2, 66], or None for consecutive positions, got "
        "torch.float32",
    ),
    "a list": ("return [[0]]", "or None for consecutive positions, got an object of type list"),
    "beyond": (
        "return torch.full(inputs.shape, 99)",
        "Mine.positions must return 0 to 49, as `num_positions` says, got '99 to 99'",
    ),
}


@pytest.mark.parametrize(("code", "message"), SCHEMES.values(), ids=SCHEMES)
def test_a_position_scheme_that_breaks_a_rule(here: Call, tmp_path: Path, code: str, message: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\nfrom lengthwise.positions import PositionScheme\n\nclass Mine(PositionScheme):\n"
        f"    def positions(self, inputs, documents, generator, training):\n        {code}\n"
        "    def num_positions(self, tokens, training): return 50\n"
    )
    ran = here(
        *["compare", "alibi", "--task", "copy", "--positions", "mine", "--train-length", 4, "--steps", 1],
        *["--results", tmp_path / "r", "--plugin", file],
    )
    assert ran.code == 2
    assert message in ran.err
    assert str(file) in ran.err or "mine.py, line " in ran.err
