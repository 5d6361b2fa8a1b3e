"""Question 2: is the output, and every gradient, what the forms mean?"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import cast

import torch
from torch import Tensor

from lengthwise.attention import Mask, no_gradients
from lengthwise.conformance import float64_reference
from lengthwise.conformance.answers import Refused, Wrong, question
from lengthwise.conformance.batch_scenarios import SCENARIOS, Scenario, gaps, packed, require_close
from lengthwise.conformance.cases import (
    HEAD_DIM,
    HEADS,
    EncodingCase,
    Layer,
    modifiers_with,
    numbers,
    run,
    served,
    tokens,
)
from lengthwise.encodings import PositionEncoding
from lengthwise.encodings.piecewise import GRID
from lengthwise.forms import AttentionModifiers, PiecewiseLinearBias
from lengthwise.models.decoder import Block
from lengthwise.positions import consecutive
from lengthwise.span import Span, own_lengths

Change = Callable[[PositionEncoding], PositionEncoding]

FAR = 2000  # a position past those of all scenes


@question(
    2,
    "agrees",
    "Output and every gradient: the reference equals plain numbers pair by pair, the others equal the reference",
)
def agrees(case: EncodingCase, backend: str) -> str:
    _model_applies(case, backend)
    if backend == "reference":
        _equals_oracle(case)
        _gradients_are_slopes(case)
        return "pair by pair and by finite differences"
    why = no_gradients(backend, "cpu")
    with torch.set_grad_enabled(why is None):
        _equals_reference(case, backend)
    if why:
        raise Refused(f"outputs agree, and there are no gradients: {why}")
    return f"{len(SCENARIOS)} shapes and a model"


def _equals_reference(case: EncodingCase, backend: str) -> None:
    """In its gradients too, where they are enabled.

    Where a form approximates a function, a backend has to equal the reference of the approximation itself, and its output
    has to lie within the stated bound of the function. (Of gradients test_approximation.py derives the bounds.)
    """
    bidirectional = _looks_both_ways(case)
    for scene in SCENARIOS:
        for causal in (True, False) if bidirectional else (True,):
            got = _output_and_gradients(case, backend, scene, causal=causal)
            where = scene.name if causal else f"{scene.name}, both ways"
            _compare(where, got, _wanted(case, scene, causal), 1e-10)
            if (off := chord_error(case.build(num_heads=scene.heads))) > 0:
                with torch.no_grad():
                    exact = _output_and_gradients(case, "reference", scene, causal=causal)
                # An error of `off` in every logit changes a weight by at most 2 · off of itself, and an output by at most
                # that share of the largest value; 10 is more than any value here is.
                _compare(f"{where}, the function itself", {"output": got["output"]}, exact, 1e-10 + 2 * off * 10)
    _compare("2-layer model", _model_gradients(case, backend), _wanted(case, None, True), 1e-9)


def chord_error(encoding: PositionEncoding) -> float:
    """How far the pieces of a bias are off in nats: max|f''| / (8 · 4095²) on [0, 1]; 0 where they are exact."""
    at = torch.tensor([served(encoding, 0, FAR)])
    terms = encoding.modifiers(Span(at, at, int(at.max()) + 1)).terms
    functions = [term.exact for term in terms if isinstance(term, PiecewiseLinearBias) and term.exact is not None]
    return sum(1.02 * curvature(f) / (8 * (GRID - 1) ** 2) for f in functions)  # 2 %: differences miss a narrow peak


@torch.no_grad()
def curvature(f: Callable[[Tensor], Tensor]) -> float:
    """max|f''| on [0, 1], of all heads, by second differences."""
    x, step = torch.linspace(0, 1, 20_001, dtype=torch.float64)[:, None], 1e-4
    return float(((f(x + step) - 2 * f(x) + f(x - step)) / step**2).abs().max())


def approximated(encoding: PositionEncoding) -> PositionEncoding:
    """The encoding without the functions that its pieces approximate, so that the reference has what other backends have."""
    say = encoding.modifiers

    def modifiers(span: Span) -> AttentionModifiers:
        whole = say(span)
        pieces = (replace(t, exact=None) if isinstance(t, PiecewiseLinearBias) else t for t in whole.terms)
        return replace(whole, terms=tuple(pieces))

    encoding.modifiers = modifiers  # type: ignore[method-assign]
    return encoding


def _compare(where: str, got: dict[str, Tensor], wanted: dict[str, Tensor], tolerance: float) -> None:
    assert got.keys() == (wanted.keys() if torch.is_grad_enabled() else got.keys() & wanted.keys())
    for name in got:
        require_close(f"{where}: {name}", got[name], wanted[name], tolerance)


@lru_cache(maxsize=512)  # more than one encoding with all its settings has
def _wanted(case: EncodingCase, scene: Scenario | None, causal: bool) -> dict[str, Tensor]:
    """The reference's answers with all gradients, in a scene or (None) in a model: made once, asked for by every backend.
    Of an approximation those of the approximation itself."""
    with torch.enable_grad():
        if scene is None:
            return _model_gradients(case, "reference", approximated)
        return _output_and_gradients(case, "reference", scene, approximated, causal=causal)


def _as_it_is(encoding: PositionEncoding) -> PositionEncoding:
    return encoding


def _output_and_gradients(
    case: EncodingCase, backend: str, scene: Scenario, change: Change = _as_it_is, *, causal: bool = True
) -> dict[str, Tensor]:
    encoding = change(case.build(num_heads=scene.heads))
    layer = Layer(encoding, backend, num_heads=scene.heads, kv_heads=scene.kv_heads)
    x = numbers(11, scene.batch, scene.keys, layer.width).requires_grad_()
    out = layer(
        x,
        positions=scene.positions(scene.keys) if scene.positions else None,
        documents=scene.documents(scene.keys) if scene.documents else None,
        queries=scene.queries,
        causal=causal,
    )
    if not torch.is_grad_enabled():
        return {"output": out}
    (out * numbers(12, *out.shape)).sum().backward()
    assert x.grad is not None
    return {"output": out.detach(), "gradient of the input": x.grad, **_of_parameters(encoding)}


def _of_parameters(module: torch.nn.Module) -> dict[str, Tensor]:
    """A parameter that was not reached counts as one whose gradient is 0; question 10 asks for more."""
    return {f"gradient of {n}": torch.zeros_like(p) if p.grad is None else p.grad for n, p in module.named_parameters()}


def _model_gradients(case: EncodingCase, backend: str, change: Change = _as_it_is) -> dict[str, Tensor]:
    model = case.decoder(backend)
    for encoding in model.encodings:
        change(cast(PositionEncoding, encoding))
    logits = model(tokens(5, 3, 13))
    if not torch.is_grad_enabled():
        return {"logits": logits}
    (logits * numbers(13, *logits.shape)).sum().backward()
    return {"logits": logits.detach(), **_of_parameters(model)}


def _model_applies(case: EncodingCase, backend: str) -> None:
    """What a model's layers see and give is what the encoding says, module by module."""
    ids, given_positions, documents = tokens(6, 2, 9), gaps(4, 2, 1500)(9), packed((4,), (7,))(9)
    for share in (True, False):
        model = case.decoder(backend, share=share)
        for encoding in model.encodings if backend != "reference" else ():
            approximated(cast(PositionEncoding, encoding))
        seen: list[Tensor] = []
        note = partial(_note, seen)
        blocks = cast(list[Block], list(model.blocks))
        encodings = cast(
            list[PositionEncoding], [model.encodings[n % len(model.encodings)] for n in range(len(blocks))]
        )
        for block in blocks:
            block.register_forward_pre_hook(note)
            block.out.register_forward_pre_hook(note)
        for name, given, at in (
            ("", {}, torch.arange(9)[None]),
            (", given positions", {"positions": given_positions}, given_positions),
            (", packed documents", {"documents": documents}, consecutive(documents)),
        ):
            seen.clear()
            with torch.no_grad():
                model(ids, **given)
                require_close(
                    f"2-layer model{name}: embedding", seen[0], encodings[0].embed(model.embed_inputs(ids), at)
                )
                pair = given.get("positions"), given.get("documents")
                for n, (block, encoding) in enumerate(zip(blocks, encodings, strict=True)):
                    normed = block.attention_norm(seen[2 * n])
                    wanted = run(encoding, "reference", *block.qkv_heads(normed), *pair, normed)
                    require_close(f"2-layer model{name}: layer {n}", seen[2 * n + 1], wanted.transpose(1, 2).flatten(2))


