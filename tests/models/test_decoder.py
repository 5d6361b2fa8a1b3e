"""The decoder: shapes, sharing, caching, dropout, and what it refuses."""

import inspect
from dataclasses import replace

import pytest
import torch

from lengthwise.attention import KVCache, attend
from lengthwise.config import Choice, ConfigError, ModelConfig, alternate, choose
from lengthwise.encodings import FIRE, T5, ALiBi, Learned, NoPE, RoPE, RotaryEncoding, Sinusoidal
from lengthwise.encodings.base import stepped_length
from lengthwise.forms import KeyBias
from lengthwise.models import Decoder

SMALL = {"d_model": 32, "num_layers": 2, "num_heads": 4}
GPT, LLAMA = ModelConfig.gpt(**SMALL), ModelConfig.llama(**SMALL, num_kv_heads=2)


def decoder(config=GPT, encoding=NoPE, **settings) -> Decoder:
    torch.manual_seed(0)
    choice = encoding if isinstance(encoding, Choice) else choose(encoding)
    return Decoder(config, choice, **{"vocab_size": 11, "output_size": 11, "train_length": 8, **settings}).eval()


class Stretching(RotaryEncoding):
    """Rotates by less and less as the sequence grows beyond 8 tokens."""

    def __init__(self, *, head_dim: int, scale_step: int = 1):
        super().__init__()
        self.pairs, self.scale_step = head_dim // 2, scale_step

    def effective_length(self, length):
        return stepped_length(length, 8, self.scale_step)

    def frequencies(self, length):
        return torch.linspace(1, 0.1, self.pairs, dtype=torch.float64) / (self.effective_length(length)[..., None] / 8)


def test_parameters_are_counted_as_written_down():
    c, v = 32, 11
    per_layer = 4 * c * c + 4 * c + 2 * c * 4 * c + 5 * c + 4 * c  # attention, its biases, MLP, its biases, two norms
    assert sum(p.numel() for p in decoder().parameters()) == 2 * v * c + 2 * per_layer + 2 * c
    f = LLAMA.d_ff
    per_layer = 2 * c * c + 2 * c * 16 + 3 * c * f + 2 * c
    assert sum(p.numel() for p in decoder(LLAMA).parameters()) == 2 * v * c + 2 * per_layer + c


