"""Maps of distances: RoPE to the last bit inside the window, distances within those of training, and refusals."""

import pytest
import torch
from torch import Tensor

from lengthwise import attend
from lengthwise.attention import TokenInfo
from lengthwise.attention.backends import reference
from lengthwise.config import ConfigError
from lengthwise.encodings import DCA, ENCODINGS, STRING, ReRoPE, RoPE, SelfExtend
from lengthwise.encodings.distance_maps import DistanceMap
from lengthwise.forms import AttentionModifiers
from lengthwise.span import Span

L = 16
MAPS = [SelfExtend, ReRoPE, DCA, STRING]


def numbers(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def logits(modifiers: AttentionModifiers, q: Tensor, k: Tensor) -> Tensor:
    count = q.shape[2]
    visible = torch.ones(1, 1, count, count, dtype=torch.bool).tril()
    return reference.logits(modifiers, q, k, Span.of(count), visible, 0.25)


@pytest.mark.parametrize("make", MAPS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("settings", [{}, {"layout": "half", "rotary_fraction": 0.5, "base": 500.0}], ids=["", "half"])
def test_pairs_of_region_0_have_the_bits_of_rope(make: type[DistanceMap], settings: dict) -> None:
    q, k = numbers(0, 1, 2, 50, 8), numbers(1, 1, 2, 50, 8)
    mapped, plain = make(head_dim=8, train_length=L, **settings), RoPE(head_dim=8, **settings)
    actual, expected = (logits(encoding.modifiers(Span.of(50)), q, k) for encoding in (mapped, plain))
    positions = torch.arange(50)[None]
    near = (mapped.region(positions, positions) == 0)[0].tril()
    assert torch.equal(actual[..., near], expected[..., near])
    far = ~near & torch.ones_like(near).tril()
    assert far.any() and not torch.isclose(actual[..., far], expected[..., far]).all()


@pytest.mark.parametrize(("make", "most"), [(SelfExtend, 96), (ReRoPE, 10**6), (DCA, 10**6), (STRING, 19)])
def test_no_distance_is_larger_than_in_training(make: type[DistanceMap], most: int) -> None:
    """Self-Extend reaches G (L - W + floor(W / G)) = 8 (16 - 4 + 0) = 96 tokens, STRING L + S - W = 16 + 5 - 2 = 19."""
    encoding = make(head_dim=8, train_length=L)
    last = torch.arange(most - 70, most)[None].double() if most > 70 else torch.arange(most)[None].double()
    keys = (
        torch.arange(most)[None].double() if most < 1000 else torch.cat([torch.arange(100.0)[None], last], 1).double()
    )
    region = encoding.region(last.long(), keys.long())
    pairs = zip(encoding.mapped(last), encoding.mapped(keys), strict=True)
    distance = torch.stack([q[0][:, :, None] - k[1][:, None] for q, k in pairs]).gather(0, region[None])[0]
    visible = last[:, :, None] >= keys[:, None]
    assert float(distance[visible].min()) >= 0 and float(distance[visible].max()) < L


@pytest.mark.parametrize("make", MAPS, ids=lambda make: make.__name__)
def test_steps_over_packed_documents_equal_one_pass(make: type[DistanceMap]) -> None:
    """Two documents and padding in a row, and a row of one document, in steps of unequal size."""
    encoding = make(head_dim=8, train_length=L)
    q, k, v = numbers(2, 3, 2, 4, 70, 8).unbind(0)
    documents = torch.tensor([[-1] * 5 + [0] * 30 + [1] * 35, [0] * 70])
    whole = attend(q, k, v, encoding, tokens=TokenInfo(documents=documents), backend="reference")
    for backend in ("reference", "blocked"):
        start = 0
        for stop in (3, 4, 40, 69, 70):
            tokens = TokenInfo(documents=documents[:, :stop])
            step = attend(q[:, :, start:stop], k[:, :, :stop], v[:, :, :stop], encoding, tokens=tokens, backend=backend)
            torch.testing.assert_close(step, whole[:, :, start:stop])
            start = stop
    alone = attend(*(x[:1, :, 35:] for x in (q, k, v)), encoding)
    torch.testing.assert_close(whole[:1, :, 35:], alone)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("selfextend:group=0", "SelfExtend: group must be a whole number of at least 1, got 0"),
        ("selfextend:window=0", "SelfExtend: window must be a whole number of at least 1, got 0"),
        ("rerope:factor=0.5", "ReRoPE: factor .* must be at least 1, got 0.5"),
        ("dca:chunk=8,window=8", "DCA: window must be smaller than chunk.*, got 8 and 8"),
        ("string:shift=4,local=5", "STRING: local must be at most shift, 4, got 5"),
        ("string:local=-1", "STRING: local must be a whole number of at least 0, got -1"),
    ],
)
def test_settings_that_no_model_can_have(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ENCODINGS.parse(text)


@pytest.mark.parametrize(
    "text", ["selfextend:window=1024", "rerope:window=1024", "dca:chunk=1024", "string:shift=1024"]
)
def test_lengths_beyond_training_are_refused_by_the_model_that_they_do_not_fit(text: str) -> None:
    choice = ENCODINGS.parse(text)
    choice.build(num_heads=2, head_dim=8, d_model=16, train_length=1024)
    with pytest.raises(ConfigError, match=r"must be at most the training length, 1023, .*, got 1024"):
        choice.build(num_heads=2, head_dim=8, d_model=16, train_length=1023)


def test_other_backends_and_directions_say_why_not() -> None:
    q, k, v = numbers(3, 3, 1, 1, 4, 8).unbind(0)
    encoding = ReRoPE(head_dim=8, train_length=L)
    for backend in ("fused", "sdpa", "flex"):
        with pytest.raises(ConfigError, match=r"PiecewiseRotation needs several products of q and k.*\(ReRoPE\)"):
            attend(q, k, v, encoding, backend=backend)
    with pytest.raises(ConfigError, match="ReRoPE is not defined for keys after the query"):
        attend(q, k, v, encoding, causal=False)
