"""One graph serves every length: under torch.compile whole models break nowhere, are compiled once more at most, and
answer as they do without it. compiled.py does the work, in processes without checks of shapes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lengthwise import native
from lengthwise.encodings import ENCODINGS

COMPILED = Path(__file__).with_name("compiled.py")
CLOSE = 3e-6  # of the largest output, and of the largest gradient
# Of each family one, and those that have had trouble: numbers looked up, locks, shapes that follow from numbers.
FEW = ["RoPE", "Learned", "DynamicNTK", "FIRE", "FoX", "Shaw"]
QUICK = ["DynamicNTK", "FIRE"]
GIVEN = ["documents", "padding", "positions", "positions and documents"]


def rows(*names: str, **settings: Any) -> dict[str, dict[str, Any]]:
    command = [sys.executable, str(COMPILED), json.dumps({"names": names, **settings})]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert len(found) == len(names or ENCODINGS.names())
    return found


def require(graphs: list[int], *names: str, **settings: Any) -> dict[str, dict[str, Any]]:
    """As many graphs after each length, no break, the same answers; all that is wrong in one message."""
    found = rows(*names, **settings)
    wrong = [r for r in found.values() if r["graphs"] != graphs or r["breaks"] or not r["off"] <= CLOSE]
    assert not wrong, "\n".join(map(str, wrong))
    return found


@pytest.mark.medium
def test_one_graph_serves_all_lengths():
    found = require([1, 1], *QUICK, dynamic=True, lengths=[17, 33])
    if (
        not native.unsupported_reason()
    ):  # nothing had asked for the kernel in that process before the first graph was made
        assert found[QUICK[0]]["used"] == ["fused"]


@pytest.mark.slow
def test_one_graph_serves_all_lengths_of_a_few():
    require([1, 1, 1], *FEW, dynamic=True, lengths=[17, 100, 33])


@pytest.mark.slow
def test_a_second_length_makes_the_graph_for_all_others():
    require([1, 2, 2], "Shaw", lengths=[17, 33, 50])


@pytest.mark.slow
def test_many_lengths():
    require([1, 2, 2, 2, 2], "FIRE")


@pytest.mark.slow
def test_places_that_are_given():
    require([1, 1], "FIRE", given="positions and documents", dynamic=True, fullgraph=True, lengths=[17, 50])


@pytest.mark.slow
def test_a_model_of_ones_own_that_calls_attend():
    require([1, 2, 2], "RoPE", whose="another", fullgraph=True, lengths=[17, 50, 33])


@pytest.mark.slow
def test_more_models_of_ones_own():
    require([1, 2, 2], "FIRE", "ALiBi", "RoPE", whose="another", fullgraph=True, lengths=[17, 50, 33])


@pytest.mark.slow
@pytest.mark.parametrize("given", ["tokens", "positions and documents"])
def test_attend_with_every_encoding(given):
    names = [name for name in ENCODINGS.names() if name not in ("Sinusoidal", "Learned")]  # they act on embeddings
    require([1, 2, 2], *names, whose="another", fullgraph=True, given=given, lengths=[17, 33, 39])


@pytest.mark.slow
def test_without_gradients():
    require([1, 1, 1], "FIRE", "RoPE", dynamic=True, lengths=[17, 100, 33], training=False)


@pytest.mark.slow
def test_every_encoding():
    require([1, 2, 2, 2, 2], backend="aot_eager", fullgraph=True)


@pytest.mark.slow
@pytest.mark.parametrize("given", GIVEN)
def test_every_encoding_with_places_that_are_given(given):
    require([1, 1, 1], given=given, dynamic=True, fullgraph=True, lengths=[17, 50, 33])


@pytest.mark.slow
def test_a_pattern_of_encodings():
    require([1, 2, 2, 2, 2], "rope*1+nope", "fire*1+rope", layers=4, backend="aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["sdpa", "reference"])
def test_backends_that_are_named(attention):
    require([1, 1, 1], "FIRE", "RoPE", "T5", attention=attention, dynamic=True, lengths=[17, 100, 33])


@pytest.mark.slow
@pytest.mark.parametrize("given", ["tokens", "positions and documents"])
def test_with_torchs_own_compiler(given):
    require(
        [1, 1], "FIRE", "RoPE", "T5", backend="inductor", dynamic=True, fullgraph=True, given=given, lengths=[17, 100]
    )


HIGH_POSITIONS = """
import torch, lengthwise
from lengthwise.attention import TokenInfo
from lengthwise.config import ConfigError
from lengthwise.encodings import RoPE

attend = lambda q, k, v, p: lengthwise.attend(q, k, v, RoPE(head_dim=8), tokens=TokenInfo(positions=p))
compiled = torch.compile(attend, backend="aot_eager", fullgraph=True)
q, k, v = torch.randn(3, 1, 2, 5, 8)
positions = 2**53 - 10 + 2 * torch.arange(5)[None]
assert torch.equal(compiled(q, k, v, positions), attend(q, k, v, positions))
for call, error in ((attend, ConfigError), (compiled, RuntimeError)):
    try:
        call(q, k, v, positions + 2)
    except error:
        pass
    else:
        raise AssertionError(call)
"""


@pytest.mark.medium
def test_a_graph_refuses_positions_that_are_too_high():
    ran = subprocess.run([sys.executable, "-c", HIGH_POSITIONS], capture_output=True, text=True, timeout=200)
    assert ran.returncode == 0, ran.stderr[-2000:]