def test_queries_and_keys_are_normalized_before_the_encoding():
    """By hand: u / sqrt(mean(u^2) + 1e-6) times the layer's weights, for each head; v is unchanged."""
    config = ModelConfig(**SMALL, num_kv_heads=2, qk_norm=True)
    model, plain = decoder(config, RoPE), decoder(replace(config, qk_norm=False), RoPE)
    block = model.blocks[0]
    torch.nn.init.uniform_(block.q_norm.weight, 0.5, 2)
    torch.nn.init.uniform_(block.k_norm.weight, 0.5, 2)
    x = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(0))
    expected = plain.blocks[0].qkv_heads(x)
    q, k, v = block.qkv_heads(x)
    for found, part, norm in ((q, expected[0], block.q_norm), (k, expected[1], block.k_norm)):
        by_hand = part / (part.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight
        torch.testing.assert_close(found, by_hand)
    assert torch.equal(v, expected[2])
    tokens = torch.randint(11, (2, 4), generator=torch.Generator().manual_seed(0))
    assert torch.equal(model.generate(tokens, 5), model.generate(tokens, 5, cached=False))


@pytest.mark.parametrize("config", [GPT, LLAMA])
def test_without_an_encoding_order_shows_only_through_the_mask(config):
    """The last logits of NoPE with one layer do not depend on the order of what came before."""
    model = decoder(ModelConfig(**{**config.to_data(), "num_layers": 1})).double()
    x = torch.tensor([[1, 2, 3, 4, 5]])
    torch.testing.assert_close(model(x)[:, -1], model(x[:, [3, 1, 0, 2, 4]])[:, -1])
    assert not torch.allclose(model(x)[:, -2], model(x[:, [3, 1, 0, 2, 4]])[:, -2])


@pytest.mark.parametrize(
    ("encoding", "share", "modules"), [(FIRE, None, 2), (FIRE, True, 1), (T5, None, 1), (T5, False, 2)]
)
def test_layers_share_an_encoding_as_told(encoding, share, modules):
    model = decoder(ModelConfig(**SMALL, share_encoding=share), encoding)
    assert len(model.encodings) == modules
    one = sum(p.numel() for p in encoding(num_heads=4).parameters())
    without = sum(p.numel() for p in decoder().parameters())
    assert sum(p.numel() for p in model.parameters()) == without + modules * one


def test_an_absolute_encoding_is_added_once_however_many_layers():
    model = decoder(ModelConfig(**SMALL, share_encoding=False), Learned)
    assert len(model.encodings) == 1


def test_an_effect_is_computed_once_per_module(monkeypatch):
    calls = []
    monkeypatch.setattr(T5, "modifiers", lambda self, span, real=T5.modifiers: calls.append(1) or real(self, span))
    decoder(encoding=T5)(torch.zeros(1, 4, dtype=torch.long))
    assert len(calls) == 1


@pytest.mark.parametrize(("scale_step", "restarts"), [(1, 6), (4, 2), (100, 1)])
def test_a_deep_cache_is_made_anew_when_the_scale_changes(scale_step, restarts, monkeypatch):
    model = decoder(encoding=choose(Stretching, scale_step=scale_step)).double()
    x, cache = torch.randint(0, 11, (2, 14)), KVCache(2)
    for t in range(14):
        step = model(x[:, t : t + 1], cache=cache)[:, 0]
        torch.testing.assert_close(step, model(x[:, : t + 1])[:, -1])
    assert cache.restarts == restarts  # at 9 tokens, and whenever the next multiple of the step is passed
    if scale_step > 1:  # no work where nothing changes
        assert cache.restarts < 14 - 8
    monkeypatch.setattr(Decoder, "_scale_changed", lambda self, cache, past: False)
    cache = KVCache(2)
    steps = [model(x[:, t : t + 1], cache=cache)[:, 0] for t in range(14)]
    assert not torch.allclose(steps[-1], model(x)[:, -1])  # what it is for


def test_a_cache_goes_by_the_length_of_each_document():
    """Left padding or a longer row do not change what a shorter one gets, with a cache or without."""
    model = decoder(encoding=Stretching).double()
    x = torch.randint(0, 11, (1, 7))
    padded = torch.cat([torch.zeros(1, 9, dtype=torch.long), x], 1)
    documents = torch.tensor([[-1] * 9 + [0] * 7])
    alone = model(x)
    torch.testing.assert_close(model(padded, documents=documents)[:, 9:], alone)
    cache = KVCache(2)
    first = model(padded[:, :12], documents=documents[:, :12], cache=cache)[:, 9:]
    steps = [model(padded[:, t : t + 1], documents=documents[:, t : t + 1], cache=cache) for t in range(12, 16)]
    torch.testing.assert_close(first, model(x[:, :3]))
    torch.testing.assert_close(torch.cat(steps, 1), alone[:, 3:])
    assert cache.restarts == 0


def test_a_pattern_of_encodings_repeats_over_the_layers():
    rope, other, nope = choose(RoPE), choose(RoPE, base=500.0), choose(NoPE)
    config = ModelConfig(**{**SMALL, "num_layers": 7})
    model = decoder(config, alternate(rope, other, nope)).double()
    assert model.encoding_of_layer == [0, 1, 2, 0, 1, 2, 0]
    seen = []
    for block in model.blocks:
        block.register_forward_pre_hook(lambda m, args: seen.append((m, args[0])))
        block.register_forward_hook(lambda m, args, out: seen.append((m, out)))
    with torch.no_grad():
        model(torch.randint(0, 11, (2, 9)))
    for layer, block in enumerate(model.blocks):
        x, out = (value for m, value in seen if m is block)
        encoding = (rope, other, nope)[layer % 3].build(head_dim=8).double()
        attend_alone = lambda n, q, k, v, scale, e=encoding: attend(q, k, v, e, scale=scale)  # noqa: E731
        torch.testing.assert_close(block.forward(x, attend_alone), out)
    fire = decoder(ModelConfig(**{**SMALL, "num_layers": 4}), alternate(choose(FIRE), choose(T5)))
    assert fire.encoding_of_layer == [0, 1, 2, 1]  # T5 is shared by layers, FIRE has one module for each


def test_absolute_encodings_do_not_alternate():
    with pytest.raises(ConfigError, match="Learned changes embeddings before the first layer"):
        alternate(choose(RoPE), choose(Learned))


@pytest.mark.parametrize("documents", [None, torch.tensor([[3, 3, 1, 3, 1, 3], [0, 0, 0, 0, 0, 0]])])
def test_positions_left_out_go_on_from_the_cache_row_by_row(documents):
    model = decoder(encoding=RoPE).double()
    x, early = torch.randint(0, 11, (2, 6)), torch.tensor([[0, 4, 9], [0, 1, 2]])
    # In the first row document 3 has come to position 4, document 1 to 9.
    late = torch.tensor([[10, 11, 12] if documents is None else [5, 10, 6], [3, 4, 5]])
    cut = (lambda a, b: None) if documents is None else (lambda a, b: documents[:, a:b])
    cache = KVCache(2)
    parts = [model(x[:, :3], positions=early, documents=cut(0, 3), cache=cache)]
    parts += [model(x[:, n : n + size], documents=cut(n, n + size), cache=cache) for n, size in ((3, 1), (4, 2))]
    whole = model(x, positions=torch.cat([early, late], 1), documents=documents)
    torch.testing.assert_close(torch.cat(parts, 1), whole)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"positions": torch.arange(-2, 3)[None]}, "positions must be at least 0, got -2"),
        ({"positions": torch.zeros(1, 4, dtype=torch.long)}, "one per token"),
        ({"positions": torch.zeros(5, dtype=torch.long)}, "one per token"),
        ({"positions": torch.zeros(1, 5)}, "whole numbers"),
        ({"documents": torch.zeros(3, 5, dtype=torch.long)}, "one per token"),
    ],
)
def test_positions_that_cannot_be(given, words):
    model = decoder(encoding=ALiBi)
    with pytest.raises(ConfigError, match=words):
        inspect.unwrap(Decoder.forward)(model, torch.zeros(2, 5, dtype=torch.long), **given)


