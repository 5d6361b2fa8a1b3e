"""Predict from the machine code of the GPU kernels (gpu_code.py) how many instructions an encoding takes.

That is not a time: waiting for memory and launching are not in it.
"""

import functools
import math
from typing import Any, cast

import torch

from lengthwise.encodings import FIRE
from lengthwise.forms import PiecewiseLinearBias
from lengthwise.span import Span

SEGMENTED = ("CLEAN", "ONE_KNOT", "TWO_KNOTS", "KNOTS", "GENERAL")  # the kinds of tiles with segments
TOKENS = 8192  # of the predicted times
NETWORKS = 8  # of FIRE, as initialized, whose knots are counted
# The form that each encoding is compiled as, and the distance from which on tiles are FAR.
ENCODINGS = {
    "NoPE": ("none", TOKENS),
    "T5": ("short table", 128),
    "ALiBi": ("fixed table", 0),
    "KERPLE": ("table", TOKENS),
    "FIRE": ("pieces", TOKENS),
}


@functools.cache
def knots_of_tiles(size_q: int, size_k: int, tokens: int = TOKENS) -> torch.Tensor:
    """Return how many knots of FIRE's networks, as initialized, lie in each tile, [networks, blocks of queries, of
    keys]; causal.
    """
    counts = []
    for seed in range(NETWORKS):
        torch.manual_seed(seed)
        segments = cast(PiecewiseLinearBias, FIRE(num_heads=16).modifiers(Span.of(tokens)).terms[0])
        feature, scale, knots = (x.detach() for x in (segments.distance_feature, segments.query_scale, segments.knots))
        scales = scale.view(-1, size_q)
        i, j = torch.arange(0, tokens, size_q)[:, None], torch.arange(0, tokens, size_k)
        nearest, furthest = (i - j - (size_k - 1)).clamp(min=0), (i - j + size_q - 1).clamp(min=0)
        low, high = feature[nearest] * scales.amin(1)[:, None], feature[furthest] * scales.amax(1)[:, None]
        counts.append(torch.searchsorted(knots, high, right=True) - torch.searchsorted(knots, low, right=True))
    return torch.stack(counts)


def instructions(kernels: dict[str, Any], far: int, has_segments: bool) -> float:
    """Return the instructions of all kernels for each visible pair of TOKENS tokens, causal.

    far: the distance from which on tiles are FAR. Loops with branches count every branch.
    """
    total = 0.0
    for name, found in kernels.items():
        size_q, size_k = found["tile"]
        i, j = torch.arange(0, TOKENS, size_q)[:, None], torch.arange(0, TOKENS, size_k)
        visible, nearest = j < i + size_q, i - j - (size_k - 1)
        is_far = nearest >= far
        if name == "distance_gradients":
            visible, is_far = visible & ~is_far, is_far & False
        knots = knots_of_tiles(size_q, size_k) if has_segments else torch.zeros(1, *nearest.shape, dtype=torch.long)
        is_near = (nearest >= 0) & ~is_far
        tiles_of = {"GENERAL": nearest < 0, "FAR": is_far}
        tiles_of |= {kind: is_near & (knots.clamp(max=3) == n) for n, kind in enumerate(SEGMENTED[:-1])}
        for kind, chosen in tiles_of.items():
            chosen = (visible & chosen).expand(knots.shape)
            if count := int(chosen.sum()):
                loop = found["loops"][kind]
                more = loop["of these a knot"] * (knots[chosen].double().mean().item() - 1)
                cost = loop["instructions a pair"] + (more if kind in ("KNOTS", "GENERAL") else 0.0)
                total += count / len(knots) * size_q * size_k * cost
    return total / (TOKENS**2 / 2)


def predicted(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Return how many instructions each encoding takes relative to none, for all dtypes and dims with its form."""
    rows = []
    for name, forms in results.items():
        base = instructions(forms["none"], TOKENS, False) if isinstance(forms, dict) and "none" in forms else math.nan
        for encoding, (form, far) in ENCODINGS.items():
            if isinstance(forms, dict) and form in forms and not math.isnan(base):
                count = instructions(forms[form], far, form == "pieces")
                rows.append(
                    {"of": name, "encoding": encoding, "a pair": round(count, 1), "ratio": round(count / base, 2)}
                )
    return rows
