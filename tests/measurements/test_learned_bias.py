"""The bias of one query: against formulas written out here, and what has no bias is refused with the reason."""

import math

import pytest
import torch

from lengthwise.config import ConfigError, ModelConfig, Run, TrainingConfig, alternate, choose
from lengthwise.encodings import ENCODINGS, FIRE, T5, ALiBi, KerpleLog, NoPE, PositionEncoding, TransformerXL
from lengthwise.forms import AttentionModifiers, DenseBias
from lengthwise.measurements.inside.bias import (
    bias_of,
    bias_unsupported_reason,
    layer_biases,
    relative_distance,
    variation,
)
from lengthwise.measurements.inside.trained import TrainedRun
from lengthwise.measurements.learned_bias import KINDS, MAX_STORED, LearnedBias, LearnedBiasOptions, kind_of
from lengthwise.models import Decoder
from lengthwise.tasks import Copy
from tests.measurements.asking import measured

TINY = ModelConfig(d_model=16, num_layers=2, num_heads=2)
SIZES = {"num_heads": 2, "head_dim": 8, "d_model": 16, "train_length": 8}
WITH_BIAS = {"TransformerXL", "ALiBi", "T5", "KerpleLog", "KerplePower", "Sandwich", "FIRE"}


def build(make, **settings):
    torch.manual_seed(0)
    return choose(make, **settings).build(**SIZES)


def decoder(encoding) -> Decoder:
    torch.manual_seed(0)
    choice = encoding if not isinstance(encoding, type) else choose(encoding)
    return Decoder(TINY, choice, vocab_size=11, output_size=11, train_length=8).eval()


def run_of(encoding, model=TINY) -> Run:
    choice = encoding if not isinstance(encoding, type) else choose(encoding)
    training = TrainingConfig(train_length=4, steps=2, batch_size=2)
    return Run(encoding=choice, task=choose(Copy), model=model, training=training, seed=0)


def naive(bias: list[float]) -> tuple[float, float]:
    """The measure of one head, from its formula, with the key at index j."""
    i = len(bias) - 1
    total = math.fsum(math.exp(b) for b in bias)
    weights = [math.exp(b) / total for b in bias]
    distance = math.fsum(w * (i - j) for j, w in enumerate(weights)) / (i / 2)
    return distance, math.fsum(abs(w - 1 / (i + 1)) for w in weights) / 2


def test_alibi():
    assert bias_of(build(ALiBi), 3, 2, 8, 0.5).tolist() == [
        [-3 / 16, -2 / 16, -1 / 16, 0],
        [-3 / 256, -2 / 256, -1 / 256, 0],
    ]


def test_fire():
    """f(ln(c d + 1) / (ln(c max(L, i) + 1) + eps)), with the network written out."""
    fire = build(FIRE, hidden_layers=1, width=4, L=16.0)
    (w1, b1, w2, b2) = (p.detach().double() for layer in fire.layers for p in (layer.weight, layer.bias))
    c = fire.c.item()
    for query in (5, 40):
        x = [math.log(c * (query - j) + 1) / (math.log(c * max(16.0, query) + 1) + 1e-6) for j in range(query + 1)]
        expected = w2 @ torch.relu(w1 * torch.tensor(x, dtype=torch.float64) + b1[:, None]) + b2[:, None]
        torch.testing.assert_close(bias_of(fire, query, 2, 8, 0.5), expected, atol=1e-12, rtol=0)


def test_transformer_xl_adds_the_product_of_v_with_the_vector_of_each_distance():
    xl = build(TransformerXL).requires_grad_(False)
    distance = torch.arange(6, -1, -1)
    angle = distance[:, None] * 10_000.0 ** -(torch.arange(0, 16, 2).double() / 16)
    vectors = torch.einsum("hdc,nc->hnd", xl.W_R.double(), torch.cat([angle.sin(), angle.cos()], -1))
    expected = torch.einsum("hd,hnd->hn", xl.v.double(), vectors) * 0.5
    torch.testing.assert_close(bias_of(xl, 6, 2, 8, 0.5), expected, atol=1e-12, rtol=0)


class Windowed(PositionEncoding):
    """A user's bias as a matrix that all heads share: 0 for even keys, the query's position for odd ones."""

    def modifiers(self, span):
        odd = (span.k[:, None, :] % 2) * span.q[:, :, None]
        return AttentionModifiers(terms=(DenseBias(odd[:, None].double()),))


def test_a_matrix_of_a_user():
    assert bias_of(Windowed(), 5, 2, 8, 1.0).tolist() == [[0, 5, 0, 5, 0, 5]] * 2


READ_CONTENT = ("FoX", "BandedBias", "GrapeAP", "RePo", "SelectiveRoPE", "PaTH", "PaTHFoX", "Wall")


@pytest.mark.parametrize("make", list(ENCODINGS), ids=lambda make: make.__name__)
def test_every_encoding_has_a_bias_or_a_reason(make):
    encoding = build(make)
    reason = bias_unsupported_reason(encoding)
    assert (reason is None) == (make.__name__ in WITH_BIAS)
    if reason is None:
        assert bias_of(encoding, 9, 2, 8, 1.0).shape == (2, 10)
    else:
        assert make.__name__ in reason
        assert ("content" in reason) == (make.__name__ in READ_CONTENT)
        with pytest.raises(ConfigError, match=f"has no bias to measure: .*{make.__name__}"):
            LearnedBias().require(run_of(make), LearnedBiasOptions())