@pytest.mark.parametrize("encoding", [NoPE, Sinusoidal, RoPE, ALiBi, FIRE])
@pytest.mark.parametrize("cached", [True, False])
def test_generate_takes_the_most_likely_token(encoding, cached):
    model = decoder(encoding=encoding).double()
    x = torch.randint(0, 11, (2, 5))
    made = model.generate(x, 6, cached=cached)
    for n in range(6):
        whole = torch.cat([x, made[:, :n]], 1)
        assert torch.equal(model(whole)[:, -1].argmax(-1), made[:, n])


def test_generate_stops_and_samples():
    model = decoder().double()
    x = torch.randint(0, 11, (3, 4))
    first = model.generate(x, 1)[0, 0].item()
    ended = model.generate(x[:1], 9, stop=first)
    assert ended.tolist() == [[first]]
    draws = [model.generate(x, 5, temperature=1.0, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_vectors_in_numbers_out():
    torch.manual_seed(0)
    model = Decoder(LLAMA, choose(RoPE), input_width=3, output_size=1, train_length=8)
    assert model(torch.randn(2, 7, 3)).shape == (2, 7, 1)


def test_dropout_acts_in_training_only():
    model = decoder(ModelConfig(**SMALL, dropout=0.5))
    x = torch.randint(0, 11, (2, 5))
    assert torch.equal(model(x), model(x))
    model.train()
    assert not torch.equal(model(x), model(x))


def test_dropout_takes_position_and_token_together():
    """It acts on what the first layer reads: half of the numbers are 0, positions and all, and the rest are doubled."""
    model = decoder(ModelConfig(**SMALL, dropout=0.5), Learned).train()
    seen = []
    model.blocks[0].register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    x = torch.randint(0, 11, (4, 8))
    model(x)
    kept = seen[0] != 0
    assert 0.4 < kept.float().mean() < 0.6
    whole = model.encodings[0].embed(model.embed_inputs(x), torch.arange(8)[None])
    torch.testing.assert_close(seen[0][kept], 2 * whole[kept])


def test_tied_embeddings_and_t5_scaling():
    tied = decoder(ModelConfig(**SMALL, tie_embeddings=True))
    assert tied.lm_head.weight is tied.token_embedding.weight
    assert torch.isfinite(tied(torch.randint(0, 11, (2, 5)))).all()
    x = torch.randint(0, 11, (2, 5))
    for tie in (
        False,
        True,
    ):  # the scales move: into q's weights, and from where embeddings are read to where they write
        like = {**SMALL, "tie_embeddings": tie}
        plain, t5 = decoder(ModelConfig(**like)), decoder(ModelConfig(**like, t5_scaling=True))
        for block in t5.blocks:
            for last in (block.out, block.down):
                last.weight.data.mul_((2 * len(t5.blocks)) ** -0.5)
        torch.testing.assert_close(t5(x), plain(x))


def test_the_published_shape_has_the_published_number_of_parameters():
    """109,607,040 with T5's bias, 384 of them that bias (in the published code every model has it, used or not)."""
    shape = ModelConfig.t5(d_model=768, num_layers=12, num_heads=12, d_ff=3072)
    for encoding, biases in ((T5, 32 * 12), (NoPE, 0)):
        with torch.device("meta"):
            model = Decoder(shape, choose(encoding), vocab_size=32_100, output_size=32_100, train_length=40)
        assert sum(p.numel() for p in model.parameters()) == 109_607_040 - 384 + biases
        assert model.lm_head.weight is model.token_embedding.weight


def test_weights_of_the_published_shape_have_its_scales():
    """Kazemnejad et al. 2023 (T5's initialisation): standard deviations by part."""
    c = ModelConfig.t5(d_model=256, num_layers=3, num_heads=4, head_dim=32, d_ff=512)
    model = decoder(c, vocab_size=300, output_size=300)
    inner = c.num_heads * 32
    assert float(model.token_embedding.weight.detach().std()) == pytest.approx(1.0, rel=0.02)
    for block in model.blocks:
        q, k, v = block.qkv.weight.detach().split(inner)
        wanted = [(q, (256 * 32) ** -0.5), (k, 256**-0.5), (v, 256**-0.5), (block.out.weight, inner**-0.5)]
        wanted += [(block.up.weight, 256**-0.5), (block.down.weight, 512**-0.5)]
        for weight, std in wanted:
            assert float(weight.detach().std()) == pytest.approx(std, rel=0.03)
        assert block.scale == 1.0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Decoder(GPT, choose(NoPE), output_size=3, train_length=4), "either"),
        (lambda: Decoder(GPT, choose(NoPE), vocab_size=3, input_width=2, output_size=3, train_length=4), "either"),
        (lambda: decoder(ModelConfig(**SMALL, tie_embeddings=True), output_size=3), "equal"),
        (lambda: decoder(backend="spda"), "did you mean"),
        (lambda: decoder()(torch.zeros(1, 0, dtype=torch.long)), "at least one token"),
        (lambda: decoder().train().generate(torch.zeros(1, 2, dtype=torch.long), 1), "eval"),
        (lambda: decoder(encoding=Learned)(torch.zeros(1, 2049, dtype=torch.long)), "2048 rows"),
        (lambda: decoder(ModelConfig(d_model=30, num_heads=2, num_layers=1), RoPE), "pairs"),
    ],
)
def test_what_cannot_be(make, words):
    with pytest.raises(ConfigError, match=words):
        make()


