"""The example of docs/probes.md is a whole probe."""

import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lengthwise.analysis.answers import summaries
from lengthwise.config import ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import NoPE
from lengthwise.measurements import MEASUREMENTS
from lengthwise.measurements.inside.trained import TrainedRun, answer
from lengthwise.metrics import EXACT_MATCH
from lengthwise.report.measurements import section
from lengthwise.report.palette import looks
from lengthwise.tasks import Copy
from lengthwise.training import build

DOCS = Path(__file__).parents[2] / "docs" / "probes.md"


def test_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    names: dict[str, Any] = {"__name__": "entropy"}
    exec(code, names)
    probe = names["Entropy"]()
    monkeypatch.setitem(MEASUREMENTS, probe.name, probe)
    run = Run(
        encoding=choose(NoPE),
        task=choose(Copy),
        model=ModelConfig(d_model=16, num_layers=2, num_heads=2),
        training=TrainingConfig(train_length=4),
    )
    model, task = build(run)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)  # equal weights
    options = probe.Options.with_defaults(4, examples=5)
    shares: list[float] = []
    table, _ = answer(probe, TrainedRun(run, model.eval(), task), options, shares.append)
    tokens = task.tokens(4)
    expected = math.fsum(map(math.log, range(1, tokens + 1))) / tokens
    assert table.grid("entropy", "layer", "head") == [[pytest.approx(expected, rel=1e-5)] * 2] * 2
    assert sum(shares) == pytest.approx(1)
    about = {"key": "a", "measurement": "entropy", "question": options.to_data()}
    stored: Any = SimpleNamespace(**about, rows=table.to_data(), facts={}, created=1.0)
    runs: Any = {"a": SimpleNamespace(key="a", label="NoPE", seed=0, config={}, train_length=4)}
    ((summary,),) = summaries([stored], {"a": "NoPE"}, runs).values()
    of_task: Any = SimpleNamespace(title="Copy", metric=EXACT_MATCH, metric_label="exact match", unit="symbols")
    page = section(summary, of_task, looks(["NoPE"]))
    assert page["charts"][0]["about"] == "Means over 5 test sequences of 4 symbols."
    assert page["tables"][0]["heads"] == ["layer 1", "layer 2"]
