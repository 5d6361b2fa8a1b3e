"""What an encoding cannot be, in one line of plain words: what it got, why not, and what to do."""

import inspect
import math
from typing import Any, get_args

import pytest
import torch

from lengthwise.config import ConfigError, choose, context_of, settings_of
from lengthwise.encodings import (
    DAPE,
    ENCODINGS,
    FIRE,
    PI,
    T5,
    ALiBi,
    BandedBias,
    Beam,
    CoPE,
    DynamicNTK,
    DynamicYaRN,
    FoX,
    Inkling,
    KerplePower,
    Learned,
    Llama3,
    Llama4,
    LogN,
    LongRoPE,
    Ministral,
    NTKAware,
    NTKByParts,
    PRoPE,
    RoPE,
    Shaw,
    Sinusoidal,
    SSMax,
    TransformerXL,
    XPos,
    YaRN,
)
from lengthwise.encodings.contract import features_of

CONTEXT = {"num_heads": 4, "head_dim": 16, "d_model": 64, "train_length": 16}

CANNOT_BE: list[tuple[Any, dict[str, Any], str]] = [
    (Sinusoidal, {"d_model": 5}, "even"),
    (Sinusoidal, {"base": 0.0}, "base"),
    (Sinusoidal, {"base": -1.0}, "more than 0"),
    (Sinusoidal, {"layout": "half"}, "interleaved"),
    (Learned, {"max_length": 0}, "at least 1"),
    (Learned, {"std": 0.0}, "std"),
    (RoPE, {"head_dim": 5}, "pairs"),
    (RoPE, {"head_dim": 1}, "pairs"),
    (RoPE, {"rotary_fraction": 0.0}, "at most 1"),
    (RoPE, {"rotary_fraction": 1.5}, "at most 1"),
    (RoPE, {"rotary_fraction": math.nan}, "finite number"),
    (RoPE, {"rotary_fraction": 0.32}, "got 5;"),
    (RoPE, {"rotary_fraction": 0.05}, "got 0;"),
    (RoPE, {"rotary_fraction": 0.58, "head_dim": 50}, "got 29;"),
    (RoPE, {"base": 0.0}, "base"),
    (RoPE, {"base": math.inf}, "finite"),
    (RoPE, {"base": "10000"}, "base must be float, got '10000'"),
    (RoPE, {"layout": "neox"}, "half"),
    (T5, {"num_buckets": 1}, "at least 2"),
    (T5, {"num_buckets": 32, "max_distance": 16}, "max_distance must be more than 16"),
    (T5, {"num_buckets": 0}, "at least 1"),
    (T5, {"max_distance": -5}, "at least 1"),
    (FIRE, {"hidden_layers": -1}, "0 .linear."),
    (FIRE, {"hidden_layers": 5}, "to 4"),
    (FIRE, {"hidden_layers": 2.0}, "hidden_layers must be int, got 2.0"),
    (FIRE, {"width": 0}, "width"),
    (FIRE, {"activation": "elu"}, "'relu', 'gelu', .*; did you mean 'relu'"),
    (FIRE, {"c": 0.0}, "c must be .* got 0.0"),
    (FIRE, {"L": 0.0}, "L must be .* got 0.0"),
    (FIRE, {"L": -512.0}, "more than 0"),
    (FIRE, {"eps": -1e-9}, "0 or more"),
    # RoPE and what is made of it.
    *(
        (make, given, words)
        for make in (PI, NTKAware, DynamicNTK, PRoPE, XPos)
        for given, words in (
            ({"head_dim": 5}, "pairs"),
            ({"base": 0.0}, "base"),
            ({"layout": "neox"}, "half"),
        )
    ),
    *((make, {"rotary_fraction": 0.0}, "more than 0") for make in (PI, NTKAware, DynamicNTK, XPos)),
    *(
        (make, {"factor": factor}, words)
        for make in (PI, NTKAware, DynamicNTK)
        for factor, words in (
            (0.99, "at least 1"),
            (0, "more than 0"),
        )
    ),
    (NTKAware, {"head_dim": 2}, "at least 4"),
    (NTKAware, {"rotary_fraction": 0.125}, "one pair"),
    (DynamicNTK, {"head_dim": 2}, "at least 4"),
    (DynamicNTK, {"scale_step": 0}, "scale_step"),
    (PRoPE, {"p": 0.0}, "more than 0"),
    (PRoPE, {"p": 1.01}, "at most 1"),
    (PRoPE, {"p": 0.12}, "choose NoPE"),
    (XPos, {"max_length": 0}, "max_length"),
    (XPos, {"max_length": 32863}, "at most 32862"),
    (XPos, {"max_length": 10**400}, "at most"),
    (XPos, {"gamma": 0.0}, "gamma"),
    (XPos, {"gamma": 1e-12}, "overflows float32"),
    (XPos, {"gamma": 5e-324}, "at least 1e-12"),
    (XPos, {"scale_base": -512.0}, "scale_base"),
    (XPos, {"scale_base": 64.0}, "scale_base larger"),
    (LogN, {"train_length": 1}, "ln 1 = 0"),
    (SSMax, {"train_length": 1}, "ln 1 = 0"),
    *((make, {"strength": -0.1}, "0 or more") for make in (Llama4, Ministral, Inkling)),
    *((make, {"step": 0}, "at least 1") for make in (Llama4, Ministral)),
    *((make, {"length": 0.0}, "more than 0") for make in (Beam, Inkling)),
    (Beam, {"exponent": 1.5}, "exponent must be at most 1"),
    *(
        (make, given, words)
        for make in (NTKByParts, YaRN, DynamicYaRN)
        for given, words in (
            ({"rotary_fraction": 0.0}, "more than 0"),
            ({"layout": "neox"}, "half"),
            ({"base": 1.0}, "more than 1"),
            ({"beta_fast": 1.0}, "beta_fast must be more"),
            ({"beta_slow": 32.0}, "beta_fast must be more"),
            ({"beta_slow": 0.0}, "beta_slow"),
            ({"ramp": "linear"}, "rotations"),
            ({"ramp": "rotations", "truncate": False}, "leave it out"),
        )
    ),
    *(
        (make, {"factor": factor}, words)
        for make in (NTKByParts, YaRN, Llama3, LongRoPE)
        for factor, words in ((0.99, "at least 1"), (-4.0, "more than 0"))
    ),
    (YaRN, {"attention_factor": 0.0}, "more than 0"),
    (YaRN, {"mscale": -1.0}, "0 or more"),
    (YaRN, {"attention_factor": 1.5, "mscale": 0.7}, "one or the other"),
    (YaRN, {"attention_factor": 1.5, "mscale_all_dim": 1.0}, "one or the other"),
    (DynamicYaRN, {"scale_step": 0}, "scale_step"),
    (Llama3, {"low_freq_factor": 4.5}, "high_freq_factor must be at least"),
    (Llama3, {"high_freq_factor": 0.5}, "high_freq_factor must be at least"),
    (Llama3, {"low_freq_factor": 0.0}, "low_freq_factor"),
    (LongRoPE, {"train_length": 1}, "give attention_factor"),
    (
        LongRoPE,
        {"short_factor": (1.0,) * 7},
        "short_factor must have 8 numbers, .* 8 pairs of 16 rotated dimensions, got 7",
    ),
    (LongRoPE, {"long_factor": (1.0,) * 9}, "must have 8 numbers"),
    (LongRoPE, {"long_factor": (1.0,) * 8, "rotary_fraction": 0.5}, "must have 4 numbers"),
    (LongRoPE, {"long_factor": ()}, "one for each pair"),
    (LongRoPE, {"long_factor": 4.0}, "long_factor must be tuple of float or None, got 4.0"),
    (LongRoPE, {"long_factor": (1.0,) * 7 + (0.0,)}, "long_factor.7. must be .* got 0.0"),
    (LongRoPE, {"short_factor": (math.nan,) * 8}, "short_factor.* must be .* got .*nan"),
    (LongRoPE, {"short_factor": ("1",) * 8}, "short_factor.* must be .* got .*'1'"),
    (LongRoPE, {"attention_factor": -1.0}, "more than 0"),
    # What depends on content.
    (CoPE, {"max_position": 0}, "max_position must be .* got 0"),
    (DAPE, {"width": 0}, "width"),
    (DAPE, {"base": "rope"}, "'alibi', 'kerple_log', 'fire', got 'rope'"),
    (BandedBias, {"band": 0}, "band must be .* got 0"),
    (T5, {"num_buckets": 33, "bidirectional": True}, "even number"),
    (T5, {"num_buckets": 2, "bidirectional": True}, "at least 4"),
    (T5, {"num_buckets": 32, "max_distance": 8, "bidirectional": True}, "first 8 of 16"),
    (FIRE, {"transform": "sqrt"}, "transform must be one of 'log', 'identity', got 'sqrt'"),
    (Shaw, {"clip": 0}, "at least 1"),
    (TransformerXL, {"d_model": 7}, "even"),
    (TransformerXL, {"base": 0.0}, "base"),
    (TransformerXL, {"max_distance": 0}, "at least 1"),
    (TransformerXL, {"max_distance": True}, "max_distance must be int or None, got True"),
    (ALiBi, {"bidirectional": 3}, "bidirectional must be true or false, got 3"),
]


