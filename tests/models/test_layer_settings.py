"""Windows, temperatures and sinks of layers: in patterns, in the decoder, and in its cache."""

import copy
import re
from pathlib import Path

import pytest
import torch

from lengthwise.attention import KVCache
from lengthwise.cli.options import split_names
from lengthwise.config import (
    ConfigError,
    ModelConfig,
    Run,
    TrainingConfig,
    alternate,
    choice_from_data,
    choose,
    settings_of,
)
from lengthwise.config.layers import split_at_commas
from lengthwise.encodings import ENCODINGS, FIRE, T5, Llama4, LogN, NoPE, RoPE, Sinks, Sinusoidal, SSMax
from lengthwise.huggingface import use
from lengthwise.models import Decoder
from lengthwise.studies import encoding
from lengthwise.tasks import TASKS
from tests.huggingface.models import cache_in, with_cache

PATTERNS = [
    "rope(window=5)*3+nope(temperature=ssmax)",
    "t5(window=7,temperature=ssmax(bias=true))",
    "fox(window=3)+fox",
    "pope(window=6)+grapeap(window=4)",
    "selectiverope(window=3)",
    "repo(window=4,sinks=true)",
    "pathfox(window=4,temperature=ssmax)+wall(window=5,sinks=true)",
    "pope(window=4,temperature=ssmax,sinks=true)",
    "lerope(window=3,temperature=mistrallarge4)+nope",
    "bandedbias(temperature=inkling(length=4),window=6)+nope",
    "dape(window=4)",
    "cope(window=4,max_position=8)",
    "transformerxl(window=5,temperature=inkling(length=3))",
    "shaw(window=1)",
    "sinusoidal(window=3,temperature=beam(length=4))",
    "fire(temperature=logn,sinks=true,window=6)",
    "xpos(window=5)+nope(sinks=true,temperature=llama4(step=4))",
    "rerope(window=3,layer_window=6)*3+nope",
    "selfextend(layer_window=5,window=2,group=3)+dca(layer_window=7,temperature=ssmax)",
]

# All patterns are slow together; the first one has everything that the decoder does.
SOME = [PATTERNS[0], *(pytest.param(text, marks=pytest.mark.slow) for text in PATTERNS[1:])]


def model(text, layers=4, **settings):
    torch.manual_seed(0)
    config = ModelConfig(d_model=32, num_layers=layers, num_heads=4, num_kv_heads=2, d_ff=64, **settings)
    choice = ENCODINGS.parse(text) if isinstance(text, str) else text
    built = Decoder(config, choice, vocab_size=31, output_size=31, train_length=16).double().eval()
    with torch.no_grad():
        for p in built.encodings.parameters():
            if not p.any():
                p.normal_()
    return built


def tokens(rows, length):
    return torch.randint(31, (rows, length), generator=torch.Generator().manual_seed(1))


# ---- patterns as text


@pytest.mark.parametrize("text", PATTERNS)
def test_a_pattern_is_read_from_its_text_its_label_and_its_data(text):
    choice = ENCODINGS.parse(text)
    assert ENCODINGS.parse(choice.label.replace(", ", ",")) == choice
    assert choice_from_data("encoding", choice.to_data()) == choice
    with_colons = text.replace("(temperature", ":temperature").replace("(window", ":window")
    if "(" not in with_colons:
        assert ENCODINGS.parse(with_colons.replace(")", "")) == choice


def test_a_choice_has_the_settings_of_its_layer():
    choice = choose(RoPE, base=500.0, window=8, temperature=choose(SSMax, bias=True), sinks=True)
    assert choice.label == "RoPE(base=500.0, window=8, temperature=SSMax(bias=True), sinks=True)"
    assert [part.label for part in choice.parts] == ["RoPE(base=500.0)", "SSMax(bias=True)", "Sinks"]
    assert choice == ENCODINGS.parse("rope:base=500,window=8,temperature=ssmax(bias=true),sinks=true")
    assert choose(RoPE, window=None, temperature=None, sinks=False) == choose(RoPE)
    assert alternate(choose(RoPE, window=8), choose(RoPE)).label == "RoPE(window=8)+RoPE"


