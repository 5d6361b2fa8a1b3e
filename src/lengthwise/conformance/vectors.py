"""Question 1: does it equal reference values that were computed without it?"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lengthwise.attention import Mask, plan, reference, unsupported_reason, with_content
from lengthwise.class_versions import is_own
from lengthwise.conformance.answers import NotApplicable, Refused, Wrong, question
from lengthwise.conformance.cases import EncodingCase
from lengthwise.encodings import PositionEncoding
from lengthwise.forms import AttentionModifiers, KeyBias, RelativeKeyBias
from lengthwise.span import Span

# Vectors belong to the tests, and are there where the source tree is.
FOLDER = Path(__file__).parents[3] / "tests" / "vectors"


def load(make: type) -> list[dict[str, Any]]:
    """The cases of an encoding's file, which is called like the class (case and underscores do not count)."""
    if not FOLDER.is_dir():
        raise NotApplicable("reference values are in the source tree, and this is an installation without it")
    for path in FOLDER.glob("*.json"):
        if path.stem.replace("_", "").lower() == make.__name__.lower():
            cases: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cases"]
            return cases
    if not is_own(make):
        raise NotApplicable("an encoding from another package: its reference values are not here")
    raise Wrong(f"tests/vectors has no file for {make.__name__}")


def built(make: type[PositionEncoding], case: dict[str, Any]) -> PositionEncoding:
    """The encoding that a case describes, in float64, its parameters set."""
    settings = {name: tuple(v) if isinstance(v, list) else v for name, v in case.get("settings", {}).items()}
    encoding = make(**case.get("context", {}), **settings).double().eval()
    state = encoding.state_dict()
    for name, value in case.get("parameters", {}).items():
        if name not in state or state[name].shape != torch.tensor(value).shape:
            raise Wrong(
                f"{case['name']}: {make.__name__} has no parameter {name} of shape {tuple(torch.tensor(value).shape)}"
            )
        state[name] = torch.tensor(value, dtype=torch.float64)
    encoding.load_state_dict(state)
    return encoding


@question(1, "vectors", "It equals its vectors, which were made without it", variants=False)
def equals_vectors(case: EncodingCase, backend: str) -> str:
    cases = load(case.make)
    refused = []
    for vector in cases:
        encoding = built(case.make, vector)
        what = f"{vector['name']} ({vector['what']}, {vector['from']})"
        try:
            _COMPARE[vector["what"]](encoding, vector, backend, what)
        except Refused as said:  # positions that this backend does not serve; the other cases count
            refused.append(f"{vector['name']}: {said}")
    if len(refused) == len(cases):
        raise Refused(refused[0])
    return f"{len(cases) - len(refused)} cases" + (f", {len(refused)} refused ({refused[0]})" if refused else "")


def _bias(encoding: PositionEncoding, case: dict[str, Any], backend: str, what: str) -> None:
    wanted = _numbers(case["expected"])
    heads, queries, keys = wanted.shape
    _logits(
        encoding,
        {**case, "q": torch.zeros(heads, queries, 2).tolist(), "k": torch.zeros(heads, keys, 2).tolist(), "scale": 1.0},
        backend,
        what,
    )


def _logits(encoding: PositionEncoding, case: dict[str, Any], backend: str, what: str) -> None:
    q, k, wanted = (_numbers(case[name]) for name in ("q", "k", "expected"))
    span, mask, scale = _span(case), _mask(case), case["scale"]
    modifiers = _effect(encoding, case)
    got = reference.logits(modifiers, q[None], k[None], span, mask.visible(q.device)[:, None], scale)
    _close(what, got[0], wanted, case)
    # Through the backend: values that mark their key make its output the softmax of the logits. There the queries are
    # the last keys, so each goes with a key of its own: the expected logits of a square, or of one query.
    if wanted.isnan().all(-1).any() or case.get("everywhere"):
        return
    # One query: the last key is index of the query itself, whatever position it claims: nothing is hidden.
    if case["query"] == case["key"] or len(case["query"]) == 1 or "x" in case or modifiers.rewrite:
        _weights(modifiers, span, mask, q, k, wanted, scale, backend, case, what)


