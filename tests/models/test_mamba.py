"""The Mamba: what it computes, its gradient, and that a text may be read in any pieces."""

import json
from pathlib import Path

import pytest
import torch

from lengthwise.config import ConfigError, ModelConfig, choose
from lengthwise.encodings import NoPE
from lengthwise.models import Decoder, MixerModel, statistics
from lengthwise.models.conversion import mamba_from_transformers, mamba_to_transformers
from lengthwise.models.mixers import scan
from lengthwise.models.mixers.mamba import Mamba
from lengthwise.models.mixers.scan import selective_scan
from lengthwise.training.optimizer import decayed

CASES = json.loads((Path(__file__).parent.parent / "vectors" / "mamba.json").read_text(encoding="utf-8"))["cases"]
SMALL = ModelConfig.mamba(d_model=24, num_layers=2, state_size=5)


def model_of(config=SMALL, **sizes) -> MixerModel:
    torch.manual_seed(0)
    model = MixerModel(config, **{"vocab_size": 11, "output_size": 11, "train_length": 9, **sizes})
    with torch.no_grad():  # far from the first values, which are alike in all channels
        for p in model.parameters():
            p.add_(0.05 * torch.randn_like(p))
    return model.eval()


def text(rows=3, tokens=17) -> torch.Tensor:
    return torch.randint(0, 11, (rows, tokens), generator=torch.Generator().manual_seed(1))


# ---- what a block computes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_block_equals_its_vectors(case):
    block = Mamba(ModelConfig.mamba(**case["settings"]), 0, 9).double()
    given = {name: torch.tensor(value, dtype=torch.float64) for name, value in case["parameters"].items()}
    block.load_state_dict(given)
    documents = torch.tensor([case["documents"]]) if "documents" in case else None
    x = torch.tensor([case["x"]], dtype=torch.float64)
    out = (block(x, documents=documents)[0] - x)[0]
    expected = torch.tensor(case["expected"], dtype=torch.float64)
    torch.testing.assert_close(out, expected, atol=case["atol"], rtol=case["rtol"])


@pytest.mark.parametrize("limits", [(1 << 16, 1 << 24), (1, 1), (17, 1 << 24)], ids=["all rows", "one row", "two rows"])
@pytest.mark.parametrize("fresh", [False, True])
def test_the_gradient_of_the_scan(limits, fresh, monkeypatch):
    monkeypatch.setattr(scan, "BLOCK_STATE", limits[0])
    monkeypatch.setattr(scan, "BLOCK_HISTORY", limits[1])
    g = torch.Generator().manual_seed(0)
    b, t, e, n = 3, 5, 4, 2
    shapes = [(b, t, e), (b, t, e), (n, e), (b, t, n), (b, t, n), (b, n, e)]
    given = [torch.randn(*shape, dtype=torch.float64, generator=g).requires_grad_() for shape in shapes]
    keep = torch.tensor([[1, 1, 0, 1, 1], [0, 1, 1, 1, 1], [1, 0, 0, 1, 0]], dtype=torch.float64) if fresh else None
    assert torch.autograd.gradcheck(selective_scan, (*given, keep))


def test_the_gradient_of_a_model():
    model, x = model_of(ModelConfig.mamba(d_model=4, num_layers=2, state_size=2)).double(), text(2, 6)
    documents = torch.tensor([[-1, 0, 0, 0, 0, 0], [1, 1, 1, 2, 2, 3]])
    names = [name for name, _ in model.named_parameters()]

    def run(*values):
        return torch.func.functional_call(model, dict(zip(names, values, strict=True)), (x,), {"documents": documents})

    assert torch.autograd.gradcheck(run, tuple(p.detach().requires_grad_() for p in model.parameters()), fast_mode=True)


# ---- the same in pieces -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [[1] * 17, [9, 8], [2, 1, 3, 1, 10], [16, 1]], ids=str)
@pytest.mark.parametrize(
    "documents", [None, [[3] * 4 + [1] * 6 + [2] * 7], [[-1] * n + [0] * (17 - n) for n in (0, 2, 9)]]
)
def test_a_text_in_pieces(sizes, documents):
    model, x = model_of().double(), text()
    ids = None if documents is None else torch.tensor(documents)
    cache, parts, start = model.new_cache(), [], 0
    for size in sizes:
        cut = slice(start, start + size)
        parts.append(model(x[:, cut], documents=None if ids is None else ids[:, cut], cache=cache))
        start += size
    torch.testing.assert_close(torch.cat(parts, 1), model(x, documents=ids), atol=1e-12, rtol=0)
    assert cache.length == 17