@pytest.mark.parametrize("encoding", [FIRE, T5, Learned])
def test_what_an_encoding_draws_changes_no_other_weight(encoding):
    """Runs of one seed are compared in pairs: they start alike, whatever the encoding."""
    plain, other = decoder().state_dict(), decoder(encoding=encoding).state_dict()
    assert all(torch.equal(other[name], value) for name, value in plain.items())


def test_a_forward_that_fails_leaves_the_cache_as_it_was():
    model = decoder(encoding=choose(Learned, max_length=16)).double()
    x, cache = torch.randint(0, 11, (2, 6)), KVCache(2)
    model(x[:, :4], cache=cache)
    for wrong, positions in ((x[:, 4:], torch.tensor([[40, 41]])), (torch.zeros(3, 2, dtype=torch.long), None)):
        with pytest.raises((ConfigError, RuntimeError)):
            model(wrong, positions=positions, cache=cache)
        assert cache.length == 4
    torch.testing.assert_close(model(x[:, 4:], cache=cache), model(x)[:, 4:])


def test_documents_of_all_rows_may_become_documents_of_each():
    model = decoder(encoding=RoPE).double()
    x, cache = torch.randint(0, 11, (2, 6)), KVCache(2)
    documents = torch.tensor([[0, 0, 1, 1, 1, 1], [0, 0, 1, 0, 0, 1]])
    parts = [model(x[:, :3], documents=documents[:1, :3], cache=cache)]
    parts.append(model(x[:, 3:], documents=documents[:, 3:], cache=cache))
    torch.testing.assert_close(torch.cat(parts, 1), model(x, documents=documents))


