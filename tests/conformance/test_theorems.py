"""The theorems hold as they are built, and each stops holding when its construction is spoiled."""

import json

import pytest
import torch
from torch import nn

from lengthwise import attend
from lengthwise.cli import main as lengthwise
from lengthwise.config import ConfigError
from lengthwise.conformance import theorems
from lengthwise.conformance.cases import differentiable_backends
from lengthwise.conformance.theorems import (
    THEOREMS,
    Result,
    as_fire,
    fire_expresses,
    nope_absolute,
    nope_relative,
    rope_relative,
    shift_invariance,
)
from lengthwise.encodings import DAPE, FIRE, T5, ALiBi, KerpleLog, KerplePower, Learned, NoPE, RoPE, Sandwich
from lengthwise.models import Decoder
from lengthwise.span import Span

BIASES = (ALiBi, T5, KerpleLog, KerplePower, Sandwich)
# What is allowed is rounding, and of each theorem's own arithmetic.
ALLOWED = {
    fire_expresses.THEOREM: 1e-10,
    nope_absolute.THEOREM: 1e-10,
    nope_relative.THEOREM: 1e-10,
    rope_relative.THEOREM: 1e-7,
    shift_invariance.THEOREM: 2e-9,
}
# The conformance suite asks about shifts too, with the default settings; with all of them that takes seconds for each
# encoding.
QUICK_SHIFTS = (NoPE, T5, Sandwich)
ASKED = [
    pytest.param(
        t, make, id=f"{t.name}-{make.__name__}",
        marks=pytest.mark.slow if t is shift_invariance.THEOREM and make not in QUICK_SHIFTS else (),
    )
    for t in THEOREMS
    for make in t.about()
]  # fmt: skip


@pytest.mark.parametrize(("theorem", "make"), ASKED)
def test_every_theorem_holds(theorem, make, monkeypatch):
    monkeypatch.setattr(fire_expresses, "HEADS", 3)
    monkeypatch.setattr(fire_expresses, "BOUNDS", (1, 16, 49, 130))  # `lengthwise check --theorems` goes further
    results = list(theorem.prove(make))
    assert results
    for result in results:
        assert result.ok, result
        assert result.allowed < ALLOWED[theorem], result
        assert (result.theorem, result.encoding) == (theorem.name, make.__name__)


@pytest.mark.slow
@pytest.mark.parametrize("make", BIASES)
def test_fire_expresses_others_up_to_every_bound(make):
    assert all(result.ok for result in fire_expresses.prove(make))


# ---- FIRE ----------------------------------------------------------------------------------------------------------


def built(make, num_heads=3):
    torch.manual_seed(7)
    return make(num_heads=num_heads).double()


def holds(fires, encoding, bound) -> bool:
    table = encoding.bias(torch.arange(bound + 1)).detach()
    return all(
        fire_expresses.difference(fire, head, bound) <= fire_expresses.rounding(fire)
        for fire, head in zip(fires, table, strict=True)
    )


@pytest.mark.parametrize("make", BIASES)
def test_they_are_fires_of_one_head_with_the_threshold_at_the_bound(make):
    fires = list(as_fire(built(make), 100))
    assert len(fires) == 3
    for fire in fires:
        assert isinstance(fire, FIRE)
        assert fire.layers[-1].out_features == 1
        assert (fire.L, fire.eps, fire.L_multiplier.item()) == (100.0, 0.0, 1.0)


@pytest.mark.parametrize("make", BIASES)
def test_the_comparison_is_that_of_all_pairs(make):
    """Against every pair by itself; also with a threshold below the bound, where the distance is not enough."""
    encoding = built(make)
    table = encoding.bias(torch.arange(301)).detach()
    i, j = torch.tril_indices(301, 301)
    for threshold in (300.0, 40.0):
        for fire, head in zip(as_fire(encoding, 300), table, strict=True):
            fire.L = threshold
            with torch.no_grad():
                plain = (fire.f(fire.coordinate(i, j)[:, None])[:, 0] - head[i - j]).abs().max()
            assert fire_expresses.difference(fire, head, 300) == pytest.approx(float(plain), rel=1e-12, abs=1e-13)