def test_documents_do_not_see_each_other():
    model, x = model_of().double(), text()
    whole = model(x, documents=torch.tensor([[7] * 2 + [4] * 6 + [9] * 9]))
    apart = torch.cat([model(x[:, :2]), model(x[:, 2:8]), model(x[:, 8:])], 1)
    torch.testing.assert_close(whole, apart, atol=1e-12, rtol=0)
    assert (model(x) - whole)[:, 2:].abs().max() > 1e-3


def test_rows_of_a_batch_are_alone():
    model, x = model_of().double(), text(5)
    torch.testing.assert_close(model(x), torch.cat([model(row[None]) for row in x]), atol=1e-12, rtol=0)


@pytest.mark.parametrize("padded", [False, True])
def test_generation_with_and_without_cache(padded):
    model, x = model_of().double(), text()
    documents = torch.tensor([[-1] * n + [0] * (17 - n) for n in (0, 3, 12)]) if padded else None
    made = model.generate(x, 8, documents=documents)
    assert torch.equal(made, model.generate(x, 8, documents=documents, cached=False))
    if padded:
        assert torch.equal(made[2:], model.generate(x[2:, 12:], 8))


def test_a_forward_that_fails_leaves_the_cache_as_it_was():
    model, x = model_of(), text()
    cache = model.new_cache()
    model(x[:, :5], cache=cache)
    handle = model.blocks[1].register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model(x[:, 5:9], cache=cache)
    handle.remove()
    assert cache.length == 5
    torch.testing.assert_close(model(x[:, 5:], cache=cache), model(x)[:, 5:])


# ---- training ---------------------------------------------------------------------------------------------------


def test_vectors_in_numbers_out():
    model = model_of(vocab_size=None, input_width=3, output_size=1)
    assert model(torch.randn(2, 7, 3)).shape == (2, 7, 1)
    assert model.input_projection.bias is None


def test_parameters_of_the_published_comparison():
    """Hidden 256, state 16, 32 layers, on vectors of 16 numbers."""
    with torch.device("meta"):
        config = ModelConfig.mamba(d_model=256, num_layers=32)
        model = MixerModel(config, input_width=16, output_size=1, train_length=50)
    block = 256 + 256 * 1024 + 512 * 4 + 512 + 512 * (16 + 32) + 16 * 512 + 512 + 512 * 16 + 512 + 512 * 256
    assert sum(p.numel() for p in model.parameters()) == 32 * block + 16 * 256 + 256 + 256


def test_first_values_as_published():
    torch.manual_seed(0)
    config = ModelConfig.mamba(d_model=64, num_layers=4)
    model = MixerModel(config, vocab_size=9, output_size=9, train_length=9)
    for block in model.blocks:
        steps = torch.nn.functional.softplus(block.dt_proj.bias)
        assert 1e-3 <= steps.min() < 2e-3 < 0.05 < steps.max() <= 0.1 + 1e-6
        assert torch.equal(block.A_log, torch.arange(1.0, 17).log().expand(128, 16))
        assert torch.equal(block.D, torch.ones(128))
        assert float(block.out_proj.weight.detach().std()) == pytest.approx((3 * 128 * 4) ** -0.5, rel=0.05)


def test_what_is_decayed():
    _, spared = decayed(model_of())
    assert {name.removeprefix("blocks.0.") for name in spared if "blocks.0" in name} == {
        "norm.weight", "conv1d.bias", "dt_proj.bias", "A_log", "D"
    }  # fmt: skip


def test_half_precision_keeps_its_state_in_float32():
    model, x = model_of(), text()
    cache = model.new_cache()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        near = model(x, cache=cache)
    assert {state.dtype for state, _ in cache.states} == {torch.float32}
    torch.testing.assert_close(near.float(), model(x), atol=0.1, rtol=0.1)


# ---- other libraries --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def theirs():
    why = "transformers is compared with, and is not installed"
    transformers = pytest.importorskip("transformers", reason=why)
    torch.manual_seed(0)
    config = transformers.MambaConfig(
        vocab_size=11, hidden_size=24, state_size=5, num_hidden_layers=2, tie_word_embeddings=False
    )
    model = transformers.MambaForCausalLM(config).double()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.05 * torch.randn_like(p))
    return model


