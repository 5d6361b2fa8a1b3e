"""All mixers: what they compute, and that a text may be read in any pieces, beside any padding and other documents."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from lengthwise.config import ConfigError, ModelConfig, Run, TrainingConfig, choose
from lengthwise.config.mixers import MIXERS
from lengthwise.encodings import ENCODINGS, Learned, NoPE, RoPE, Sinusoidal
from lengthwise.models import MixerModel
from lengthwise.models.mixers import block_class
from lengthwise.models.mixers.rwkv4 import weighted_mean
from lengthwise.positions import Randomized
from lengthwise.tasks import Copy
from tests.field_docs import field_docs

CASES = json.loads((Path(__file__).parent.parent / "vectors" / "mixers.json").read_text(encoding="utf-8"))["cases"]
TOKENS = 150  # more than two chunks of every mixer that has chunks
DOCUMENTS = {
    "one": None,
    "packed": [[3] * 4 + [1] * 70 + [2] * 76, [0] * 150, [5] * 149 + [6]],
    "padded": [[-1] * n + [0] * (TOKENS - n) for n in (0, 2, 99)],
}
TRAINING = TrainingConfig(train_length=5, steps=2)
CHANNEL_MIXING = ("time_norm", "channel_norm", "channel_key", "channel_receptance", "channel_value", "channel_mix_k",
                  "channel_mix_r")  # fmt: skip
mixers = pytest.mark.parametrize("mixer", MIXERS)


def config_of(mixer: str, **settings) -> ModelConfig:
    heads = {"num_heads": 2} if "num_heads" in MIXERS[mixer].settings else {}
    return ModelConfig(mixer=mixer, **{"d_model": 16, "num_layers": 2, **heads, **settings})


def model_of(mixer: str, encoding=NoPE, **settings) -> MixerModel:
    torch.manual_seed(0)
    model = MixerModel(
        config_of(mixer, **settings), choose(encoding), vocab_size=11, output_size=11, train_length=TOKENS
    )
    with torch.no_grad():  # far from the first values, which are alike in all channels
        for p in model.parameters():
            p.add_(0.05 * torch.randn_like(p))
    return model.eval()


def text(rows: int = 3, tokens: int = TOKENS) -> torch.Tensor:
    return torch.randint(0, 11, (rows, tokens), generator=torch.Generator().manual_seed(1))


def ids(name: str) -> torch.Tensor | None:
    return None if DOCUMENTS[name] is None else torch.tensor(DOCUMENTS[name])


# ---- what a mixer computes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_mixer_equals_its_recurrence(case):
    config = ModelConfig(mixer=case["what"], **case["settings"])
    block = block_class(case["what"])(config, 0, 100).double()
    given = {name: torch.tensor(value, dtype=torch.float64) for name, value in case["parameters"].items()}
    missing, unknown = block.load_state_dict(given, strict=False)
    assert not unknown
    assert {name.partition(".")[0] for name in missing} <= {"norm", "mlp_norm", "up", "down", *CHANNEL_MIXING}
    documents = torch.tensor([case["documents"]]) if "documents" in case else None
    out = block.mix(torch.tensor([case["x"]], dtype=torch.float64), None, documents)[0][0]
    expected = torch.tensor(case["expected"], dtype=torch.float64)
    torch.testing.assert_close(out, expected, atol=case["atol"], rtol=case["rtol"])


def test_every_mixer_has_vectors():
    assert {case["what"] for case in CASES} == set(MIXERS) - {"mamba"}  # test_mamba.py has its own


@mixers
@pytest.mark.parametrize("documents", DOCUMENTS)
def test_all_tokens_at_once_equal_one_after_the_other(mixer, documents):
    model, x, given = model_of(mixer).double(), text(), ids(documents)
    cache = model.new_cache()
    steps = [
        model(x[:, t : t + 1], documents=None if given is None else given[:, t : t + 1], cache=cache)
        for t in range(TOKENS)
    ]
    torch.testing.assert_close(torch.cat(steps, 1), model(x, documents=given), atol=1e-10, rtol=0)
    assert cache.length == TOKENS


@mixers
@pytest.mark.parametrize("documents", DOCUMENTS)
@pytest.mark.parametrize("sizes", [(64, 86), (1, 65, 2, 60, 22), (149, 1)], ids=str)
def test_a_text_in_pieces(mixer, documents, sizes):
    model, x, given = model_of(mixer).double(), text(), ids(documents)
    cache, parts, start = model.new_cache(), [], 0
    for size in sizes:
        cut = slice(start, start + size)
        parts.append(model(x[:, cut], documents=None if given is None else given[:, cut], cache=cache))
        start += size
    torch.testing.assert_close(torch.cat(parts, 1), model(x, documents=given), atol=1e-10, rtol=0)


@mixers
def test_documents_do_not_see_each_other(mixer):
    model, x = model_of(mixer).double(), text()
    lengths = (4, 70, 76)
    packed = torch.cat([torch.full((1, n), 7 - n) for n in lengths], 1)
    whole = model(x, documents=packed)
    apart = torch.cat([model(part) for part in x.split(lengths, 1)], 1)
    torch.testing.assert_close(whole, apart, atol=1e-10, rtol=0)
    assert (model(x) - whole)[:, 4:].abs().max() > 1e-4


@mixers
def test_left_padding_changes_nothing(mixer):
    model, x = model_of(mixer).double(), text(1, 40)
    padded = torch.cat([torch.full((1, 90), 3), x], 1)
    documents = torch.tensor([[-1] * 90 + [0] * 40])
    torch.testing.assert_close(model(padded, documents=documents)[:, 90:], model(x), atol=1e-10, rtol=0)


@mixers
def test_later_tokens_change_nothing(mixer):
    model, x = model_of(mixer).double(), text()
    other = torch.cat([x[:, :77], 10 - x[:, 77:]], 1)
    torch.testing.assert_close(model(x)[:, :77], model(other)[:, :77], atol=1e-10, rtol=0)


@mixers
@pytest.mark.parametrize("padded", [False, True])
def test_generation_with_and_without_cache(mixer, padded):
    model, x = model_of(mixer), text(3, 17)
    documents = torch.tensor([[-1] * n + [0] * (17 - n) for n in (0, 3, 12)]) if padded else None
    generated = model.generate(x, 8, documents=documents)
    assert torch.equal(generated, model.generate(x, 8, documents=documents, cached=False))
    if padded:
        assert torch.equal(generated[2:], model.generate(x[2:, 12:], 8))


@mixers
def test_selected_rows_of_a_cache(mixer):
    model, x = model_of(mixer).double(), text(3, 20)
    cache = model.new_cache()
    model(x[:, :12], cache=cache)
    cache.select_rows(torch.tensor([2, 0, 2, 1]))
    assert cache.rows == 4
    rows = x[[2, 0, 2, 1]]
    torch.testing.assert_close(model(rows[:, 12:], cache=cache), model(rows)[:, 12:], atol=1e-10, rtol=0)


@mixers
@pytest.mark.parametrize("packed", [False, True])
def test_the_gradient(mixer, packed):
    model, x = model_of(mixer, d_model=4).double(), text(2, 7)
    documents = torch.tensor([[-1, 0, 0, 0, 0, 0, 0], [1, 1, 1, 2, 2, 3, 3]]) if packed else None
    names = [name for name, _ in model.named_parameters()]

    def run(*values):
        return torch.func.functional_call(model, dict(zip(names, values, strict=True)), (x,), {"documents": documents})

    assert torch.autograd.gradcheck(run, tuple(p.detach().requires_grad_() for p in model.parameters()), fast_mode=True)


@mixers
def test_half_precision_keeps_its_state_in_float32(mixer):
    model, x = model_of(mixer), text()
    cache = model.new_cache()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        near = model(x, cache=cache)
        model(x[:, :1], cache=cache)
    assert {state[0].dtype for state in cache.states} == {torch.float32}
    torch.testing.assert_close(near.float(), model(x), atol=0.15, rtol=0.1)


@mixers
def test_float32_is_near_float64(mixer):
    model, x = model_of(mixer), text(2, 600)
    near = model(x)
    torch.testing.assert_close(near.double(), model.double()(x), atol=2e-4, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("fresh", [False, True])
def test_the_average_of_rwkv_with_very_different_keys(dtype, fresh):
    """Against the authors' recurrence in NumPy, with keys and decays whose exponentials are no numbers."""
    g = torch.Generator().manual_seed(3)
    k, v = 300 * torch.randn(2, 100, 5, generator=g).double(), torch.randn(2, 100, 5, generator=g).double()
    decay, first = torch.tensor([1e-3, 0.1, 1.0, 20.0, 100.0]).double(), torch.randn(5, generator=g).double()
    begins = torch.rand(2, 100, generator=g) < 0.05 if fresh else None
    expected = np.zeros((2, 100, 5))
    for b in range(2):
        p, q, o = np.zeros(5), np.zeros(5), np.full(5, -1e38)
        for t in range(100):
            if begins is not None and begins[b, t]:
                p, q, o = np.zeros(5), np.zeros(5), np.full(5, -1e38)
            key, value = k[b, t].numpy(), v[b, t].numpy()
            largest = np.maximum(o, first.numpy() + key)
            x, y = np.exp(o - largest), np.exp(first.numpy() + key - largest)
            expected[b, t] = (x * p + y * value) / (x * q + y)
            largest = np.maximum(o - decay.numpy(), key)
            x, y = np.exp(o - decay.numpy() - largest), np.exp(key - largest)
            p, q, o = x * p + y * value, x * q + y, largest
    out, (numerator, denominator, scale) = weighted_mean(*(x.to(dtype) for x in (k, v, decay, first)), None, begins)
    tolerance = 1e-10 if dtype is torch.float64 else 2e-4  # float32 rounds a key of 300 by 3e-5
    np.testing.assert_allclose(out.numpy(), expected, atol=tolerance, rtol=0)
    assert all(bool(part.isfinite().all()) for part in (numerator, denominator, scale))