@pytest.mark.parametrize("make", BIASES)
def test_they_serve_attention(make):
    encoding = built(make, num_heads=4)
    q, k, v = torch.randn(3, 2, 4, 65, 8, generator=torch.Generator().manual_seed(1)).double()
    fires = as_fire(encoding, 64)
    with torch.no_grad():
        for backend in ("reference", "sdpa"):
            torch.testing.assert_close(
                attend(q, k, v, fires, backend=backend), attend(q, k, v, encoding, backend=backend), rtol=0, atol=1e-12
            )
        one = next(iter(fires))
        alone = attend(q[:, :1], k[:, :1], v[:, :1], one)
    torch.testing.assert_close(alone, attend(q, k, v, encoding)[:, :1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("make", BIASES)
def test_they_hold_no_further_than_the_bound(make):
    """Past it FIRE squeezes distances, and the others do not."""
    encoding = built(make)
    fires = as_fire(encoding, 64)
    assert holds(fires, encoding, 64)
    table = encoding.bias(torch.arange(200)).detach()
    span = Span.of(200)
    seen = fires.modifiers(span).terms[0].bias[0].detach()
    off = (seen - table[:, span.distance()[0].clamp(min=0)]).abs() * torch.ones(200, 200).tril()
    assert off[:, :65].max() < 1e-10
    assert (off.amax((1, 2)) > 1e-3).all()


SPOILED = {
    "a threshold below the bound": lambda fire: setattr(fire, "L", fire.L * 0.9),
    "no threshold": lambda fire: setattr(fire, "L_multiplier", None),
    "an eps": lambda fire: setattr(fire, "eps", 1e-6),
    "the wrong sign": lambda fire: fire.layers[-1].weight.data.neg_(),
    "a slope off by 1e-9": lambda fire: fire.layers[-1].weight.data.mul_(1 + 1e-9),
    "nan": lambda fire: fire.layers[-1].weight.data.fill_(float("nan")),
}


@pytest.mark.parametrize("spoil", SPOILED)
@pytest.mark.parametrize("make", BIASES)
def test_fire_fails_with(spoil, make):
    encoding = built(make)
    fires = as_fire(encoding, 300)
    assert holds(fires, encoding, 300)
    for fire in fires:
        SPOILED[spoil](fire)
    assert not holds(fires, encoding, 300)


def test_steps_of_t5_at_the_next_distance_fail():
    encoding = built(T5)
    fires = as_fire(encoding, 300)
    for fire in fires:
        fire.layers[0].bias.data.sub_(1 / 300)
    assert not holds(fires, encoding, 300)


@pytest.mark.parametrize(("bound", "seen"), [(512, False), (1000, True)])
def test_borders_of_t5_that_round_otherwise_fail(bound, seen):
    """s · (1 / L) in place of s / L: the same where L is a power of two, otherwise steps one too late."""
    encoding = built(T5)
    fires = as_fire(encoding, bound)
    for fire in fires:
        borders = (-fire.layers[0].bias.data * bound).round()
        fire.layers[0].bias.data.copy_(-borders * (1 / bound))
    assert holds(fires, encoding, bound) is not seen


@pytest.mark.parametrize("by", [7.0, 1 + 1e-9])
@pytest.mark.parametrize("make", fire_expresses.PLAIN)
def test_pieces_that_are_not_the_mlp_fail_in_attention(make, by, monkeypatch):
    """`coordinate` and `f` are as they were: only what attention gets is spoiled."""
    from lengthwise.encodings import fire as module

    def spoiled(layers, *, final=False):
        slope, intercept, knots = relu_segments(layers, final=final)
        return slope * by, intercept, knots

    relu_segments = module.relu_segments
    monkeypatch.setattr(fire_expresses, "HEADS", 3)
    monkeypatch.setattr(fire_expresses, "BOUNDS", (49,))
    assert all(verdicts(fire_expresses.prove(make)))
    monkeypatch.setattr(module, "relu_segments", spoiled)
    results = list(fire_expresses.prove(make))
    assert {r.compared.rpartition(", ")[2] for r in results if not r.ok} == set(differentiable_backends())
    assert all(r.ok == r.compared.startswith("all pairs") for r in results)


def test_only_the_five_are_in_the_theorem():
    with pytest.raises(ConfigError, match="got NoPE"):
        as_fire(NoPE(), 16)
    with pytest.raises(ConfigError, match=r"bound must be .* got 0"):
        as_fire(ALiBi(num_heads=2), 0)


# ---- NoPE ----------------------------------------------------------------------------------------------------------


def verdicts(results) -> list[bool]:
    return [result.ok for result in results]


def test_printed_values_of_the_first_theorem():
    model = nope_absolute.decoder(8)
    seen = nope_absolute.stages(model, nope_absolute.token_ids(6))
    inverse = seen["attention 0"][..., nope_absolute.PLACE]
    torch.testing.assert_close(
        inverse[0], torch.tensor([1, 0.5, 0.333333, 0.25, 0.2, 0.166667]).double(), rtol=0, atol=4e-7
    )
    assert torch.equal(seen["0"][..., nope_absolute.PLACE].round(), torch.arange(1.0, 7.0).double().expand(3, -1))


def test_printed_logits_of_the_second_theorem():
    """Without content, t = 4: -3, -2, -1, 0."""
    model = nope_relative.decoder(8)
    block = nope_absolute.blocks(model)[1]
    state = torch.zeros(1, 4, nope_absolute.WIDTH, dtype=torch.float64)
    state[..., 0], state[:, 0, 1], state[..., 2] = 1.0, 1.0, torch.arange(1.0, 5.0)
    q, k, _ = block.qkv_heads(state)
    assert (q @ k.mT)[0, :, 3].tolist() == [[-3.0, -2.0, -1.0, 0.0]] * nope_absolute.HEADS


def test_the_decoder_is_ours_without_norms_and_positions():
    model = nope_relative.decoder(8)
    assert type(model) is Decoder
    assert {type(e) for e in model.encodings} == {NoPE}
    assert not [m for m in model.modules() if isinstance(m, (nn.LayerNorm, nn.RMSNorm))]
    assert nope_absolute.blocks(model)[1].scale == 1.0  # <q, k> itself


def values_without_bos(model):
    nope_absolute.projections(nope_absolute.blocks(model)[0])[2].zero_()


def keys_apart(model):
    nope_absolute.projections(nope_absolute.blocks(model)[0])[1][0, 5] = 0.3


def bos_everywhere(model):
    model.token_embedding.weight[:, nope_absolute.FIRST] = 1.0


def kinks_to_the_wrong_side(model):
    nope_absolute.blocks(model)[0].up.weight.neg_()


def one_kink_too_few(model):
    nope_absolute.blocks(model)[0].down.weight[nope_absolute.PLACE, nope_absolute.BOUND - 2] = 0.0


def with_norms(model):
    block = nope_absolute.blocks(model)[0]
    block.attention_norm = nn.LayerNorm(nope_absolute.WIDTH, bias=False).double()


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (values_without_bos, [False, False]),
        (keys_apart, [False, False]),
        (bos_everywhere, [False, False]),
        (with_norms, [False, False]),
        (kinks_to_the_wrong_side, [True, False]),
        (one_kink_too_few, [True, False]),
    ],
)
def test_the_first_theorem_fails_with(spoil, expected):
    model = nope_absolute.decoder(nope_absolute.BOUND)
    spoil(model)
    assert verdicts(nope_absolute.compare(model, nope_absolute.BOUND)) == expected


