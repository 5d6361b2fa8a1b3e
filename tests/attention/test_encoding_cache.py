"""The cache of encodings while decoding: the same bits as without it, fewer calls, and nothing that is out of date."""

import copy

import pytest
import torch

import lengthwise
from lengthwise import choose, encodings, forms
from lengthwise.attention import EncodingCache, TokenInfo
from lengthwise.config import ConfigError, ModelConfig
from lengthwise.encodings import ENCODINGS
from lengthwise.encodings.base import PositionEncoding
from lengthwise.forms import AttentionModifiers, DenseBias, PiecewiseLinearBias
from lengthwise.models import Decoder
from lengthwise.span import Span
from tests.other_numbers import slow_with_other_numbers

HEADS, DIM = 4, 8
MADE_FOR = {"num_heads": HEADS, "head_dim": DIM, "d_model": HEADS * DIM, "train_length": 64}
MORE = ["FIRE:activation=gelu", "FIRE:transform=identity", "FIRE:threshold=false", "T5:bidirectional=true"]
NAMES = [name for name in (*ENCODINGS.names(), *MORE) if not ENCODINGS.parse(name).cls.acts_on_embedding()]
# Products of matrices, and torch's powers, of which another number of rows may change the last bit.
BUT_FOR_THE_LAST_BIT = ("TransformerXL", "KerplePower", "FIRE:activation=gelu")


def made(name, **others):
    torch.manual_seed(1)
    return ENCODINGS.parse(name).build(**(MADE_FOR | others)).eval()


def step(encoding, keys, cache=None, queries=1, dtype=torch.float64, positions=None, documents=None, **given):
    torch.default_generator.manual_seed(keys)  # in many steps; torch.manual_seed takes longer
    q = torch.randn(2, HEADS, queries, DIM, dtype=dtype)
    k, v = torch.randn(2, 2, 2, keys, DIM, dtype=dtype)
    x = torch.randn(2, keys, HEADS * DIM, dtype=dtype) if encoding.reads_content() else None
    return lengthwise.attend(
        q, k, v, encoding, tokens=TokenInfo(positions, documents, x), encoding_cache=cache, **given
    )


def left_padding(keys):
    return torch.tensor([[-1] * 5 + [0] * (keys - 5), [0] * keys])


def packed(keys):
    return torch.tensor([[0] * 9 + [1] * (keys - 9)])