def test_filters_beyond_the_training_length_continue_the_formula():
    """And a filter does not depend on the length that it is evaluated for."""
    filters = block_class("hyena")(config_of("hyena"), 0, 50).double().filters
    long = filters(200)
    torch.testing.assert_close(filters(50), long[..., :50], atol=1e-13, rtol=0)
    assert float(long[..., :50].detach().square().sum(-1).mean()) == pytest.approx(1, rel=0.5)
    window = filters.window(200, long)
    assert float(window[49, 0]) == pytest.approx(0.01 ** (1 / 1.5) + 0.05)
    assert float(window[49, -1]) == pytest.approx(0.01 ** (1 / 0.3) + 0.05)
    assert float(window[199, -1]) == pytest.approx(0.05)


@mixers
def test_the_state_of_a_mixer_does_not_grow(mixer):
    """Except that of Hyena, which is the history."""
    model, x = model_of(mixer), text()

    def numbers(tokens):
        cache = model.new_cache()
        model(x[:, :tokens], cache=cache)
        return sum(part.numel() for state in cache.states for part in state)

    assert (numbers(150) > numbers(50)) == (mixer == "hyena")
    if mixer != "hyena":
        assert numbers(150) == numbers(50)


# ---- positions --------------------------------------------------------------------------------------------------