def test_the_first_theorem_needs_the_causal_mask(monkeypatch):
    """Without it every token sees the same set."""
    from lengthwise.attention import Mask

    monkeypatch.setattr(Mask, "visible", lambda self, device: torch.ones(1, self.queries, self.keys, dtype=torch.bool))
    model = nope_absolute.decoder(16, backend="reference")
    assert verdicts(nope_absolute.compare(model, 16)) == [False, False]


def as_printed(model):
    """Eq. 29: the rows of W_K in W_V."""
    _, key, value = nope_absolute.projections(nope_absolute.blocks(model)[1])
    value.copy_(key)
    key[:, : nope_absolute.CONTENT.start] = 0.0


def wrong_sign_of_the_query(model):
    """i + t: other logits, and the same attention, since t is the same for all keys of a row."""
    query, _, _ = nope_absolute.projections(nope_absolute.blocks(model)[1])
    query[:, nope_absolute.PLACE] *= -1


def wrong_sign_of_the_key(model):
    _, key, _ = nope_absolute.projections(nope_absolute.blocks(model)[1])
    key[:, nope_absolute.PLACE] *= -1


def scaled(model):
    nope_absolute.blocks(model)[1].scale = 8**-0.5


def unplaced(model):
    """Without the first theorem there is no position to read."""
    nope_absolute.blocks(model)[0].down.weight.zero_()


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (as_printed, [False, False]),
        (wrong_sign_of_the_query, [False, True]),
        (wrong_sign_of_the_key, [False, False]),
        (unplaced, [False, False]),
        (scaled, [True, False]),
    ],
)
def test_the_second_theorem_fails_with(spoil, expected):
    model = nope_relative.decoder(64)
    assert verdicts(nope_relative.compare(model, 64)) == [True, True]
    spoil(model)
    assert verdicts(nope_relative.compare(model, 64)) == expected


