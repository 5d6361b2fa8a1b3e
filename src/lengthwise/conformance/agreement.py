"""Question 2: are the output and all gradients those that the forms define?"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, cast

import torch
from torch import Tensor

from lengthwise.attention import Mask, gradients_unsupported_reason
from lengthwise.conformance import float64_reference
from lengthwise.conformance.answers import Failure, Refused, question
from lengthwise.conformance.batch_scenarios import SCENARIOS, Scenario, gaps, packed, require_close
from lengthwise.conformance.cases import (
    HEAD_DIM,
    HEADS,
    EncodingCase,
    Layer,
    numbers,
    on_axes,
    run,
    supported_positions,
    tokens,
)
from lengthwise.encodings import PositionEncoding
from lengthwise.encodings.piecewise import GRID
from lengthwise.forms import AttentionModifiers, PiecewiseLinearBias
from lengthwise.models.decoder import Block
from lengthwise.positions import consecutive
from lengthwise.span import Span, document_lengths

FAR = 2000  # a position beyond those of all scenarios


@question(
    2,
    "agrees",
    "Output and all gradients: the reference equals a scalar computation for each pair, other backends equal the "
    "reference",
)
def agrees(case: EncodingCase, backend: str) -> str:
    _model_applies(case, backend)
    if backend == "reference":
        _equals_float64_reference(case)
        _gradients_equal_finite_differences(case)
        return "pair by pair and by finite differences"
    reason = gradients_unsupported_reason(backend, "cpu")
    with torch.set_grad_enabled(reason is None):
        _equals_reference(case, backend)
    if reason:
        raise Refused(f"outputs agree, and there are no gradients: {reason}")
    return f"{len(SCENARIOS)} shapes and a model"


def _equals_reference(case: EncodingCase, backend: str) -> None:
    """Compare outputs with the reference backend, and gradients too if they are enabled.

    If a form approximates a function, a backend has to equal the reference of the approximation. Its output also has to
    be within the stated bound of the exact function. (test_approximation.py derives the bounds for gradients.)
    """
    bidirectional = case.modifiers().bidirectional
    for scenario in SCENARIOS:
        for causal in (True, False) if bidirectional else (True,):
            actual = _output_and_gradients(case, backend, scenario, causal=causal)
            where = scenario.name if causal else f"{scenario.name}, bidirectional"
            _compare(where, actual, _expected(case, scenario, causal), 1e-10)
            if (error := chord_error(case.build(num_heads=scenario.heads))) > 0:
                with torch.no_grad():
                    exact = _output_and_gradients(case, "reference", scenario, causal=causal)
                # If every logit is off by at most `error`, every weight changes by at most the fraction 2 · error, and
                # an output by at most that fraction of the largest value, which is less than 10 here.
                _compare(f"{where}, the exact function", {"output": actual["output"]}, exact, 1e-10 + 2 * error * 10)
    _compare("2-layer model", _model_gradients(case, backend), _expected(case, None, True), 1e-9)


def chord_error(encoding: PositionEncoding) -> float:
    """Return the bound of the chords' error in nats, max|f''| / (8 · 4095²) on [0, 1]; 0 if the segments are exact."""
    positions = torch.tensor([supported_positions(encoding, 0, FAR)])
    terms = encoding.modifiers(Span(positions, positions, int(positions.max()) + 1)).terms
    functions = [term.exact for term in terms if isinstance(term, PiecewiseLinearBias) and term.exact is not None]
    # 2 % more, because finite differences miss a narrow peak.
    return sum(1.02 * curvature(f) / (8 * (GRID - 1) ** 2) for f in functions)


@torch.no_grad()
def curvature(f: Callable[[Tensor], Tensor]) -> float:
    """Return max|f''| on [0, 1] over all heads, by second differences."""
    x, step = torch.linspace(0, 1, 20_001, dtype=torch.float64)[:, None], 1e-4
    return float(((f(x + step) - 2 * f(x) + f(x - step)) / step**2).abs().max())


def _approximate(*encodings: Any) -> None:
    """Remove the exact functions from forms, so that the reference uses the same segments as other backends."""

    def without_exact(original: Callable[[Span], AttentionModifiers], span: Span) -> AttentionModifiers:
        exact = original(span)
        terms = (replace(t, exact=None) if isinstance(t, PiecewiseLinearBias) else t for t in exact.terms)
        return replace(exact, terms=tuple(terms))

    for encoding in encodings:
        encoding.modifiers = partial(without_exact, encoding.modifiers)