def _looks_both_ways(case: EncodingCase) -> bool:
    """It says what it does to keys after the query."""
    encoding = case.build()
    return modifiers_with(encoding, Span.of(2), numbers(6, 1, 2, HEADS * HEAD_DIM)).bidirectional


def _note(seen: list[Tensor], module: object, given: tuple[Tensor, ...]) -> None:
    seen.append(given[0])


def _equals_oracle(case: EncodingCase) -> None:
    encoding = case.build()
    for name, documents, positions in (
        ("one row", None, torch.arange(7)[None]),
        ("packed, other positions in each row", torch.tensor([[0, 0, 0, 1, 1, 1, 1], [5, 5, 5, 5, 5, 5, 2]]), None),
        ("far apart", None, torch.tensor([[0, 2, 90, 130, 700, 1100, 2000]])),
    ):
        at = positions if positions is not None else consecutive(documents)  # type: ignore[arg-type]
        layer = Layer(encoding, "reference", kv_heads=2)
        x = numbers(14, len(at), 7, HEADS * HEAD_DIM)
        embedded = encoding.embed(x, at)
        for causal in (True, False) if _looks_both_ways(case) else (True,):
            visible = Mask(7, 7, causal, documents).visible(x.device).expand(len(at), -1, -1)
            own = own_lengths(at, documents).expand(len(at), -1)
            wanted = float64_reference.output(
                encoding, *layer.qkv(embedded), at, own, visible, HEAD_DIM**-0.5, embedded, documents
            )
            got = layer(x, positions, documents, causal=causal)
            require_close(name if causal else f"{name}, both ways", got, wanted, 1e-11)


def _gradients_are_slopes(case: EncodingCase) -> None:
    """Every gradient, along a random direction, against the difference of the loss on both sides."""
    encoding = case.build()
    layer = Layer(encoding, "reference", kv_heads=2)
    x = numbers(15, 2, 9, HEADS * HEAD_DIM).requires_grad_()
    weights, step = numbers(16, 2, HEADS, 9, HEAD_DIM), 1e-6
    loss = lambda: (layer(x) * weights).sum()  # noqa: E731
    loss().backward()
    for n, (name, tensor) in enumerate([("the input", x), *encoding.named_parameters()]):
        direction = numbers(20 + n, *tensor.shape)
        along = 0.0 if tensor.grad is None else float((tensor.grad * direction).sum())
        with torch.no_grad():
            tensor += step * direction
            above = float(loss())
            tensor -= 2 * step * direction
            below = float(loss())
            tensor += step * direction
        slope = (above - below) / (2 * step)
        if not abs(along - slope) <= 1e-6 * max(1.0, abs(slope)):
            raise Wrong(f"gradient of {name} along a direction: {along:.9g}, and the loss changes by {slope:.9g}")
