"""Outputs and gradients of every encoding on every attention backend of the CPU, as recorded in attention.json."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from lengthwise.attention import BACKENDS, TokenInfo, attend
from lengthwise.config import ConfigError
from lengthwise.encodings import ENCODINGS, PositionEncoding
from tests.frozen.comparison import TOLERANCE, differences, load, summary

HEADS, KEY_HEADS, HEAD_DIM, TRAIN_LENGTH = 4, 2, 16, 16
WIDTH = HEADS * HEAD_DIM
TOKENS = 100  # more than a block of any backend
WITHOUT_GRADIENTS = "flex"  # on CPUs, where it also takes half a second for each encoding
QUICK_BACKENDS = [name for name in BACKENDS if name != WITHOUT_GRADIENTS]

# Settings with which short texts show an effect, and encodings with the parts that patterns of layers may add.
SETTINGS = {
    "Learned": "max_length=128",
    "NTKByParts": "beta_fast=0.5,beta_slow=0.02",
    "YaRN": "beta_fast=2.0,beta_slow=0.1",
    "DynamicYaRN": "beta_fast=2.0,beta_slow=0.1",
    "Llama4": "step=4",
    "Ministral": "step=4",
    "Beam": "length=4.0",
    "Inkling": "length=4.0",
}
COMBINED = ("RoPE:temperature=ssmax,sinks=true", "ALiBi:temperature=inkling(length=4.0)", "FIRE:sinks=true")
CASES = [
    *(f"{make.__name__}:{SETTINGS[make.__name__]}" if make.__name__ in SETTINGS else make.__name__
      for make in ENCODINGS),
    *COMBINED,
]  # fmt: skip

ROW = torch.arange(TOKENS)
# What `attend` is called with beside q, k and v. `queries`: how many of the tokens are queries, from the end.
CALLS: dict[str, dict[str, Any]] = {
    "causal": {},
    "packed": {
        "documents": torch.stack([ROW // 40, 7 - ROW // 71]),
        "positions": (ROW + ROW // 7)[None],  # with gaps
        "queries": 50,
    },
    "window": {"window": 23},
    "bidirectional": {"causal": False},
}


@cache
def random(seed: int, *shape: int) -> Tensor:
    """Return normally distributed numbers in float64: those in float32 depend on the instruction set."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def build(case: str, dtype: torch.dtype = torch.float64) -> PositionEncoding:
    """Return an encoding whose parameters differ from 0, because with zeros some have no effect."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # so that the parameters are drawn in float64 in both dtypes
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            sizes = {"num_heads": HEADS, "head_dim": HEAD_DIM, "d_model": WIDTH, "train_length": TRAIN_LENGTH}
            encoding: PositionEncoding = ENCODINGS.parse(case).build(**sizes)
    finally:
        torch.set_default_dtype(default)
    with torch.no_grad():
        for number, parameter in enumerate(encoding.parameters()):
            if not parameter.any():
                parameter.copy_(random(number, *parameter.shape) / 4)
    return encoding.to(dtype).eval()


def results(
    encoding: PositionEncoding,
    backend: str,
    dtype: torch.dtype = torch.float64,
    *,
    documents: Tensor | None = None,
    positions: Tensor | None = None,
    queries: int = TOKENS,
    **arguments: Any,
) -> dict[str, Tensor]:
    """Return the output of `attend` and the gradients of the input, q, k, v and every parameter."""
    if positions is not None and (encoding.num_axes or 1) > 1:
        positions = torch.stack([positions // (1 + axis) for axis in range(encoding.num_axes or 1)], -1)
    embedded = encoding.acts_on_embedding()
    with torch.set_grad_enabled(backend != WITHOUT_GRADIENTS):
        x = random(11, 2, TOKENS, WIDTH).to(dtype).detach().requires_grad_()
        content = encoding.embed(x, ROW[None] if positions is None else positions) if embedded else x
        q, k, v = (
            (content @ random(7 + n, WIDTH, heads * HEAD_DIM).to(dtype) / 4)
            .unflatten(-1, (-1, HEAD_DIM))
            .transpose(1, 2)
            for n, heads in enumerate((HEADS, KEY_HEADS, KEY_HEADS))
        )
        q = q[:, :, TOKENS - queries :]
        tokens = TokenInfo(positions, documents, content)
        out = attend(q, k, v, None if embedded else encoding, tokens=tokens, backend=backend, **arguments)
        if backend == WITHOUT_GRADIENTS:
            return {"output": out}
        inputs = {"x": x, "q": q, "k": k, "v": v, **dict(encoding.named_parameters())}
        loss = (out * random(12, *out.shape).to(dtype)).sum()
        gradients = torch.autograd.grad(loss, list(inputs.values()), allow_unused=True, materialize_grads=True)
    return {"output": out, **dict(zip(inputs, gradients, strict=True))}


def summaries(
    encoding: PositionEncoding, backend: str, call: str, dtype: torch.dtype = torch.float64
) -> dict[str, list[float]] | None:
    """Return the summaries of all results, or None if the backend does not support the call."""
    try:
        found = results(encoding, backend, dtype, **CALLS[call])
    except ConfigError:
        return None
    return {name: summary(values) for name, values in found.items()}


def record() -> dict[str, Any]:
    """Return what attention.json is to contain: for each case and call, the backends that support it and what they all
    return.

    Numbers that differ from the recorded ones only by rounding stay.
    """
    recorded: dict[str, Any] = {}
    for case in CASES:
        encoding = build(case)
        for call in CALLS:
            found = {backend: summaries(encoding, backend, call) for backend in BACKENDS}
            by_backend = {backend: one for backend, one in found.items() if one is not None}
            expected = by_backend.get("reference", {})
            for backend, one in by_backend.items():
                changed = differences(one, {name: expected[name] for name in one}, TOLERANCE[torch.float64])
                assert not changed, f"{case}, {call}: {backend} differs from the reference: {changed}"
            name = f"{case}, {call}"
            entry = {"backends": list(by_backend), **expected}
            recorded[name] = RECORDED[name] if is_recorded(entry, name) else entry
    return recorded


RECORDED = load("attention")


def is_recorded(entry: dict[str, Any], name: str) -> bool:
    """Whether the record has this entry, up to rounding."""
    if name not in RECORDED or RECORDED[name]["backends"] != entry["backends"]:
        return False
    current, recorded = ({k: v for k, v in one.items() if k != "backends"} for one in (entry, RECORDED[name]))
    return not differences(current, recorded, TOLERANCE[torch.float64])


def require_recorded(case: str, backends: list[str], calls: list[str], dtype: torch.dtype = torch.float64) -> None:
    encoding = build(case, dtype)
    for call in calls:
        expected = dict(RECORDED[f"{case}, {call}"])
        supported = expected.pop("backends")
        for backend in backends:
            current = summaries(encoding, backend, call, dtype)
            assert (current is not None) == (backend in supported), f"{call}: {supported} supported it, now {backend}?"
            if current is not None:
                changed = differences(current, {name: expected[name] for name in current}, TOLERANCE[dtype])
                assert not changed, f"{call} on {backend}: {changed}"


def test_the_record_has_every_encoding() -> None:
    expected = [f"{case}, {call}" for case in CASES for call in CALLS]
    assert list(RECORDED) == expected, "after adding an encoding: python -m tests.frozen.record attention run_keys"


@pytest.mark.parametrize("case", CASES)
def test_outputs_and_gradients_are_the_recorded_ones(case: str) -> None:
    require_recorded(case, QUICK_BACKENDS, list(CALLS))
    require_recorded(case, QUICK_BACKENDS, ["causal"], torch.float32)


@pytest.mark.medium
@pytest.mark.parametrize("case", CASES)
def test_outputs_of_flex_attention_are_the_recorded_ones(case: str) -> None:
    require_recorded(case, [WITHOUT_GRADIENTS], list(CALLS))


@pytest.mark.parametrize(
    ("case", "changed"),
    [
        ("RoPE", "RoPE:base=10010.0"),
        ("XPos", "XPos:gamma=0.4004"),
        ("FIRE", "FIRE:c=0.1001"),
        ("T5", "T5:std=0.044044"),
        ("Inkling:length=4.0", "Inkling:length=4.004"),
    ],
)
def test_a_constant_that_is_a_thousandth_larger_is_noticed(case: str, changed: str) -> None:
    """The constant of one encoding, in the output and in a gradient."""
    expected = dict(RECORDED[f"{case}, causal"])
    backends = expected.pop("backends")
    for backend in set(QUICK_BACKENDS) & set(backends):
        current = summaries(build(changed), backend, "causal")
        assert current is not None
        names = [line.partition(":")[0] for line in differences(current, expected, TOLERANCE[torch.float64])]
        assert {"output", "q", "k", "v", "x"} <= set(names)


def all_numbers_changed(x: Tensor) -> Tensor:
    return x * (1 + 1e-8)


def one_number_changed(x: Tensor) -> Tensor:
    return x + 1e-6 * x.norm() * (torch.arange(x.numel()) == 5).view_as(x)


@pytest.mark.parametrize("change", [all_numbers_changed, one_number_changed])
@pytest.mark.parametrize("name", ["output", "q", "v", "layers.2.weight"])
def test_a_change_of_one_tensor_is_noticed(name: str, change: Callable[[Tensor], Tensor]) -> None:
    found = results(build("FIRE"), "reference")
    recorded = {key: summary(values) for key, values in found.items()}
    current = recorded | {name: summary(change(found[name]))}
    assert [line.partition(":")[0] for line in differences(current, recorded, TOLERANCE[torch.float64])] == [name]