def test_positions_of_a_linear_transformer_with_an_encoding():
    model, x = model_of("linear_transformer", Sinusoidal).double(), text(2)
    whole = model(x)
    torch.testing.assert_close(model(x, positions=torch.arange(TOKENS)[None]), whole, atol=1e-12, rtol=0)
    assert (model(x, positions=torch.arange(TOKENS)[None] + 3) - whole).abs().max() > 1e-3
    documents = torch.tensor([[4] * 60 + [5] * 90])
    apart = torch.cat([model(x[:, :60]), model(x[:, 60:])], 1)
    torch.testing.assert_close(model(x, documents=documents), apart, atol=1e-10, rtol=0)
    cache = model.new_cache()
    parts = [model(x[:, :70], documents=documents[:, :70], cache=cache)]
    parts += [model(x[:, t : t + 1], documents=documents[:, t : t + 1], cache=cache) for t in range(70, TOKENS)]
    torch.testing.assert_close(torch.cat(parts, 1), apart, atol=1e-10, rtol=0)
    assert MixerModel(
        config_of("linear_transformer"), choose(Learned, max_length=7), vocab_size=3, output_size=3, train_length=5
    ).max_length == 7  # fmt: skip


# ---- settings ---------------------------------------------------------------------------------------------------


@mixers
def test_settings_of_a_mixer(mixer):
    config = config_of(mixer)
    assert tuple(config.to_data()) == MIXERS[mixer].all_settings
    assert ModelConfig.from_data(config.to_data()) == config
    assert all(ENCODINGS.has(name) for name in MIXERS[mixer].encodings)


