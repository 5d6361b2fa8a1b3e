"""All mixers: what they compute, and that a text may be read in any pieces, beside any padding and other documents."""

import json
from pathlib import Path

import pytest
import torch

from lengthwise.config import ConfigError, ModelConfig, choose
from lengthwise.config.mixers import MIXERS
from lengthwise.encodings import ENCODINGS, NoPE
from lengthwise.models import MixerModel
from lengthwise.models.mixers import block_class

CASES = json.loads((Path(__file__).parent.parent / "vectors" / "mixers.json").read_text(encoding="utf-8"))["cases"]
TOKENS = 150  # more than two chunks of every mixer that has chunks
DOCUMENTS = {
    "one": None,
    "packed": [[3] * 4 + [1] * 70 + [2] * 76, [0] * 150, [5] * 149 + [6]],
    "padded": [[-1] * n + [0] * (TOKENS - n) for n in (0, 2, 99)],
}
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
    assert {name.partition(".")[0] for name in missing} <= {"norm", "mlp_norm", "up", "down"}
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


# ---- settings ---------------------------------------------------------------------------------------------------


@mixers
def test_settings_of_a_mixer(mixer):
    config = config_of(mixer)
    assert tuple(config.to_data()) == MIXERS[mixer].all_settings
    assert ModelConfig.from_data(config.to_data()) == config
    assert all(ENCODINGS.has(name) for name in MIXERS[mixer].encodings)


@mixers
def test_vectors_in_numbers_out(mixer):
    model = MixerModel(config_of(mixer, dropout=0.1), input_width=3, output_size=1, train_length=5)
    assert model(torch.randn(2, 7, 3)).shape == (2, 7, 1)


def test_the_first_bias_of_the_forget_gate_is_1():
    block = block_class("lstm")(config_of("lstm"), 0, 9)
    bias = (block.lstm.bias_ih_l0 + block.lstm.bias_hh_l0).view(4, 16)
    assert torch.equal(bias[1], torch.ones(16))
    assert bias[[0, 2, 3]].abs().max() < 0.5


# ---- bad input --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ModelConfig(mixer="lstmm"), "got 'lstmm'; did you mean 'lstm'?"),
        (
            lambda: ModelConfig(mixer="lstm", num_heads=8),
            "num_heads does not apply to LSTM, got 8; its settings are: mixer",
        ),
        (lambda: model_of("lstm")(text(), positions=torch.arange(TOKENS)[None]), "LSTM takes no positions"),
    ],
)
def test_bad_input(make, words):
    with pytest.raises(ConfigError, match=words) as error:
        make()
    assert "\n" not in str(error.value)