@pytest.mark.parametrize("name", slow_with_other_numbers(NAMES))
@torch.no_grad()
def test_steps_have_the_same_bits(name):
    encoding, cache = made(name), EncodingCache()
    for keys in (12, 16, 17, 33):  # the cache holds powers of two
        for given in (
            {},
            {"queries": 3},
            {"documents": left_padding(keys)},
            {"documents": packed(keys), "queries": 2},
            {"positions": torch.arange(keys)[None] + keys // 2},
            {"dtype": torch.float32},
        ):
            expected, found = step(encoding, keys, **given), step(encoding, keys, cache, **given)
            torch.testing.assert_close(found, expected, rtol=0, atol=_close(name, expected.dtype))


def _close(name, dtype):
    return 8 * torch.finfo(dtype).eps if name in BUT_FOR_THE_LAST_BIT else 0.0


@pytest.mark.parametrize("backend", ["fused", "blocked", "sdpa", "reference"])
@pytest.mark.parametrize("name", ["ALiBi", "FIRE", "LogN", "XPos", "TransformerXL"])
@torch.no_grad()
def test_on_every_backend(name, backend):
    encoding, cache = made(name), EncodingCache()
    for keys in (12, 16, 17):
        expected = step(encoding, keys, backend=backend)
        torch.testing.assert_close(step(encoding, keys, cache, backend=backend), expected, rtol=0, atol=1e-13)


class Counted(encodings.FIRE):
    calls = 0

    def modifiers(self, span):
        self.calls += 1
        return super().modifiers(span)


@torch.no_grad()
def test_a_text_asks_once_and_whenever_it_doubles():
    encoding, cache = Counted(num_heads=HEADS), EncodingCache()
    for keys in range(20, 130):
        step(encoding, keys, cache)
    assert encoding.calls == 1 + 4  # once to see what it says; for 32, 64, 128 and 256 positions


@torch.no_grad()
def test_a_decoder_asks_as_often():
    model = Decoder(ModelConfig(num_layers=2, d_model=32, num_heads=4), choose(Counted), vocab_size=7, output_size=7,
                    train_length=16).eval()  # fmt: skip
    x = torch.randint(0, 7, (2, 12))
    made = model.generate(x, 20)
    for encoding in model.encodings:  # the prompt; as above, for 16 and 32 positions
        assert encoding.calls == 1 + 1 + 2
    assert torch.equal(made, model.generate(x, 20, cached=False))


# What changes parameters, and how anybody does it.


def _optimiser_step(encoding, kind, **settings):
    for p in encoding.parameters():
        p.grad = torch.randn_like(p)
    kind(encoding.parameters(), lr=0.5, **settings).step()


def _loaded(encoding):
    encoding.load_state_dict({name: x * 3 + 1 for name, x in encoding.state_dict().items()})


def _assigned(encoding):
    encoding.load_state_dict({name: x * 3 + 1 for name, x in encoding.state_dict().items()}, assign=True)


def _data(encoding):
    for p in encoding.parameters():
        p.data = p.data * 2
        p.data = p.data * 2 + 1  # may lie where the first did


def _in_place(encoding):
    for p in encoding.parameters():
        p.mul_(3.0).add_(1.0)


def _behind_autograd(encoding):
    for p in encoding.parameters():
        p.data.mul_(3.0).add_(1.0)


def _replaced(encoding):
    for module in encoding.modules():
        for name, p in list(module.named_parameters(recurse=False)):
            setattr(module, name, torch.nn.Parameter(p * 3 + 1))


CHANGES = {
    "SGD": lambda e: _optimiser_step(e, torch.optim.SGD, foreach=False),
    "SGD, foreach": lambda e: _optimiser_step(e, torch.optim.SGD, foreach=True),
    "AdamW": lambda e: _optimiser_step(e, torch.optim.AdamW),
    "AdamW, fused": lambda e: _optimiser_step(e, torch.optim.AdamW, fused=True),
    "load_state_dict": _loaded,
    "load_state_dict, assign": _assigned,
    "data": _data,
    "in place": _in_place,
    "data, in place": _behind_autograd,
    "replaced": _replaced,
    "half and back": lambda e: e.to(torch.bfloat16).to(torch.float32),
    "float64": lambda e: (_in_place(e), e.to(torch.float64)),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["FIRE", "FIRE:activation=gelu", "KerpleLog", "T5", "TransformerXL", "Shaw"])
@torch.no_grad()
def test_nothing_is_out_of_date(name, change):
    encoding, cache = made(name), EncodingCache()
    for keys in (20, 21):
        before = step(encoding, keys, cache)
    CHANGES[change](encoding)
    fresh = step(encoding, 21)
    torch.testing.assert_close(step(encoding, 21, cache), fresh, rtol=0, atol=1e-12)
    assert (fresh - before).abs().max() > 1e-7  # it did change something


class WithBuffer(PositionEncoding):
    """Pieces from a buffer: no parameter at all."""

    def __init__(self):
        super().__init__()
        self.register_buffer("slope", torch.full((HEADS, 1), 0.5, dtype=torch.float64))

    def modifiers(self, span):
        zero, u = torch.zeros(HEADS, 1, dtype=torch.float64), torch.arange(span.distance_bound, dtype=torch.float64)
        w = torch.ones(span.q.shape, dtype=torch.float64)
        return AttentionModifiers(
            terms=(PiecewiseLinearBias(self.slope, zero, torch.empty(0, dtype=torch.float64), u, w),)
        )


@torch.no_grad()
def test_buffers_count_too():
    encoding, cache = WithBuffer(), EncodingCache()
    for keys in (20, 21):
        step(encoding, keys, cache)
    encoding.slope.mul_(-1)
    assert torch.equal(step(encoding, 21, cache), step(encoding, 21))


def test_with_gradients_every_call_asks():
    encoding, cache = made("FIRE"), EncodingCache()
    with torch.no_grad():
        for keys in (20, 21):
            step(encoding, keys, cache)
    found, expected = (
        torch.autograd.grad(step(encoding, 21, k).square().sum(), list(encoding.parameters())) for k in (cache, None)
    )
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


def test_inference_mode_inside_and_outside():
    encoding, cache = made("FIRE"), EncodingCache()
    with torch.inference_mode():
        for keys in (20, 21):
            step(encoding, keys, cache)
    with torch.no_grad():
        assert torch.equal(step(encoding, 22, cache), step(encoding, 22))
    with torch.inference_mode():
        encoding = made("KerpleLog")  # parameters that keep no count of their changes
        for keys in (20, 21):
            step(encoding, keys, cache)
        encoding.r1.add_(1.0)
        assert torch.equal(step(encoding, 21, cache), step(encoding, 21))


class Pairs(PositionEncoding):
    """A bias for every pair: an effect for all positions would be their square."""

    longest = 0

    def modifiers(self, span):
        self.longest = max(self.longest, span.q.shape[1])
        return AttentionModifiers(terms=(DenseBias(-span.distance()[:, None].double()),))


@torch.no_grad()
def test_what_is_said_of_pairs_is_asked_for_the_span_alone():
    encoding, cache = Pairs(), EncodingCache()
    for keys in range(20, 40):
        assert torch.equal(step(encoding, keys, cache), step(encoding, keys))
    assert encoding.longest == 1


@torch.no_grad()
def test_positions_far_beyond_the_tokens_are_not_kept():
    """A table of all that came before would be larger than the cache by any factor."""
    encoding, cache = made("ALiBi"), EncodingCache()
    asked = []
    modifiers = encoding.modifiers
    encoding.modifiers = lambda span: (asked.append(span.length), modifiers(span))[1]
    for keys in (20, 21):
        step(encoding, keys, cache, positions=torch.arange(keys)[None] + 1_000_000)
    assert asked == [1_000_020, 1_000_021]


@torch.no_grad()
def test_a_limit_is_that_of_the_encoding():
    """A power of two past what the encoding serves is not asked for; its own error is, when the text comes to it."""
    encoding, cache = encodings.XPos(head_dim=DIM, max_length=40), EncodingCache()
    for keys in range(30, 41):
        assert torch.equal(step(encoding, keys, cache), step(encoding, keys))
    with pytest.raises(ConfigError, match="position 40 is past its max_length 40"):
        step(encoding, 41, cache)


@torch.no_grad()
def test_one_serves_several_encodings():
    first, second, cache = made("FIRE"), made("FIRE"), EncodingCache()
    for p in second.parameters():
        p.mul_(2.0)
    for keys in (20, 21, 22):
        for encoding in (first, second):
            assert torch.equal(step(encoding, keys, cache), step(encoding, keys))


@torch.no_grad()
def test_tables_are_cast_once():
    """Of the steps that share a table, the second finds what the kernel takes."""
    encoding, cache = made("ALiBi"), EncodingCache()
    for keys in (20, 21):
        step(encoding, keys, cache, dtype=torch.float32)
    (one,), (other,) = (cache.modifiers(encoding, Span.of(keys, 1)).terms for keys in (21, 22))
    assert one is other
    assert [x.dtype for x in one.derived.values()] == [torch.float32]


@torch.no_grad()
def test_a_cache_can_be_copied():
    """As for the beams of a search."""
    model = Decoder(ModelConfig(num_layers=2, d_model=32, num_heads=4), choose(encodings.FIRE), vocab_size=7,
                    output_size=7, train_length=16).eval()  # fmt: skip
    x, cache = torch.randint(0, 7, (2, 12)), model.new_cache()
    model(x[:, :8], cache=cache)
    model(x[:, 8:9], cache=cache)
    model(x[:, 9:10], cache=cache)
    other = copy.deepcopy(cache)
    torch.testing.assert_close(model(x[:, 10:11], cache=other), model(x[:, 10:11], cache=cache), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["rope", "rope:layout=half", "xpos"])
@torch.no_grad()
def test_cosines_and_sines_are_computed_once_for_all_positions_up_to_a_power_of_two(name, monkeypatch):
    encoding, cache, lengths = made(name), EncodingCache(), []
    compute = forms.rotation.compute_cos_sin
    monkeypatch.setattr(
        forms.rotation,
        "compute_cos_sin",
        lambda angle, *others: lengths.append(angle.shape[1]) or compute(angle, *others),
    )
    for keys in range(20, 40):
        span = Span.of(keys, 1)
        rotation = cache.modifiers(encoding, span).rotation
        fresh = encoding.modifiers(span).rotation
        parts = [(r, r.keys_from(keys - 1), r.queries_only()) for r in (rotation, fresh)]
        if keys > 20:  # it is stored from the second step on
            lengths.clear()
        for side in ("q", "k"):
            selected = [part.cos_sin(side, torch.float32) for part in parts[0]]
            if keys > 20:
                assert not lengths, "a step selects"
            for one, part in zip(selected, parts[1], strict=True):
                other = part.cos_sin(side, torch.float32)
                assert one is other is None or torch.equal(one, other)
            lengths.clear()
        x = torch.randn(2, HEADS, 1, DIM, dtype=torch.float64)  # a dtype for which nothing is stored
        assert torch.equal(rotation.rotate_query(x), fresh.rotate_query(x))