# They compute some of it in float32, whatever the weights are.
FLOAT32 = {"atol": 3e-6, "rtol": 3e-6}


def test_equal_to_transformers_in_training(theirs):
    ours, x = model_of().double(), text()
    ours.load_state_dict(mamba_from_transformers(theirs.state_dict()))
    a, b = ours(x), theirs.train()(x).logits.double()
    torch.testing.assert_close(a, b, **FLOAT32)
    weights = torch.randn(a.shape, dtype=a.dtype, generator=torch.Generator().manual_seed(2))
    for logits in (a, b):
        (logits * weights).sum().backward()
    expected = mamba_from_transformers({name: p.grad for name, p in theirs.named_parameters()})
    for name, p in ours.named_parameters():
        largest = float(expected[name].abs().max())
        torch.testing.assert_close(p.grad / largest, expected[name] / largest, **FLOAT32)


@torch.no_grad()
def test_equal_to_transformers_in_cached_steps(theirs):
    ours, x = model_of().double(), text()
    ours.load_state_dict(mamba_from_transformers(theirs.state_dict()))
    said, cache = theirs.eval()(x[:, :9], use_cache=True), ours.new_cache()
    torch.testing.assert_close(ours(x[:, :9], cache=cache), said.logits.double(), **FLOAT32)
    for t in range(9, 17):
        said = theirs(x[:, t : t + 1], cache_params=said.cache_params, use_cache=True)
        torch.testing.assert_close(ours(x[:, t : t + 1], cache=cache), said.logits.double(), **FLOAT32)


def test_weights_of_transformers_both_ways(theirs):
    given = theirs.state_dict()
    back = mamba_to_transformers(mamba_from_transformers(given))
    assert back.keys() == given.keys()
    assert all(torch.equal(back[name], value) for name, value in given.items())


def test_names_of_the_weights_without_the_library():
    names = {
        "backbone.embeddings.weight": "token_embedding.weight",
        "backbone.layers.10.norm.weight": "blocks.10.norm.weight",
        "backbone.layers.0.mixer.A_log": "blocks.0.A_log",
        "backbone.norm_f.weight": "norm.weight",
        "backbone.layers.0.mixer.conv1d.bias": "blocks.0.conv1d.bias",
        "lm_head.weight": "lm_head.weight",
    }
    given = {name: torch.tensor(n) for n, name in enumerate(names)}
    made = mamba_from_transformers(given)
    assert {name: int(made[ours]) for name, ours in names.items()} == {name: n for n, name in enumerate(names)}
    assert mamba_to_transformers(made) == given
    with pytest.raises(ConfigError, match=r"no counterpart of 'model\.embed_tokens\.weight'"):
        mamba_from_transformers({"model.embed_tokens.weight": torch.zeros(1)})


# ---- what cannot be ---------------------------------------------------------------------------------------------


def _went_on(*second, first=None):
    model, cache = model_of(), None
    cache = model.new_cache()
    model(text(2, 3), documents=first, cache=cache)
    model(text(*second), cache=cache)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: model_of(ModelConfig()), "config must have a mixer, one of mamba"),
        (lambda: Decoder(SMALL, choose(NoPE), vocab_size=3, output_size=3, train_length=4), "got Mamba's"),
        (lambda: model_of(vocab_size=3, input_width=2), "either vocab_size or input_width"),
        (lambda: model_of()(text(), positions=torch.arange(17)[None]), "takes no positions"),
        (lambda: model_of()(text()[:, :0]), "at least one token"),
        (
            lambda: model_of(vocab_size=None, input_width=3, output_size=1)(torch.zeros(1, 2, 4)),
            r"vectors \[b, t, 3\]",
        ),
        (lambda: model_of()(text() + 9), "token IDs must be"),
        (lambda: model_of()(text(1, 5), documents=torch.tensor([[1, 2, 2, 1, 1]])), "in row 0 a document continues"),
        (lambda: _went_on(3, 2), "must have the 2 rows .*, got 3"),
        (lambda: _went_on(2, 2, first=torch.zeros(1, 3, dtype=torch.long)), "documents must be passed at every step"),
        (lambda: model_of()(text(), cache=model_of(ModelConfig.mamba(num_layers=3)).new_cache()), "got a cache for 3"),
        (lambda: statistics(model_of(), text()), "got Mamba, which has no attention"),
    ],
)
def test_bad_input(make, words):
    with pytest.raises(ConfigError, match=words) as error:
        make()
    assert "\n" not in str(error.value)