REFUSED = [
    ("rope(window=0)", "RoPE in a layer: window must be a whole number of at least 1, got 0"),
    ("rope(window=-3)", "window must be .*at least 1, got -3"),
    ("rope(window=1.5)", "RoPE.window must be"),
    ("rope(window=9999999999)", "window must be at most 2,147,483,648, got 9999999999"),
    ("rope(windw=5)", "RoPE has no setting.* 'windw'.*window"),
    ("rope(temperature=hot)", "RoPE.temperature must be a temperature, got 'hot'; available: LogN, SSMax, Llama4,"),
    ("rope(temperature=ssmx)", "got 'ssmx'; did you mean 'SSMax'.; available"),
    ("rope(temperature=)", "RoPE.temperature must be a temperature, got ''; available: LogN"),
    ("rope(temperature=ssmax*2)", r"RoPE.temperature must be a temperature, got 'ssmax\*2'"),
    ("rope(temperature=ssmax+logn)", r"RoPE.temperature must be a temperature, got 'ssmax\+logn'"),
    ("rope(temperature=alibi)", "RoPE.temperature must be a temperature, got ALiBi; available: LogN, SSMax, Llama4,"),
    ("rope(temperature=ssmax(window=3))", r"must be a temperature, got SSMax\(window=3\)"),
    ("logn(temperature=ssmax)", "LogN is a temperature itself, so it cannot have the temperature SSMax"),
    ("sinks(sinks=true)", "Sinks has sinks already; omit sinks=True"),
    ("rope(sinks=3)", "RoPE.sinks must be true or false, got 3"),
    ("rope(window=4,window=5)", "sets RoPE.window twice"),
    ("rope(window=4)*3+nope(temperature=ssmax", "a parenthesis is not closed; write it like rope"),
    ("rope(window=4))*3+nope", "a parenthesis is closed that was not opened; write it like rope"),
    (")rope(", "a parenthesis is closed that was not opened"),
    ("rope(window=4)3+nope", r"'rope\(window=4\)3' is no encoding; write the name, then settings in parentheses, then"),
    ("rope(window=4)*+nope", r"then \* and a number of layers, as in rope\(window=512\)\*3"),
    ("rope(window=4)*-1", "is no encoding; write the name, then settings"),
    ("rope*1.5+nope", "is no encoding; write the name, then settings"),
    ("rope(window=4)**3", "is no encoding; write the name, then settings"),
    ("rope[window=4]", "is no encoding; write the name, then settings"),
    ("rope(temperature=ssmax)(window=3)", "is no encoding; write the name, then settings"),
]


@pytest.mark.parametrize(("text", "words"), REFUSED)
def test_what_no_layer_can_have_is_refused_in_one_line(text, words):
    with pytest.raises(ConfigError, match=words) as error:
        ENCODINGS.parse(text)
    assert "\n" not in str(error.value)


def test_names_are_split_outside_of_parentheses_only():
    text = "rope(window=3,temperature=llama4(step=4)),alibi,t5:buckets=4,fire(sinks=true)"
    assert split_at_commas(text) == [
        "rope(window=3,temperature=llama4(step=4))",
        "alibi",
        "t5:buckets=4",
        "fire(sinks=true)",
    ]
    assert split_names("rope,fire:c=1,L=8,nope(window=3,sinks=true),alibi") == [
        "rope", "fire:c=1,L=8", "nope(window=3,sinks=true)", "alibi"
    ]  # fmt: skip


def test_a_class_with_a_setting_of_that_name_keeps_it():
    class Own(NoPE):
        def __init__(self, *, window: int = 3):
            super().__init__()

    choice = choose(Own, window=7)
    assert dict(choice.settings) == {"window": 7}
    assert choice.layer.window is None
    both = choose(Own, window=7, layer_window=4)
    assert dict(both.settings) == {"window": 7} and both.layer.window == 4
    assert both.label == "Own(window=7, layer_window=4)"
    data = both.to_data()
    assert (data["window"], data["layer_window"]) == (7, 4)
    with pytest.raises(ConfigError, match="RoPE has no setting 'layer_window'"):
        choose(RoPE, layer_window=4)