@mixers
def test_help_and_documentation_name_every_mixer(mixer):
    assert f"{mixer}" in field_docs(ModelConfig)["mixer"]
    page = (Path(__file__).parents[2] / "docs" / "mixers.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith(f"| `{mixer}` |"))
    assert row.endswith(f"| {', '.join(MIXERS[mixer].encodings)} |")


@mixers
def test_vectors_in_numbers_out(mixer):
    model = MixerModel(config_of(mixer, dropout=0.1), input_width=3, output_size=1, train_length=5)
    assert model(torch.randn(2, 7, 3)).shape == (2, 7, 1)


def test_the_first_bias_of_the_forget_gate_is_1():
    block = block_class("lstm")(config_of("lstm"), 0, 9)
    bias = (block.lstm.bias_ih_l0 + block.lstm.bias_hh_l0).view(4, 16)
    assert torch.equal(bias[1], torch.ones(16))
    assert bias[[0, 2, 3]].abs().max() < 0.5


def test_the_last_of_three_rwkv4_layers_starts_like_the_published_code():
    block, channel = block_class("rwkv4")(config_of("rwkv4", num_layers=3), 2, 9), torch.arange(16) / 16
    torch.testing.assert_close(block.mix_k, torch.nn.Parameter(channel ** (1 - 2 / 3)))
    torch.testing.assert_close(block.mix_v, torch.nn.Parameter(channel ** (1 - 2 / 3) + 0.3))
    torch.testing.assert_close(block.time_decay, torch.nn.Parameter(-5 + 8 * (torch.arange(16) / 15) ** 2.0))


def run(mixer, encoding=NoPE, positions=None, parent=None) -> Run:
    choice = choose(encoding) if isinstance(encoding, type) else encoding
    training = dataclasses.replace(TRAINING, positions=positions)
    return Run(encoding=choice, task=choose(Copy), model=ModelConfig(mixer=mixer), training=training, parent=parent)


def test_labels_of_runs():
    assert [run(mixer).label for mixer in ("rwkv4", "linear_transformer")] == ["RWKV4", "LinearTransformer"]
    randomized = run("linear_transformer", Sinusoidal, choose(Randomized, max_length=40))
    assert randomized.label == "LinearTransformer with Sinusoidal with Randomized(max_length=40)"


# ---- bad input --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ModelConfig(mixer="lstmm"), "got 'lstmm'; leave it out for attention; did you mean 'lstm'?"),
        (
            lambda: ModelConfig(mixer="lstm", num_heads=8),
            "num_heads does not apply to LSTM, got 8; its settings are: mixer",
        ),
        (lambda: ModelConfig(mixer="linear-transformer"), "did you mean 'linear_transformer'?"),
        (
            lambda: ModelConfig(mixer="retnet", d_model=30),
            "d_model must be a multiple of num_heads, got 30 and 4; change one",
        ),
        (lambda: model_of("retnet", d_model=6), "d_model / num_heads must be even for RetNet.*, got 6 / 2"),
        (
            lambda: run("linear_transformer", RoPE),
            "LinearTransformer has no attention, so its encoding must be NoPE or Sinusoidal or Learned, got RoPE; "
            "choose NoPE",
        ),
        (lambda: run("rwkv4", Sinusoidal), "RWKV4 has no attention, so its encoding must be NoPE, got Sinusoidal"),
        (lambda: run("hyena", choose(NoPE, window=4)), r"its encoding must be NoPE, got NoPE\(window=4\)"),
        (
            lambda: run("lstm", positions=choose(Randomized, max_length=40)),
            "LSTM does not use positions, got the position scheme Randomized",
        ),
        (
            lambda: run("retnet", parent=run("linear_transformer")),
            "a run must have the model of its parent, got mixer 'retnet', but LinearTransformer has "
            "'linear_transformer'",
        ),
        (
            lambda: run("retnet", parent=Run(encoding=choose(NoPE), task=choose(Copy), training=TRAINING)),
            "a run must have the model of its parent, got mixer 'retnet', but NoPE has None",
        ),
        (lambda: model_of("lstm")(text(), positions=torch.arange(TOKENS)[None]), "LSTM takes no positions"),
    ],
)
def test_bad_input(make, words):
    with pytest.raises(ConfigError, match=words) as error:
        make()
    assert "\n" not in str(error.value)