@pytest.mark.parametrize(
    ("bias", "kind"),
    [
        (-torch.arange(128, -1, -1) / 256, "local"),  # ALiBi's smallest slope with 8 heads
        (torch.full((129,), 7.0), "flat"),
        (torch.arange(128, -1, -1) / 16, "anti-local"),
        (torch.arange(128, -1, -1) * 0.29 / 128, "flat"),  # less than 0.3 nats over all keys
        (torch.arange(128, -1, -1) * 0.32 / 128, "anti-local"),
        (torch.cat([torch.zeros(1), torch.full((127,), -9.0), torch.zeros(1)]), "mixed"),  # both ends alike
        (torch.cat([torch.full((128,), -math.inf), torch.zeros(1)]), "local"),
        (torch.full((129,), math.nan), ""),
    ],
)
def test_kinds_of_biases_made_by_hand(bias, kind):
    bias = bias.double()
    for shift in (0.0, -3.25, 40.0):
        assert kind_of(float(relative_distance(bias + shift)), float(variation(bias + shift))) == kind
    if bias.isfinite().all():
        measured = [float(relative_distance(bias)), float(variation(bias))]
        assert measured == pytest.approx(naive(bias.tolist()), abs=1e-12)


def test_a_bias_that_only_falls_or_only_rises_is_never_mixed():
    generator = torch.Generator().manual_seed(0)
    steps = torch.rand(2000, 40, generator=generator).double() ** 8 * 10 ** (
        torch.rand(2000, 1, generator=generator) * 4 - 3
    )
    for bias in (steps.cumsum(-1), -steps.cumsum(-1)):
        relative, spread = relative_distance(bias), variation(bias)
        assert bool((spread <= (1 - relative).abs() * 39 / 40 + 1e-12).all())
        assert "mixed" not in {kind_of(*pair) for pair in zip(relative.tolist(), spread.tolist(), strict=True)}


def test_the_stored_result():
    run = run_of(KerpleLog)
    trained = TrainedRun(run, decoder(KerpleLog), Copy())
    told: list[float] = []
    found = measured("learned-bias", trained, LearnedBiasOptions(query=6), told.append)
    assert told == [1]
    biases = found.grid("bias", "layer", "head", "distance")
    assert [row["distance"] for row in found][-7:] == [0, 1, 2, 3, 4, 5, 6]
    (encoding,) = trained.model.encodings
    r1, r2 = encoding.r1.clamp(min=0.01).tolist(), encoding.r2.clamp(min=0.01).tolist()
    expected = [[-a * math.log1p(b * d) for d in range(7)] for a, b in zip(r1, r2, strict=True)]
    assert biases[0] == [pytest.approx(head, rel=1e-5) for head in expected]
    assert biases[1] == biases[0], "one module for all layers"
    by_hand = [naive(head[::-1]) for head in expected]
    assert found.grid("relative_distance", "head", layer=1) == pytest.approx(
        [distance for distance, _ in by_hand], rel=1e-5
    )
    assert found.grid("variation", "head", layer=1) == pytest.approx([spread for _, spread in by_hand], rel=1e-5)
    shown = LearnedBias().derive(found, {})
    assert [shown.combined(kind, (), {}, "sum")[()] for kind in KINDS] == [4, 0, 0, 0]
    assert shown.grid("relative", "distance", layer=1, head=1) == pytest.approx(expected[0], rel=1e-5)


@pytest.mark.medium
def test_a_long_query_is_stored_at_few_distances():
    trained = TrainedRun(run_of(ALiBi), decoder(ALiBi), Copy())
    found = measured("learned-bias", trained, LearnedBiasOptions(query=5000))
    (distances, bias) = (found.grid(name, "distance", layer=1, head=1) for name in ("distance", "bias"))
    assert len(distances) == MAX_STORED
    assert (distances[0], distances[-1], bias[-1]) == (0, 5000, -5000 / 16)
    exact = naive([-(5000 - j) / 256 for j in range(5001)])
    assert found.grid("relative_distance", layer=1, head=2) == pytest.approx(exact[0], rel=1e-5), "over all keys"


def test_layers_without_a_bias():
    biases = layer_biases(decoder(alternate(choose(NoPE), choose(T5))), 4)
    assert biases.isnan().all((1, 2)).tolist() == [True, False]
    pattern = alternate(choose(NoPE), choose(T5))
    found = measured("learned-bias", TrainedRun(run_of(pattern), decoder(pattern), Copy()), LearnedBiasOptions(query=4))
    assert set(found.column("layer")) == {2}
    LearnedBias().require(run_of(alternate(choose(NoPE), choose(T5))), LearnedBiasOptions())


def test_refused():
    with pytest.raises(ConfigError, match="query must be a whole number of at least 1, got 0"):
        LearnedBiasOptions(query=0)
    with pytest.raises(ConfigError, match="query must be at most 1,048,576, got 9,999,999"):
        LearnedBiasOptions(query=9_999_999)
    with pytest.raises(ConfigError, match="is Mamba, which has no attention"):
        LearnedBias().require(run_of(NoPE, ModelConfig.mamba(d_model=16, num_layers=2)), LearnedBiasOptions())
    with pytest.raises(ConfigError, match="rotates queries and keys and adds no bias; name a run of an encoding with"):
        LearnedBias().require(run_of(next(make for make in ENCODINGS if make.__name__ == "RoPE")), LearnedBiasOptions())
