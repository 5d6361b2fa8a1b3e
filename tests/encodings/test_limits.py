"""Settings that are numbers have limits, and at the limits attention in float32 is finite, and so are its gradients."""

import inspect
import itertools
import math
import typing
from collections.abc import Iterator
from typing import Any

import jaxtyping
import pytest
import torch

from lengthwise import attend
from lengthwise.attention import TokenInfo
from lengthwise.config import ConfigError, annotation, choose, context_of, settings_of
from lengthwise.encodings import ENCODINGS, FIRE, RoPE, Sandwich, Sinusoidal, TransformerXL, XPos, YaRN

SIZES = [
    {"num_heads": 2, "head_dim": 8, "d_model": 16, "train_length": 16},
    {"num_heads": 4, "head_dim": 128, "d_model": 512, "train_length": 2},
]
LENGTHS = (1, 16, 40)  # of the longest no more than the max_length of XPos below
LOW, HIGH = 1e-12, 1e12
BEYOND = (
    math.nextafter(LOW, 0.0),
    1e-13,
    1e-320,
    5e-324,
    math.nextafter(HIGH, math.inf),
    1e13,
    1e300,
    10**400,
    10**5000,
)


@pytest.fixture(autouse=True)
def unchecked() -> Iterator[None]:
    """Let whole numbers through as settings that are floats, which type checks in tests reject."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def float_settings(make: Any) -> list[str]:
    """Return the settings that are a number, a number or None, or a list of numbers."""
    kinds = {name: annotation(make, p) for name, p in settings_of(make).items()}
    return [name for name, kind in kinds.items() if float in {kind, *_parts(kind)}]


def _parts(kind: Any) -> Iterator[Any]:
    for part in typing.get_args(kind):
        yield part
        yield from _parts(part)


def as_declared(make: Any, name: str, value: float, sizes: dict[str, int]) -> Any:
    """Return the number, or a list of it with one number for each pair, if the setting is a list."""
    is_list = "tuple" in str(annotation(make, settings_of(make)[name]))
    return (value,) * (sizes["head_dim"] // 2) if is_list else value


def options(make: Any) -> Iterator[dict[str, Any]]:
    """Yield no settings, and every option of each bool and Literal."""
    yield {}
    for name, parameter in settings_of(make).items():
        kind = annotation(make, parameter)
        values = (
            (True, False)
            if kind is bool
            else typing.get_args(kind)
            if typing.get_origin(kind) is typing.Literal
            else ()
        )
        yield from ({name: value} for value in values if value != parameter.default)


def build(make: Any, sizes: dict[str, int], settings: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    return make(**{name: sizes[name] for name in context_of(make)}, **settings)


def values_of_attention(
    encoding: Any, sizes: dict[str, int], length: int, backend: str = "auto"
) -> dict[str, torch.Tensor]:
    """Return the output of attention in float32 and all gradients."""
    heads, dim, width = (sizes[name] for name in ("num_heads", "head_dim", "d_model"))
    g = torch.Generator().manual_seed(1)
    x = torch.randn(1, length, width, generator=g)
    q, k, v = (torch.randn(1, heads, length, dim, generator=g).requires_grad_() for _ in range(3))
    if encoding.acts_on_embedding():
        moved = encoding.embed(x, torch.arange(length)[None])[:, :, :dim][:, None]
        out = attend(q + moved, k + moved, v + moved, backend=backend)
    else:
        out = attend(q, k, v, encoding, tokens=TokenInfo(x=x if encoding.reads_content() else None), backend=backend)
    out.square().sum().backward()
    gradients = {name: p.grad for name, p in encoding.named_parameters() if p.grad is not None}
    return {"output": out.detach(), "q": q.grad, "k": k.grad, "v": v.grad, **gradients}


def assert_finite(make: Any, settings: dict[str, Any], sizes: dict[str, int], backend: str = "auto") -> bool:
    """Return False if the constructor rejects the settings, and fail unless attention is finite at every length."""
    try:
        encoding = build(make, sizes, settings)
    except ConfigError:
        return False
    for length in LENGTHS:
        if encoding.max_length is not None and length > encoding.max_length:
            continue
        for name, value in values_of_attention(encoding, sizes, length, backend).items():
            assert value.isfinite().all(), f"{make.__name__} with {settings}: {name} is not finite at length {length}"
    return True


NUMBERS = [(make, name) for make in ENCODINGS for name in float_settings(make)]


def test_float_settings_are_found() -> None:
    found = {f"{make.__name__}.{name}" for make, name in NUMBERS}
    assert {"RoPE.base", "YaRN.attention_factor", "LongRoPE.long_factor", "FIRE.eps", "T5.std", "PRoPE.p"} <= found


@pytest.mark.parametrize(
    "sizes",
    [pytest.param(SIZES[0], id="head_dim=8"), pytest.param(SIZES[1], id="head_dim=128", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize(("make", "name"), NUMBERS, ids=lambda x: getattr(x, "__name__", x))
def test_attention_is_finite_at_both_limits_of_every_setting(make: Any, name: str, sizes: dict[str, int]) -> None:
    accepted = 0
    for value in (LOW, HIGH, 0.0, 1.0, math.nextafter(1.0, 2.0)):
        for other in options(make):
            settings = {**other, name: as_declared(make, name, value, sizes)}
            accepted += assert_finite(make, settings, sizes)
        accepted += assert_finite(make, {name: as_declared(make, name, value, sizes)}, sizes, "reference")
    assert accepted


@pytest.mark.parametrize(("make", "name"), NUMBERS, ids=lambda x: getattr(x, "__name__", x))
def test_a_number_beyond_the_limits_is_rejected_in_one_line(make: Any, name: str) -> None:
    for value in BEYOND:
        settings = {name: as_declared(make, name, value, SIZES[0])}
        rejects = [lambda settings=settings: build(make, SIZES[0], settings)]
        if name != "rotary_fraction" or value > 1:  # small fractions depend on the model's head_dim
            rejects.append(lambda settings=settings: choose(make, **settings))
        for reject in rejects:
            with pytest.raises(ConfigError) as error:
                reject()
            assert "\n" not in str(error.value)
            assert len(str(error.value)) < 400


@pytest.mark.slow
@pytest.mark.parametrize("make", list(dict.fromkeys(make for make, _ in NUMBERS)), ids=lambda make: make.__name__)
def test_attention_is_finite_at_the_limits_of_two_settings(make: Any) -> None:
    others = [{}, {"max_length": LENGTHS[-1]}] if make is XPos else [{}]
    for sizes, (one, two) in itertools.product(SIZES, itertools.combinations(float_settings(make), 2)):
        for a, b, other in itertools.product((LOW, HIGH), (LOW, HIGH), others):
            settings = {one: as_declared(make, one, a, sizes), two: as_declared(make, two, b, sizes), **other}
            assert_finite(make, settings, sizes)


@pytest.mark.parametrize(
    ("make", "settings", "words"),
    [
        (YaRN, {"beta_fast": 1e308}, r"YaRN: beta_fast must be at most 1e\+12, got 1e\+308"),
        (YaRN, {"beta_slow": 1e-320}, "YaRN: beta_slow must be at least 1e-12, got 1e-320"),
        (FIRE, {"eps": 1e-300}, "eps must be 0, or at least 1e-12, got 1e-300"),
        (RoPE, {"base": 10**5000}, r"base must be .* got 1.000e\+5000"),
    ],
)
def test_messages_about_limits(make: Any, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build(make, SIZES[0], settings)


def test_published_values_fit() -> None:
    for make in (RoPE, Sandwich, Sinusoidal, TransformerXL):
        for base in (10.0, 100, 10_000, 1e6, 1e9):
            assert assert_finite(make, {"base": base}, SIZES[0])
    assert inspect.signature(FIRE).parameters["eps"].default >= LOW