# ---- rotations and shifts ------------------------------------------------------------------------------------------


class Drifting(RoPE):
    """Turns by a little more than its position says, the more the further away."""

    def modifiers(self, span):
        def drifted(positions):
            return positions + positions // 100_000

        return super().modifiers(Span(drifted(span.q), drifted(span.k), drifted(torch.tensor(span.length)).item()))


class Rounded(RoPE):
    """Angles in float32."""

    def modifiers(self, span):
        from dataclasses import replace

        modifiers = super().modifiers(span)
        r = modifiers.rotation
        return replace(modifiers, rotation=replace(r, angle_q=r.angle_q.float(), angle_k=r.angle_k.float()))


@pytest.mark.parametrize("make", [Drifting, Rounded])
def test_a_rotation_that_depends_on_the_place_fails(make):
    assert verdicts(rope_relative.prove(RoPE)) == [True]
    assert verdicts(rope_relative.prove(make)) == [False]


class Still(RoPE):
    """Turns nothing: all products stay what they are, at every distance."""

    def frequencies(self, length):
        return super().frequencies(length) * 0


class StillInHalves(RoPE):
    """Turns nothing with one of its settings."""

    def frequencies(self, length):
        return super().frequencies(length) * (self.layout != "half")


@pytest.mark.parametrize("make", [Still, StillInHalves])
def test_a_rotation_that_no_distance_changes_fails(make):
    (result,) = rope_relative.prove(make)
    assert not result.ok
    assert "other distances change them by 0 |q| |k|" in result.compared


class Leaning(ALiBi):
    """Slopes that change with the query's position."""

    by = 1e-3

    def modifiers(self, span):
        modifiers = super().modifiers(span)
        table = modifiers.terms[0].table * (1 + self.by * int(span.q.max()))
        return type(modifiers)(terms=(type(modifiers.terms[0])(table, modifiers.terms[0].first),))


class LeaningLittle(Leaning):
    by = 1e-14


