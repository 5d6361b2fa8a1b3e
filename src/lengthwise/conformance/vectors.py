"""Question 1: does it equal reference values that were computed without Lengthwise?"""

import json
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lengthwise.attention import Mask, plan, unsupported_reason, with_content
from lengthwise.attention.backends import reference
from lengthwise.conformance.answers import Failure, NotApplicable, Refused, question
from lengthwise.conformance.cases import EncodingCase
from lengthwise.encodings import PositionEncoding
from lengthwise.forms import AttentionModifiers
from lengthwise.span import Span
from lengthwise.user_classes import is_builtin_class

# Reference values are part of the tests, so an installed package does not have them.
FOLDER = Path(__file__).parents[3] / "tests" / "vectors"


def file_of(make: type) -> Path:
    """Return the file with an encoding's reference values, named like the class apart from case and underscores."""
    if not FOLDER.is_dir():
        raise NotApplicable("reference values are in the source tree, which this installation does not have")
    for path in FOLDER.glob("*.json"):
        if path.stem.replace("_", "").lower() == make.__name__.lower():
            return path
    if not is_builtin_class(make):
        raise NotApplicable("it is an encoding from another package, which has no reference values here")
    raise Failure(f"tests/vectors has no file for {make.__name__}")


def load(make: type) -> list[dict[str, Any]]:
    """Return the cases in an encoding's file."""
    cases: list[dict[str, Any]] = json.loads(file_of(make).read_text(encoding="utf-8"))["cases"]
    return cases


def built(make: type[PositionEncoding], case: dict[str, Any]) -> PositionEncoding:
    """Return the encoding of a case, in float64 and with the case's parameters."""
    settings = {name: tuple(v) if isinstance(v, list) else v for name, v in case.get("settings", {}).items()}
    encoding = make(**case.get("context", {}), **settings).double().eval()
    state = encoding.state_dict()
    for name, numbers in case.get("parameters", {}).items():
        value = torch.tensor(numbers, dtype=torch.float64)
        if name not in state or state[name].shape != value.shape:
            raise Failure(f"{case['name']}: {make.__name__} must have a parameter {name} of shape {tuple(value.shape)}")
        state[name] = value
    encoding.load_state_dict(state)
    return encoding


@question(1, "vectors", "It equals reference values that were computed without Lengthwise", variants=False)
def equals_vectors(case: EncodingCase, backend: str) -> str:
    cases = load(case.cls)
    refused = []
    for vector in cases:
        encoding = built(case.cls, vector)
        what = f"{vector['name']} ({vector['what']}, {vector['from']})"
        try:
            _COMPARE[vector["what"]](encoding, vector, backend, what)
        except Refused as error:  # the backend does not support these positions; it is compared on the other cases
            refused.append(f"{vector['name']}: {error}")
    if len(refused) == len(cases):
        raise Refused(refused[0])
    return f"{len(cases) - len(refused)} cases" + (f", {len(refused)} refused ({refused[0]})" if refused else "")


def _bias(encoding: PositionEncoding, case: dict[str, Any], backend: str, what: str) -> None:
    heads, queries, keys = _numbers(case["expected"]).shape
    zeros = {"q": torch.zeros(heads, queries, 2).tolist(), "k": torch.zeros(heads, keys, 2).tolist()}
    _logits(encoding, {**case, **zeros, "scale": 1.0}, backend, what)


def _logits(encoding: PositionEncoding, case: dict[str, Any], backend: str, what: str) -> None:
    q, k, expected = (_numbers(case[name]) for name in ("q", "k", "expected"))
    modifiers, visible = _modifiers(encoding, case), _mask(case).visible(q.device)[:, None]
    actual = reference.logits(modifiers, q[None], k[None], _span(case), visible, case["scale"])
    _require_close(what, actual[0], expected, case)
    # A backend has no logits to compare. Its output is softmax(logits) if the values are one-hot vectors of the keys.
    if expected.isnan().all(-1).any() or case.get("everywhere"):
        return
    # A backend takes the queries for the last keys by index. So queries and keys must be the same tokens, or there is
    # one query, which is the last key whatever its position ID and sees all keys. Cases with content or transforms are
    # written so.
    if case["query"] == case["key"] or len(case["query"]) == 1 or "x" in case or modifiers.logit_transform:
        _compare_weights(modifiers, case, backend, what)