def _weights(
    modifiers: AttentionModifiers,
    span: Span,
    mask: Mask,
    q: Tensor,
    k: Tensor,
    wanted: Tensor,
    scale: float,
    backend: str,
    case: dict[str, Any],
    what: str,
) -> None:
    keys = wanted.shape[2]
    v = torch.eye(keys, dtype=torch.float64).expand(len(k), -1, -1)
    width = max(keys, q.shape[-1])
    # q, k and v have one width: dims of zeros are added at the end, which no rotation that is not partial would allow, nor
    # vectors for each distance or head, nor a rewriting that reads q.
    fixed = (
        modifiers.rotation
        or modifiers.rewrite
        or any(isinstance(term, (RelativeKeyBias, KeyBias)) for term in modifiers.terms)
    )
    if fixed and width > q.shape[-1]:
        pieces = [v[..., n : n + q.shape[-1]] for n in range(0, keys, q.shape[-1])]
    else:
        pieces, q, k = [_widen(v, width)], _widen(q, width), _widen(k, width)
    if reason := unsupported_reason(backend, modifiers, span):
        raise Refused(reason)
    attend = plan(modifiers, span, mask, q[None], backend=backend)
    got = torch.cat(
        [attend(q[None], k[None], _widen(p, q.shape[-1])[None], scale=scale)[0, ..., : p.shape[-1]] for p in pieces], -1
    )
    hidden = wanted.isnan()
    weights = wanted.masked_fill(hidden, float("-inf")).softmax(-1)
    # What is off in a logit is off in the weight relative to it. The reference evaluates what others may approximate.
    off = case["atol"] + case["rtol"] * float(wanted[~hidden].abs().max())
    off = 2 * (off if backend == "reference" else off + case.get("approximation", 0.0))
    _close(f"{what}, through {backend}", got[..., :keys], weights, {"atol": 0.0, "rtol": off})


def _widen(x: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(x, (0, width - x.shape[-1]))


def _output(encoding: PositionEncoding, case: dict[str, Any], backend: str, what: str) -> None:
    q, k, v = (_numbers(case[name])[None] for name in ("q", "k", "v"))
    got = plan(_effect(encoding, case), _span(case), _mask(case), q, backend=backend)(q, k, v, scale=case["scale"])
    _close(f"{what}, through {backend}", got[0], _numbers(case["expected"]), case)


def _rotated(encoding: PositionEncoding, case: dict[str, Any], backend: str, what: str) -> None:
    rotation = encoding.modifiers(_span({"query": case["positions"], "key": case["positions"]})).rotation
    if rotation is None:
        raise Wrong(f"{what}: there is no rotation")
    x, wanted = _numbers(case["x"])[None, None], _numbers(case["expected"])
    _close(f"{what}, query", rotation.query(x)[0, 0], wanted, case)
    _close(f"{what}, key", rotation.key(x)[0, 0], wanted, case)


def _embed(encoding: PositionEncoding, case: dict[str, Any], backend: str, what: str) -> None:
    wanted = _numbers(case["expected"])
    got = encoding.embed(torch.zeros(1, *wanted.shape, dtype=torch.float64), torch.tensor([case["positions"]]))
    _close(what, got[0], wanted, case)


def _error(encoding: PositionEncoding, case: dict[str, Any], backend: str, what: str) -> None:
    positions = torch.tensor([case["positions"]])
    try:
        x = torch.zeros(1, positions.shape[1], case["context"]["d_model"], dtype=torch.float64)
        encoding.embed(x, positions)
        encoding.modifiers(Span(positions, positions, int(positions.max()) + 1))
    except ValueError as error:
        if missing := [word for word in case["expected"] if word not in str(error)]:
            raise Wrong(f"{what}: the error {str(error)!r} does not say {missing}") from error
    else:
        raise Wrong(f"{what}: no error")


_COMPARE = {"bias": _bias, "logits": _logits, "output": _output, "rotated": _rotated, "embed": _embed, "error": _error}


def _span(case: dict[str, Any]) -> Span:
    return Span(torch.tensor([case["query"]]), torch.tensor([case["key"]]), max(*case["query"], *case["key"]) + 1)


def _mask(case: dict[str, Any]) -> Mask:
    """The queries are the last keys."""
    documents = torch.tensor([case["documents"]]) if "documents" in case else None
    return Mask(len(case["query"]), len(case["key"]), documents=documents)


def _effect(encoding: PositionEncoding, case: dict[str, Any]) -> AttentionModifiers:
    span = _span(case)
    modifiers = encoding.modifiers(span)
    if encoding.reads_content():
        modifiers = with_content(modifiers, encoding, encoding.features(_numbers(case["x"])[None]), span, _mask(case))
    return modifiers


def _numbers(nested: Any) -> Tensor:
    """float64, with nan for null."""
    if isinstance(nested, list):
        return torch.stack([_numbers(x) for x in nested])
    return torch.tensor(float("nan") if nested is None else nested, dtype=torch.float64)


def _close(what: str, got: Tensor, wanted: Tensor, case: dict[str, Any]) -> None:
    if got.shape != wanted.shape:
        raise Wrong(f"{what}: shape {tuple(got.shape)}, expected {tuple(wanted.shape)}")
    asked = ~wanted.isnan()
    got, wanted = got.detach()[asked], wanted[asked]
    # Reference values are float64 as well: 1e-13 of the largest is their own rounding.
    allowed = case["atol"] + case["rtol"] * wanted.abs() + 1e-13 * wanted.abs().max()
    off = (got - wanted).abs()
    if not bool((off <= allowed).all()):
        worst = int((off - allowed).nan_to_num(float("inf")).argmax())
        raise Wrong(f"{what}: {float(got[worst]):.12g} where {float(wanted[worst]):.12g} is expected")