class RotatedWithKeyTerm(RotaryEncoding):
    """A rotation, and a term that reads keys: those of a cache have to be as they were before they were rotated."""

    def __init__(self, *, num_heads: int, head_dim: int):
        super().__init__()
        self.u = torch.nn.Parameter(torch.randn(num_heads, head_dim))

    def frequencies(self, length):
        return torch.linspace(1, 0.1, self.u.shape[1] // 2, dtype=torch.float64)

    def modifiers(self, span):
        return replace(super().modifiers(span), terms=(KeyBias(self.u),))


def test_terms_read_keys_before_they_are_rotated_in_a_cache_too():
    model = decoder(encoding=RotatedWithKeyTerm).double()
    x, cache = torch.randint(0, 11, (2, 7)), KVCache(2)
    steps = [model(x[:, t : t + 1], cache=cache) for t in range(7)]
    torch.testing.assert_close(torch.cat(steps, 1), model(x))


def test_a_pattern_longer_than_the_model_is_refused():
    with pytest.raises(ConfigError, match=r"num_layers must be at least 3 for the pattern .* got 2"):
        decoder(encoding=alternate(choose(RoPE), choose(RoPE), choose(NoPE)))


def test_a_cache_belongs_to_one_model_and_its_rows():
    model, other = decoder(encoding=RoPE), decoder(encoding=Stretching)
    x, cache = torch.randint(0, 11, (2, 6)), KVCache(2)
    model(x[:, :3], cache=cache)
    for wrong, given, words in (
        (model, x[:1, 3:4], "must have the 2 rows .*, got 1"),
        (other, x[:, 3:4], "filled by another model"),
    ):
        with pytest.raises(ConfigError, match=words):
            wrong(given, cache=cache)
    with pytest.raises(ConfigError, match="model's 2 layers, got a cache for 3"):
        model(x, cache=KVCache(3))
    cache = KVCache(2)
    other(x[:, :3], cache=cache)
    with pytest.raises(ConfigError, match="filled by another model"):
        model(x[:, 3:], cache=cache)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (torch.zeros(1, 3), r"inputs must be token IDs \[b, t\], got"),
        (torch.zeros(3, dtype=torch.long), r"inputs must be token IDs \[b, t\], got"),
        (torch.tensor([[0, 11]]), "token IDs must be 0 to 10, got 11"),
        (torch.tensor([[-1, 0]]), "token IDs must be 0 to 10, got -1"),
    ],
)
def test_inputs_that_cannot_be(given, words):
    with pytest.raises(ConfigError, match=words):
        inspect.unwrap(Decoder.forward)(decoder(), given)


@pytest.mark.parametrize("settings", [{"temperature": float("nan")}, {"temperature": 1e-300}, {"steps": -1}])
def test_generation_that_cannot_be(settings):
    with pytest.raises(ConfigError, match=r"(temperature|steps) must be"):
        decoder().generate(torch.zeros(1, 2, dtype=torch.long), **{"steps": 2, **settings})


@pytest.mark.parametrize("given", [RoPE, "rope", None])
def test_an_encoding_is_given_as_a_choice(given):
    with pytest.raises(ConfigError, match="a decoder's encoding takes choices"):
        inspect.unwrap(Decoder.__init__)(
            Decoder.__new__(Decoder), GPT, given, vocab_size=3, output_size=3, train_length=4
        )
