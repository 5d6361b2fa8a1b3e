"""What the checks of a model folder see, and what they find."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from lengthwise.evaluation.pretrained.rope_values import SYNONYMS
from lengthwise.huggingface.angles import Comparison, NotCompared
from lengthwise.huggingface.description import LayerGroup
from lengthwise.huggingface.folder import Data, ModelFolder
from lengthwise.huggingface.observation import rotary_embeddings

RAMP_KEYS = ("beta_fast", "beta_slow", "low_freq_factor", "high_freq_factor")
THETA_KEY = re.compile(r"(\w*_)?theta|rotary_emb_base|rop[e]?_?(\w+_)?base(_freq)?")
MOVABLE = ("attention_factor", *RAMP_KEYS, "short_factor", "long_factor", "mscale", "mscale_all_dim")
"""RoPE settings that mean nothing outside of `rope_parameters`."""


@dataclass(frozen=True)
class Finding:
    """What a check found. `is_problem`: a mistake, which sets the exit code; otherwise a note."""

    check: str
    text: str
    is_problem: bool = True


@dataclass(frozen=True)
class Case:
    """What the checks see."""

    folder: ModelFolder
    groups: list[LayerGroup]
    comparisons: list[Comparison | NotCompared]

    @property
    def rotates(self) -> bool:
        """Whether transformers builds a rotary embedding for the model."""
        return bool(rotary_embeddings(self.folder.model))


Texts = Iterator[str | tuple[str, bool]]  # a text, or a text and whether it is a problem


def is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def with_rope_type(entry: Mapping[str, Any]) -> Data:
    """Return an entry with the rope type under one name."""
    kind = entry.get("rope_type", entry.get("type"))
    return {
        **{k: v for k, v in entry.items() if k not in ("type", "rope_type")},
        "rope_type": SYNONYMS.get(str(kind), kind),
    }


def is_theta(key: Any, value: Any) -> bool:
    return THETA_KEY.fullmatch(str(key)) is not None and is_number(value)


def join_values(values: list[Any]) -> str:
    return " and ".join(dict.fromkeys(f"{v:g}" if is_number(v) else str(v) for v in values))
