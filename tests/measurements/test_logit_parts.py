"""Shares and sizes of the parts of logits, against loops over pairs."""

import math

import pytest
import torch

from lengthwise.config import ConfigError, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import Learned, NoPE, RoPE, Sinusoidal
from lengthwise.measurements.inside import trained as trained_run
from lengthwise.measurements.inside.attention import attention_calls
from lengthwise.measurements.inside.logit_split import PartSums
from lengthwise.measurements.inside.trained import TrainedRun
from lengthwise.measurements.logit_parts import LogitParts, LogitPartsOptions
from lengthwise.tasks import Copy
from lengthwise.training.setup import build
from tests.measurements.asking import measured

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
    asked = LogitPartsOptions.with_defaults(6, examples=5)
    found = measured("logit-parts", trained, asked, told.append)
    assert (asked.length, sum(told), found.first("n")) == (6, pytest.approx(1), 5)
    assert list(found.combined("share", ("layer", "head"), {}, "sum").values()) == pytest.approx([1.0] * 4, abs=1e-5)
    batch = trained.task.examples(0, 5, 6, "test")
    with torch.no_grad():
        call = attention_calls(trained.model, batch.inputs)[1]
    ((_, _, logits),) = call.blocks(10_000)
    counts = batch.scored.flip(1).cumsum(1).flip(1) > 0
    rows = [logits[b, 1, i, : i + 1] for b, i in counts.nonzero().tolist()]
    squares = sum(float(((row - row.mean()) ** 2).sum()) for row in rows)
    assert found.grid("deviation", layer=2, head=2, part="logit") == pytest.approx(
        math.sqrt(squares / sum(map(len, rows))), rel=1e-4
    )
    monkeypatch.setattr(trained_run, "TOKENS", 30)  # fewer examples at a time
    again = measured("logit-parts", trained, asked)
    assert again.grid("share", "part", layer=2, head=1) == pytest.approx(
        found.grid("share", "part", layer=2, head=1), rel=1e-4
    )


def test_refused():
    asked = LogitPartsOptions.with_defaults(6)
    LogitParts().require(run_of(Learned), asked)
    words = "have no parts of words and positions: RoPE adds no vectors to the embeddings; name a run of an absolute"
    with pytest.raises(ConfigError, match=words):
        LogitParts().require(run_of(RoPE), asked)
    with pytest.raises(ConfigError, match="is Mamba, which has no attention"):
        LogitParts().require(run_of(NoPE, ModelConfig.mamba(d_model=16, num_layers=2)), asked)
    with pytest.raises(ConfigError, match="Learned has 8"):
        LogitParts().require(run_of(choose(Learned, max_length=8)), asked)