def _compare(where: str, actual: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    assert actual.keys() == (expected.keys() if torch.is_grad_enabled() else actual.keys() & expected.keys())
    for name in actual:
        require_close(f"{where}: {name}", actual[name], expected[name], tolerance)


@lru_cache(maxsize=512)  # more than one encoding with all its settings needs
def _expected(case: EncodingCase, scenario: Scenario | None, causal: bool) -> dict[str, Tensor]:
    """Return the reference's output and gradients for a scenario, or for a model if it is None.

    They are cached, because every backend is compared with them. If a form is an approximation, they are those of the
    approximation.
    """
    with torch.enable_grad():
        if scenario is None:
            return _model_gradients(case, "reference", approximate=True)
        return _output_and_gradients(case, "reference", scenario, causal=causal, approximate=True)


def _output_and_gradients(
    case: EncodingCase, backend: str, scenario: Scenario, *, causal: bool = True, approximate: bool = False
) -> dict[str, Tensor]:
    encoding = case.build(num_heads=scenario.heads)
    if approximate:
        _approximate(encoding)
    layer = Layer(encoding, backend, num_heads=scenario.heads, kv_heads=scenario.kv_heads)
    x = numbers(11, scenario.batch, scenario.keys, layer.width).requires_grad_()
    out = layer(
        x,
        positions=on_axes(encoding, scenario.positions(scenario.keys)) if scenario.positions else None,
        documents=scenario.documents(scenario.keys) if scenario.documents else None,
        queries=scenario.queries,
        causal=causal,
    )
    return _with_gradients("output", out, 12, [("the input", x), *encoding.named_parameters()])


def _with_gradients(name: str, out: Tensor, seed: int, parameters: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """Return an output and all gradients, and 0 for a parameter without one. (Question 10 requires one for each.)"""
    if not torch.is_grad_enabled():
        return {name: out}
    (out * numbers(seed, *out.shape)).sum().backward()
    gradients = {f"gradient of {n}": torch.zeros_like(p) if p.grad is None else p.grad for n, p in parameters}
    return {name: out.detach(), **gradients}


def _model_gradients(case: EncodingCase, backend: str, *, approximate: bool = False) -> dict[str, Tensor]:
    model = case.decoder(backend)
    if approximate:
        _approximate(*model.encodings)
    return _with_gradients("logits", model(tokens(5, 3, 13)), 13, model.named_parameters())


def _model_applies(case: EncodingCase, backend: str) -> None:
    """Compare the embeddings and each layer's attention in a model with the encoding applied by hand."""
    ids, documents = tokens(6, 2, 9), packed((4,), (7,))(9)
    gap_positions = gaps(4, 2, 1500)(9)
    for share in (True, False):
        model = case.decoder(backend, share=share)
        if backend != "reference":
            _approximate(*model.encodings)
        inputs: list[Tensor] = []
        blocks = cast(list[Block], list(model.blocks))
        encodings = cast(list[PositionEncoding], list(model.encodings) * (len(blocks) // len(model.encodings)))
        for module in (module for block in blocks for module in (block, block.out)):
            module.register_forward_pre_hook(lambda _, arguments, inputs=inputs: inputs.append(arguments[0]))
        for name, arguments, positions in (
            ("", {}, torch.arange(9)[None]),
            (", given positions", {"positions": on_axes(encodings[0], gap_positions)}, gap_positions),
            (", packed documents", {"documents": documents}, consecutive(documents)),
        ):
            inputs.clear()
            with torch.no_grad():
                model(ids, **arguments)
                embedded = encodings[0].embed(model.embed_inputs(ids), positions)
                require_close(f"2-layer model{name}: embedding", inputs[0], embedded)
                pair = arguments.get("positions"), arguments.get("documents")
                for n, (block, encoding) in enumerate(zip(blocks, encodings, strict=True)):
                    normed = block.attention_norm(inputs[2 * n])
                    expected = run(encoding, "reference", *block.qkv_heads(normed), *pair, normed)
                    actual = inputs[2 * n + 1]
                    require_close(f"2-layer model{name}: layer {n}", actual, expected.transpose(1, 2).flatten(2))


def _equals_float64_reference(case: EncodingCase) -> None:
    encoding = case.build()
    for name, documents, positions in (
        ("one row", None, torch.arange(7)[None]),
        ("packed, other positions in each row", torch.tensor([[0, 0, 0, 1, 1, 1, 1], [5, 5, 5, 5, 5, 5, 2]]), None),
        ("far apart", None, torch.tensor([[0, 2, 90, 130, 700, 1100, 2000]])),
    ):
        ids = positions if positions is not None else consecutive(documents)  # type: ignore[arg-type]
        layer = Layer(encoding, "reference", kv_heads=2)
        x = numbers(14, len(ids), 7, HEADS * HEAD_DIM)
        embedded = encoding.embed(x, ids)
        for causal in (True, False) if case.modifiers().bidirectional else (True,):
            visible = Mask(7, 7, causal, documents).visible(x.device).expand(len(ids), -1, -1)
            lengths = document_lengths(ids, documents).expand(len(ids), -1)
            expected = float64_reference.output(
                encoding, *layer.qkv(embedded), ids, lengths, visible, HEAD_DIM**-0.5, embedded, documents
            )
            actual = layer(x, positions, documents, causal=causal)
            require_close(name if causal else f"{name}, bidirectional", actual, expected, 1e-11)


def _gradients_equal_finite_differences(case: EncodingCase) -> None:
    """Compare every gradient along a random direction with a central difference of the loss."""
    encoding = case.build()
    layer = Layer(encoding, "reference", kv_heads=2)
    x = numbers(15, 2, 9, HEADS * HEAD_DIM).requires_grad_()
    weights, step = numbers(16, 2, HEADS, 9, HEAD_DIM), 1e-6
    loss = lambda: (layer(x) * weights).sum()  # noqa: E731
    loss().backward()
    for n, (name, tensor) in enumerate([("the input", x), *encoding.named_parameters()]):
        direction = numbers(20 + n, *tensor.shape)
        derivative = 0.0 if tensor.grad is None else float((tensor.grad * direction).sum())
        with torch.no_grad():
            tensor += step * direction
            above = float(loss())
            tensor -= 2 * step * direction
            below = float(loss())
            tensor += step * direction
        slope = (above - below) / (2 * step)
        if not abs(derivative - slope) <= 1e-6 * max(1.0, abs(slope)):
            raise Failure(
                f"gradient of {name} along a direction is {derivative:.9g}, but the loss changes by {slope:.9g}"
            )