def test_a_task_has_no_such_settings():
    with pytest.raises(ConfigError, match="window"):
        TASKS.parse("copy:window=3")


def test_the_key_of_a_run_changes_only_with_new_settings():
    def run(choice):
        training = TrainingConfig(steps=1, train_length=8)
        return Run(encoding=choice, task=TASKS.parse("copy"), model=ModelConfig(), training=training)

    plain, other = run(choose(RoPE)), run(choose(RoPE, window=8))
    assert plain.key != other.key
    assert set(plain.encoding.to_data()) == {"is", "class", "base", "rotary_fraction", "layout"}
    assert other.label == "RoPE(window=8)"
    assert Run.from_data(other.to_data()) == other
    # The layers share a RoPE, but each learns a temperature of its own.
    assert run(choose(RoPE, temperature=choose(LogN))).model.share_encoding is True
    mixed = run(choose(T5, temperature=choose(SSMax)))
    assert (mixed.model.share_encoding, mixed.label) == (None, "T5(temperature=SSMax)")
    assert encoding("fire-s(window=8)") == (choose(FIRE, window=8), True)


# ---- models


@pytest.mark.parametrize("text", SOME)
@torch.no_grad()
def test_decoding_equals_one_pass_packed_and_padded(text):
    net, ids = model(text), tokens(2, 40)
    packed = torch.tensor([[0] * 13 + [1] * 27, [-1] * 20 + [4] * 20])
    for documents in (None, packed):
        whole, cache, parts = net(ids, documents=documents), net.new_cache(), []
        for first, last in ((0, 11), (11, 12), (12, 22), (22, 23), *((n, n + 1) for n in range(23, 40))):
            own = None if documents is None else documents[:, first:last]
            parts.append(net(ids[:, first:last], documents=own, cache=cache))
        torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-12)
    for row, part in ((0, slice(0, 13)), (0, slice(13, 40)), (1, slice(20, 40))):
        alone = net(ids[row : row + 1, part])
        torch.testing.assert_close(whole[row : row + 1, part], alone, rtol=0, atol=1e-12)


def in_window(make, size):
    """The setting that gives every layer a window, also of an encoding that has another `window`."""
    return {"layer_window" if "window" in settings_of(make) else "window": size}


@pytest.mark.parametrize("make", [e for e in ENCODINGS if not e.depends_on_length()], ids=lambda make: make.__name__)
@torch.no_grad()
def test_every_encoding_decodes_in_a_window(make):
    """What an encoding reads of tokens before the window, such as a convolution, is stored too."""
    settings = {"max_length": 64} if make.__name__ == "Learned" else {}
    net, ids = model(choose(make, **in_window(make, 3), **settings), layers=2), tokens(1, 14)
    assert net.windows == [3, 3]
    for p in net.encodings.parameters():
        torch.nn.init.normal_(p)
    whole, cache = net(ids), net.new_cache()
    parts = [net(ids[:, first:last], cache=cache) for first, last in ((0, 6), *((n, n + 1) for n in range(6, 14)))]
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [make for make in ENCODINGS if not make.depends_on_length()], ids=lambda make: make.__name__
)
@torch.no_grad()
def test_every_encoding_decodes_exactly_with_all_of_them(make):
    """Also if the documents of a row alternate, so that fewer of the last keys are of a token's own."""
    settings = {**in_window(make, 4), "sinks": make is not Sinks and make.has_softmax}
    temperature = None if make.is_temperature else choose(SSMax)
    net, ids = model(choose(make, **settings, temperature=temperature), layers=3), tokens(2, 30)
    padded = torch.tensor([[0] * 13 + [1] * 17, [-1] * 20 + [4] * 10])
    alternating = torch.tensor([[0, 1] * 15, [2, 2, 3] * 10])
    for documents in (None, padded, alternating):
        whole, cache, parts = net(ids, documents=documents), net.new_cache(), []
        for first, last in ((0, 9), (9, 10), (10, 16), *((n, n + 1) for n in range(16, 30))):
            own = None if documents is None else documents[:, first:last]
            parts.append(net(ids[:, first:last], documents=own, cache=cache))
        torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "name", ["rope", *(pytest.param(name, marks=pytest.mark.slow) for name in ("alibi", "fox", "shaw"))]
)
@torch.no_grad()
def test_a_window_of_all_tokens_is_no_window_bit_for_bit(name):
    ids = tokens(2, 16)
    for size in (16, 1000):
        windowed, plain = model(f"{name}(window={size})*3+nope"), model(f"{name}*3+nope")
        assert torch.equal(windowed(ids), plain(ids))
        caches = windowed.new_cache(), plain.new_cache()
        for n in range(16):
            step = [net(ids[:, n : n + 1], cache=cache) for net, cache in zip((windowed, plain), caches, strict=True)]
            assert torch.equal(*step)