@pytest.mark.parametrize(("make", "given", "words"), CANNOT_BE, ids=[f"{m.__name__}-{g}" for m, g, _ in CANNOT_BE])
def test_a_constructor_says_why(make: Any, given: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    unchecked(make, monkeypatch)
    with pytest.raises(ConfigError, match=words) as error:
        make(**{n: CONTEXT[n] for n in context_of(make)} | given)
    assert "\n" not in str(error.value)
    assert make.__name__ in str(error.value)


@pytest.mark.parametrize("make", [*ENCODINGS], ids=lambda make: make.__name__)
def test_sizes_that_no_model_has(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    unchecked(make, monkeypatch)
    sizes = {name: CONTEXT[name] for name in context_of(make)}
    for name in sizes:
        for size in (0, -1, 2.0, True, "4"):
            with pytest.raises(ConfigError, match=rf"{make.__name__}: {name} must be a whole number") as error:
                make(**sizes | {name: size})
            assert "\n" not in str(error.value)


def unchecked(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests check types before the call; users do not have that."""
    for part in make.__mro__:
        if "__init__" in vars(part) and part.__module__.startswith("lengthwise."):
            monkeypatch.setattr(part, "__init__", inspect.unwrap(part.__init__))


ODD = [None, math.nan, math.inf, -1, "no", [1], {}]


def _is_odd(setting: inspect.Parameter, value: Any) -> bool:
    """None is right where the setting may be None, and a list where a list is asked for."""
    may_be_none = type(None) in get_args(setting.annotation)
    return not ((value is None and may_be_none) or (value == [1] and "tuple" in str(setting.annotation)))


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [(make, name, v) for make in ENCODINGS for name, p in settings_of(make).items() for v in ODD if _is_odd(p, v)],
    ids=lambda x: getattr(x, "__name__", str(x)),
)
def test_choosing_and_making_never_end_in_anything_but_a_plain_line(
    make: Any, name: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    unchecked(make, monkeypatch)
    for refuse in (choose, lambda make, **given: make(**{n: CONTEXT[n] for n in context_of(make)} | given)):
        with pytest.raises(ConfigError) as error:
            refuse(make, **{name: value})
        assert "\n" not in str(error.value)
        assert make.__name__ in str(error.value)


def refused(words: str, call: Any, *given: Any) -> None:
    with pytest.raises(ConfigError, match=words) as error:
        inspect.unwrap(call.__func__)(call.__self__, *given)
    assert "\n" not in str(error.value)
    assert type(call.__self__).__name__ in str(error.value)


@pytest.mark.parametrize("make", [Learned, Sinusoidal, FoX, BandedBias], ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    ("x", "words"),
    [
        (torch.zeros(1, 2, 8), "last dimension of x must be d_model = 4, got 8; set d_model to that"),
        (torch.zeros(2, 4), r"x must be a tensor \[batch, tokens, 4\], got shape \[2, 4\]"),
        ([[[0.0] * 4]], "x must be a tensor .*, got list"),
    ],
)
def test_inputs_that_cannot_be(make: Any, x: Any, words: str) -> None:
    made = make(**{name: {"num_heads": 2, "d_model": 4}[name] for name in context_of(make)})
    if made.acts_on_embedding():
        refused(words, made.embed, x, torch.zeros(1, 2).long())
    else:
        with pytest.raises(ConfigError, match=f"{make.__name__}: .*{words}"):
            inspect.unwrap(features_of)(made, x)


@pytest.mark.parametrize("make", [Learned, Sinusoidal], ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    ("positions", "words"),
    [
        (torch.zeros(1, 2), "positions must hold whole numbers .*, got torch.float32"),
        (torch.zeros(1, 2).bool(), "got torch.bool"),
        (torch.zeros(2, 2).long(), r"positions must have the shape \[3 or 1, 2\], one per token, got \(2, 2\)"),
        (torch.zeros(2).long(), r"got \(2,\)"),
        ([[0, 1]], r"positions must be a tensor of whole numbers \(int64\), got a list"),
    ],
)
def test_positions_that_cannot_be(make: Any, positions: Any, words: str) -> None:
    refused(words, make(d_model=4).embed, torch.zeros(3, 2, 4), positions)


def test_a_table_never_wraps_around() -> None:
    learned = Learned(d_model=4, max_length=3)
    for positions, words in (([-1, 0], "must be at least 0, got -1"), ([0, 3], "position 3 is past the 3 rows")):
        with pytest.raises(ConfigError, match=words):
            learned.embed(torch.zeros(1, 2, 4), torch.tensor([positions]))


def test_a_rotary_fraction_of_whole_dims_is_that_many() -> None:
    for head_dim in range(2, 130, 2):
        for dims in range(2, head_dim + 1, 2):
            assert RoPE(head_dim=head_dim, rotary_fraction=dims / head_dim).rotary_dims == dims
    assert RoPE(head_dim=64, rotary_fraction=0.25).rotary_dims == 16


def test_clamped_parameters_find_their_way_back() -> None:
    """KERPLE's bounds: at a bound the gradient leads inside only, and a forward pass writes to no parameter."""
    kerple = KerplePower(num_heads=3)
    with torch.no_grad():
        kerple.r1.copy_(torch.tensor([-1.0, 0.5, 0.01]))
        kerple.r2.copy_(torch.tensor([3.0, 1.0, 2.0]))
    before = [p.detach().clone() for p in kerple.parameters()]
    for sign in (1.0, -1.0):
        kerple.zero_grad()
        (sign * kerple.bias(torch.arange(5)).sum()).backward()
        assert kerple.r1.grad is not None
        assert kerple.r2.grad is not None
        # The loss falls with r1 when the sign is +1: descent leads up and inside.
        assert (kerple.r1.grad[[0, 2]] != 0).all() == (sign > 0)
        assert kerple.r1.grad[1] != 0
        # It falls with r2 too: descent would lead further out there.
        assert (kerple.r2.grad[[0, 2]] != 0).all() == (sign < 0)
        assert kerple.r2.grad[1] != 0
    assert all(torch.equal(a, b) for a, b in zip(before, kerple.parameters(), strict=True))