class Creeping(RoPE):
    """Queries turn by a little more than their position says, far less than the suite's question can see."""

    def modifiers(self, span):
        modifiers = super().modifiers(span)
        turn = modifiers.rotation
        return type(modifiers)(
            rotation=type(turn)(turn.angle_q * (1 + 2e-13), turn.angle_k, turn.gain_q, turn.gain_k, turn.layout)
        )


@pytest.mark.medium
def test_a_shift_that_changes_something_fails():
    assert verdicts(shift_invariance.prove(ALiBi)) == [True]
    assert verdicts(shift_invariance.prove(RoPE)) == [True]
    for make in (Leaning, LeaningLittle, Creeping):
        assert verdicts(shift_invariance.prove(make)) == [False], make


@pytest.mark.medium
def test_a_setting_that_is_declared_not_invariant_has_to_change_something():
    class Modest(DAPE):
        """Says of itself with "fire" that it is not invariant, and has a base that is."""

        def _bias_function(self, span):
            heads = self.second.out_features
            return lambda part: torch.zeros(1, heads, part.q.shape[1], part.k.shape[1], dtype=torch.float64)

    (result,) = shift_invariance.prove(DAPE)
    assert result.ok
    assert "base=fire is declared not invariant, and changes by 0." in result.compared
    (result,) = shift_invariance.prove(Modest)
    assert not result.ok
    assert "base=fire is declared not invariant, and changes by 0" in result.compared


def test_who_is_asked():
    rotary = {make.__name__ for make in rope_relative.rotary()}
    assert {"RoPE", "XPos", "YaRN"} <= rotary
    assert not rotary & {"DynamicNTK", "LogN", "ALiBi"}
    invariant = {make.__name__ for make in shift_invariance.invariant()}
    assert {"NoPE", "T5", "RoPE", "Sandwich"} <= invariant
    assert not invariant & {"FIRE", "Learned", "Sinusoidal", "DynamicNTK"}


# ---- all together ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def of_nope():
    return theorems.run([NoPE])


@pytest.mark.medium
def test_names_limit_what_is_asked(of_nope):
    assert {(r.theorem, r.encoding) for r in of_nope} == {
        ("NoPE finds positions", "NoPE"),
        ("NoPE attends relatively", "NoPE"),
        ("Shift invariance", "NoPE"),
    }
    assert fire_expresses.THEOREM.select([FIRE]) == list(BIASES)  # FIRE is the one that expresses them
    assert fire_expresses.THEOREM.select([T5, NoPE]) == [T5]
    with pytest.raises(ConfigError, match="no theorem here is about Learned"):
        theorems.run([NoPE, Learned])


def test_the_command_prints_and_fails(capsys, monkeypatch, of_nope):
    asked = []
    monkeypatch.setattr("lengthwise.conformance.theorems.table.run", lambda made, **_: asked.append(made) or of_nope)
    assert lengthwise(["check", "--theorems", "nope"]) == 0
    assert [[make.__name__ for make in made] for made in asked] == [["NoPE"]]
    assert "none with a larger difference" in capsys.readouterr().out
    assert lengthwise(["check", "--theorems", "nope", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["ok"]
    assert {r["encoding"] for r in said["results"]} == {"NoPE"}

    wrong = Result("NoPE finds positions", "NoPE", "[t=1]", float("nan"), 1e-9)
    monkeypatch.setattr("lengthwise.conformance.theorems.table.run", lambda *_, **__: [wrong])
    assert lengthwise(["check", "--theorems"]) == 1
    out = capsys.readouterr().out
    assert "1 with a larger difference" in out
    assert "[t=1]" in out
    assert lengthwise(["check", "--theorems", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert not said["ok"]
    assert said["results"][0]["difference"] is None


def test_the_command_refuses_in_plain_words(capsys):
    assert lengthwise(["check", "--theorems", "learned"]) == 2
    assert "no theorem here is about Learned" in capsys.readouterr().err