WINDOWED = [
    ("rope(window=3)", 8),
    ("rope(window=3)*3+nope", 19),
    ("rerope(window=3)", 19),
    ("rerope(layer_window=3)", 8),
]
WINDOWED += [("selfextend(layer_window=3)", 8), ("dca(layer_window=3,window=2)", 8)]


@torch.no_grad()
def test_a_window_hides_what_lies_further_back():
    """Four layers with a window of 3 see 8 tokens back, and no more; a layer without one sees everything.

    A window of ReRoPE, Self-Extend and DCA hides nothing: it is where distances change.
    """
    ids = tokens(1, 20)
    changed = torch.cat([(ids[:, :1] + 1) % 31, ids[:, 1:]], 1)
    for text, reach in WINDOWED:
        net = model(text)
        differs = (net(ids) != net(changed)).any(-1)[0].nonzero().flatten().tolist()
        assert max(differs) == reach


@torch.no_grad()
def test_the_cache_of_windowed_layers_is_bounded():
    net, other = model("rope(window=8)*3+nope"), model("nope*3+nope")
    sizes = {}
    for length in (60, 120):
        cache = net.new_cache()
        net(tokens(1, 40), cache=cache)  # a prompt that is longer than the window
        for n in range(40, length):
            net(tokens(1, length)[:, n : n + 1], cache=cache)
        in_windows = [cache.keys[layer].shape[2] for layer in range(3)]
        assert max(in_windows) <= 4 * 8
        sizes[length] = sum(x.nbytes for x in (*cache.keys[:3], *cache.values[:3]))
        assert cache.keys[3].shape[2] >= length
    assert sizes[60] == sizes[120]
    full = other.new_cache()
    other(tokens(1, 120), cache=full)
    assert sum(x.nbytes for x in full.keys) > 2 * sum(x.nbytes for x in cache.keys)


@torch.no_grad()
def test_a_failed_step_leaves_the_cache_as_it_was(monkeypatch):
    net, ids = model("fox(window=4)*3+nope"), tokens(1, 30)
    whole, cache = net(ids), net.new_cache()
    net(ids[:, :10], cache=cache)
    original = KVCache.update
    for n in range(10, 20):
        monkeypatch.setattr(
            KVCache, "update", lambda self, layer, *x: original(self, layer, *x) if layer < 3 else 1 / 0
        )
        with pytest.raises(ZeroDivisionError):
            net(ids[:, n : n + 3], cache=cache)
        monkeypatch.setattr(KVCache, "update", original)
        step = net(ids[:, n : n + 1], cache=cache)
        torch.testing.assert_close(step, whole[:, n : n + 1], rtol=0, atol=1e-12)


