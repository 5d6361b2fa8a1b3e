"""Shares and sizes of the parts of logits: against loops over pairs, in rows of the store and on the page."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lengthwise.analysis.gather import probe_summaries
from lengthwise.analysis.intervals import over_seeds
from lengthwise.config import ConfigError, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import Learned, NoPE, RoPE, Sinusoidal
from lengthwise.probes import PROBES
from lengthwise.probes.logit_parts import PARTS, LogitParts, LogitPartsQuestion
from lengthwise.probes.logit_parts.measure import PartSums, measure, require
from lengthwise.probes.measuring import trained_run
from lengthwise.probes.measuring.rows import attention_calls
from lengthwise.probes.measuring.trained_run import TrainedRun
from lengthwise.report.palette import looks
from lengthwise.tasks import Copy
from lengthwise.training.setup import build

TINY = ModelConfig(d_model=16, num_layers=2, num_heads=2)


def run_of(encoding, model=TINY) -> Run:
    training = TrainingConfig(train_length=6, steps=2, batch_size=2)
    choice = encoding if not isinstance(encoding, type) else choose(encoding)
    return Run(encoding=choice, task=choose(Copy), model=model, training=training, seed=0)


def untrained(run: Run) -> TrainedRun:
    model, task = build(run, device=torch.device("cpu"), backend="auto")
    return TrainedRun(run, model.eval(), task)


def test_sums_against_loops_over_pairs():
    generator = torch.Generator().manual_seed(0)
    parts = torch.randn(4, 2, 3, 7, 7, generator=generator).double() * torch.tensor([3.0, 1, 0.1, 2]).view(
        4, 1, 1, 1, 1
    )
    selected = torch.rand(2, 7, generator=generator) < 0.7
    sums = PartSums(3)
    for rows in (slice(0, 3), slice(3, 7)):
        sums.add(parts[..., rows, : rows.stop], rows, selected[:, rows])
    for head in range(3):
        products, squares, total, pairs = [0.0] * 4, [0.0] * 4, 0.0, 0
        for b, i in selected.nonzero().tolist():
            of_query = [parts[p, b, head, i, : i + 1].tolist() for p in range(4)]
            centred = [[x - math.fsum(part) / (i + 1) for x in part] for part in of_query]
            for j in range(i + 1):
                logit = math.fsum(centred[p][j] for p in range(4))
                total, pairs = total + logit**2, pairs + 1
                for p in range(4):
                    products[p] += centred[p][j] * logit
                    squares[p] += centred[p][j] ** 2
        assert sums.pairs == pairs
        assert sums.shares[head].tolist() == pytest.approx([x / total for x in products], abs=1e-12)
        assert sums.deviations[head].tolist() == pytest.approx([math.sqrt(x / pairs) for x in squares], abs=1e-12)
        assert float(sums.logit_deviations[head]) == pytest.approx(math.sqrt(total / pairs), abs=1e-12)
    assert sums.shares.sum(-1).tolist() == pytest.approx([1.0] * 3, abs=1e-12)


def test_a_stored_run(monkeypatch):
    trained = untrained(run_of(Sinusoidal))
    told: list[float] = []
    asked = LogitPartsQuestion.with_defaults(6, examples=5)
    found = measure(trained, asked, told.append)
    assert (asked.length, sum(told), found["n"]) == (6, 5, 5)
    assert [sum(head) for layer in found["shares"] for head in layer] == pytest.approx([1.0] * 4, abs=1e-5)
    batch = trained.task.examples(0, 5, 6, "test")
    with torch.no_grad():
        call = attention_calls(trained.model, batch.inputs)[1]
    ((_, _, logits),) = call.blocks(10_000)
    counts = batch.scored.flip(1).cumsum(1).flip(1) > 0
    rows = [logits[b, 1, i, : i + 1] for b, i in counts.nonzero().tolist()]
    squares = sum(float(((row - row.mean()) ** 2).sum()) for row in rows)
    assert found["logit_deviations"][1][1] == pytest.approx(math.sqrt(squares / sum(map(len, rows))), rel=1e-4)
    assert sum(LogitParts().cells(found)) == pytest.approx(1.0, abs=1e-5)
    monkeypatch.setattr(trained_run, "TOKENS", 30)  # fewer examples at a time
    again = measure(trained, asked)
    assert again["shares"][1][0] == pytest.approx(found["shares"][1][0], rel=1e-4)


def test_refused():
    asked = LogitPartsQuestion.with_defaults(6)
    require(run_of(Learned), [asked])
    words = "have no parts of words and positions: RoPE adds no vectors to the embeddings; name a run of an absolute"
    with pytest.raises(ConfigError, match=words):
        require(run_of(RoPE), [asked])
    with pytest.raises(ConfigError, match="is Mamba, which has no attention"):
        require(run_of(NoPE, ModelConfig.mamba(d_model=16, num_layers=2)), [asked])
    with pytest.raises(ConfigError, match="Learned has 8"):
        require(run_of(choose(Learned, max_length=8)), [asked])


# ---- stored rows -------------------------------------------------------------------------------------------------

ASKED = {"probe": "logit-parts", "length": 6, "examples": 4, "seed": 0}


def result(*shares: float | None) -> dict[str, Any]:
    layer = [list(shares), list(shares)]
    sizes = [[0.5, 1.0, 1.5, 2.0]] * 2
    return {
        "parts": list(PARTS),
        "shares": [layer, layer],
        "deviations": [sizes, sizes],
        "logit_deviations": [[3.0, 5.0], [1.0, 1.0]],
        "n": 4,
    }


def row(key: str, result: dict[str, Any]) -> Any:
    return SimpleNamespace(key=key, asked=ASKED, result=result, facts={"device": "cpu"})


def test_summary_and_section():
    rows = [
        row("a0", result(0.5, 0.25, 0.5, -0.25)),
        row("a1", result(0.7, 0.1, 0.1, 0.1)),
        row("b0", result(*[None] * 4)),
    ]
    labels = {"a0": "Learned", "a1": "Learned", "b0": "Sinusoidal"}
    (summary,) = probe_summaries(rows, labels, {})["logit-parts"]
    learned, sinusoidal = summary.series
    assert learned.shares[0][0] == over_seeds([0.5, 0.7])
    assert learned.logit_deviations == (4.0, 1.0)
    assert learned.deviations[0] == (0.5, 1.0, 1.5, 2.0)
    assert sinusoidal.shares[0] == (None,) * 4
    task: Any = SimpleNamespace(title="Copy", unit="symbols")
    section = PROBES.find("logit-parts").section(summary, task, looks(["Learned", "Sinusoidal"]))
    assert section["heads"][:2] == ["layer 1: word-word", "layer 1: word-position"]
    assert [cell["mean"] for cell in section["rows"][0]["cells"][:4]] == ["60.0%", "17.5%", "30.0%", "-7.5%"]
    assert {cell["mean"] for cell in section["rows"][1]["cells"]} == {"–"}
    assert [cell["mean"] for cell in section["sizes"][0]["cells"][:2]] == ["4.000", "0.500"]
    assert len(section["head_rows"]) == 4
    assert section["head_rows"][0]["cells"][0]["mean"] == "50.0%"
    described = section["multiples"][0]["chart"].described
    assert (
        "Horizontal axis: layers 1 to 2. Vertical axis: standard deviation over a query's keys, from 0 to 2 nats"
        in described
    )