def _compare_weights(modifiers: AttentionModifiers, case: dict[str, Any], backend: str, what: str) -> None:
    """Compare the attention weights of a backend with the softmax of the expected logits."""
    q, k, expected = (_numbers(case[name]) for name in ("q", "k", "expected"))
    span, keys = _span(case), expected.shape[2]
    v = torch.eye(keys, dtype=torch.float64).expand(len(k), -1, -1)
    width = max(keys, q.shape[-1])
    # q, k and v must have the same width, so dimensions of zeros are appended. That is wrong for rotations, for vectors
    # that are added to queries or keys, and for transforms that read q. Then v is split into parts of the width of q
    # instead.
    fixed_width = (
        modifiers.rotation
        or modifiers.product
        or modifiers.logit_transform
        or any(term.reads_q or term.reads_k for term in modifiers.terms)
    )
    if fixed_width and width > q.shape[-1]:
        v_chunks = [v[..., n : n + q.shape[-1]] for n in range(0, keys, q.shape[-1])]
    else:
        v_chunks, q, k = [_widen(v, width)], _widen(q, width), _widen(k, width)
    if reason := unsupported_reason(backend, modifiers, span):
        raise Refused(reason)
    attend = partial(
        plan(modifiers, span, _mask(case), q[None], backend=backend), q[None], k[None], scale=case["scale"]
    )
    actual = torch.cat([attend(_widen(p, q.shape[-1])[None])[0, ..., : p.shape[-1]] for p in v_chunks], -1)
    hidden = expected.isnan()
    weights = reference.weights_of(modifiers, expected.masked_fill(hidden, float("-inf"))[None])[0]
    # An absolute error of a logit is a relative error of the weight. Only the reference evaluates functions exactly.
    error = case["atol"] + case["rtol"] * float(expected[~hidden].abs().max())
    error = 2 * (error if backend == "reference" else error + case.get("approximation", 0.0))
    _require_close(f"{what}, through {backend}", actual[..., :keys], weights, {"atol": 0.0, "rtol": error})


def _widen(x: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(x, (0, width - x.shape[-1]))


def _output(encoding: PositionEncoding, case: dict[str, Any], backend: str, what: str) -> None:
    q, k, v = (_numbers(case[name])[None] for name in ("q", "k", "v"))
    attend = plan(_modifiers(encoding, case), _span(case), _mask(case), q, backend=backend)
    actual = attend(q, k, v, scale=case["scale"])
    _require_close(f"{what}, through {backend}", actual[0], _numbers(case["expected"]), case)


def _rotated(encoding: PositionEncoding, case: dict[str, Any], backend: str, what: str) -> None:
    rotation = encoding.modifiers(_span({"query": case["positions"], "key": case["positions"]})).rotation
    if rotation is None:
        raise Failure(f"{what}: the encoding has no rotation")
    x, expected = _numbers(case["x"])[None, None], _numbers(case["expected"])
    _require_close(f"{what}, query", rotation.rotate_query(x)[0, 0], expected, case)
    _require_close(f"{what}, key", rotation.rotate_key(x)[0, 0], expected, case)


def _embed(encoding: PositionEncoding, case: dict[str, Any], backend: str, what: str) -> None:
    expected = _numbers(case["expected"])
    actual = encoding.embed(torch.zeros(1, *expected.shape, dtype=torch.float64), torch.tensor([case["positions"]]))
    _require_close(what, actual[0], expected, case)


def _error(encoding: PositionEncoding, case: dict[str, Any], backend: str, what: str) -> None:
    positions = torch.tensor([case["positions"]])
    try:
        x = torch.zeros(1, positions.shape[1], case["context"]["d_model"], dtype=torch.float64)
        encoding.embed(x, positions)
        encoding.modifiers(Span(positions, positions, int(positions.max()) + 1))
    except ValueError as error:
        if missing := [word for word in case["expected"] if word not in str(error)]:
            raise Failure(f"{what}: the error {str(error)!r} lacks {missing}") from error
    else:
        raise Failure(f"{what}: no error")


_COMPARE = {"bias": _bias, "logits": _logits, "output": _output, "rotated": _rotated, "embed": _embed, "error": _error}


def _span(case: dict[str, Any]) -> Span:
    """Return the span of a case. A position is a number, or a list of numbers on several axes."""
    q, k = torch.tensor([case["query"]]), torch.tensor([case["key"]])
    length = int(max(q.max(), k.max())) + 1
    return Span(q, k, length) if q.ndim == 2 else Span(q.amax(-1), k.amax(-1), length, axes_q=q, axes_k=k)


def _mask(case: dict[str, Any]) -> Mask:
    """Return the causal mask in which the queries are the last keys."""
    documents = torch.tensor([case["documents"]]) if "documents" in case else None
    return Mask(len(case["query"]), len(case["key"]), documents=documents)


def _modifiers(encoding: PositionEncoding, case: dict[str, Any]) -> AttentionModifiers:
    span = _span(case)
    modifiers = encoding.modifiers(span)
    if encoding.reads_content():
        modifiers = with_content(modifiers, encoding, encoding.features(_numbers(case["x"])[None]), span, _mask(case))
    return modifiers


def _numbers(nested: Any) -> Tensor:
    """Return nested lists as a float64 tensor, with NaN for null."""
    if isinstance(nested, list):
        return torch.stack([_numbers(x) for x in nested])
    return torch.tensor(float("nan") if nested is None else nested, dtype=torch.float64)


def _require_close(what: str, actual: Tensor, expected: Tensor, case: dict[str, Any]) -> None:
    if actual.shape != expected.shape:
        raise Failure(f"{what}: shape {tuple(actual.shape)}, expected {tuple(expected.shape)}")
    compared = ~expected.isnan()
    actual, expected = actual.detach()[compared], expected[compared]
    # Reference values have rounding errors too: 1e-13 of the largest.
    allowed = case["atol"] + case["rtol"] * expected.abs() + 1e-13 * expected.abs().max()
    error = (actual - expected).abs()
    if not bool((error <= allowed).all()):
        worst = int((error - allowed).nan_to_num(float("inf")).argmax())
        raise Failure(f"{what}: {float(actual[worst]):.12g} where {float(expected[worst]):.12g} is expected")