@torch.no_grad()
def test_rows_of_a_windowed_cache_can_be_selected():
    net, ids = model("rope(window=4)*3+nope"), tokens(2, 20)
    whole, cache = net(ids), net.new_cache()
    net(ids[:, :15], cache=cache)
    cache.select_rows(torch.tensor([1]))
    torch.testing.assert_close(net(ids[1:, 15:], cache=cache), whole[1:, 15:], rtol=0, atol=1e-12)


def test_parts_are_shared_as_in_the_source_of_each():
    net = model("t5(temperature=ssmax,sinks=true)", layers=3)
    names = [type(module).__name__ for module in net.encodings]
    assert names == ["T5", "SSMax", "Sinks", "SSMax", "Sinks", "SSMax", "Sinks"]
    assert net.module_indices == [(0, 1, 2), (0, 3, 4), (0, 5, 6)]
    assert net.encoding_of_layer == [0, 0, 0]
    shared = model("t5(temperature=ssmax,sinks=true)", layers=3, share_encoding=True)
    assert len(shared.encodings) == 3
    # Windows differ, the module does not.
    assert len(model("t5(window=3)+t5").encodings) == 1
    net(tokens(1, 9)).square().mean().backward()
    assert all(p.grad is not None and p.grad.any() for p in net.encodings.parameters())


@torch.no_grad()
def test_a_copy_has_encodings_of_its_own():
    net, ids = model("rope(temperature=ssmax)"), tokens(1, 9)
    before, other = net(ids), copy.deepcopy(net)
    for p in other.encodings.parameters():
        p.mul_(2)
    assert not torch.equal(other(ids), before)
    assert torch.equal(net(ids), before)
    other.load_state_dict(net.state_dict())
    assert torch.equal(other(ids), before)


def test_embeddings_take_a_temperature_too():
    choice = choose(Sinusoidal, temperature=choose(Llama4, step=4))
    assert not torch.equal(model(choice)(tokens(1, 9)), model("sinusoidal")(tokens(1, 9)))


def test_models_of_transformers_keep_their_windows():
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32, vocab_size=31
    )
    llama = transformers.LlamaForCausalLM(config).eval()
    with pytest.raises(ConfigError, match=r"window=4\): the windows of a model of transformers are those of its"):
        use(llama, "rope(window=4)+nope")
    use(llama, "rope:layout=half,temperature=ssmax,sinks=true")
    ids = tokens(1, 12)
    with torch.no_grad():
        whole = llama(ids).logits
        prompt = llama(ids[:, :9], use_cache=True)
        rest = llama(ids[:, 9:], **with_cache(cache_in(prompt))).logits
    torch.testing.assert_close(torch.cat([prompt.logits, rest], 1), whole, rtol=1e-4, atol=1e-4)
    names = [type(module).__name__ for module in llama.model.position_encodings]
    assert names == ["RoPE", "SSMax", "Sinks", "SSMax", "Sinks"]


def test_a_convolution_that_a_sliding_cache_would_cut_is_refused():
    transformers = pytest.importorskip("transformers")
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 32,
        "vocab_size": 31,
    }
    mistral = transformers.MistralForCausalLM(transformers.MistralConfig(**sizes, sliding_window=4)).eval()
    use(mistral, "selectiverope")
    with (
        torch.no_grad(),
        pytest.raises(ConfigError, match="SelectiveRoPE reads tokens before those that a layer with a"),
    ):
        prompt = mistral(tokens(1, 9), use_cache=True)
        mistral(tokens(1, 1), **with_cache(cache_in(prompt)))


def test_a_module_of_sinks_and_no_other():
    assert [type(m) for m in model("sinks", layers=2).encodings] == [Sinks, Sinks]


def test_the_patterns_of_the_page_can_be_read():
    page = (Path(__file__).parents[2] / "docs" / "encodings" / "layers.md").read_text(encoding="utf-8")
    patterns = re.findall(r"^\| [^|`]+ \| `([^`]+)` \|", page.partition("## Patterns of models")[2], flags=re.M)
    assert len(patterns) == 10
    for text in patterns:
        assert any(layer.layer.non_defaults for layer in ENCODINGS.parse(text).layers) or "nope" in text
