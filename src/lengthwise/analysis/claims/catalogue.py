"""All claims, by source."""

from dataclasses import dataclass
from types import ModuleType

from lengthwise.analysis.claims import fire, lecture, nope, papers, thesis
from lengthwise.analysis.claims.claim import Claim


@dataclass(frozen=True)
class Source:
    """Claims of one source. `about`: its publication and scale, from the docstring of the module that lists them."""

    title: str
    about: str
    claims: tuple[Claim, ...]


def _source(title: str, module: ModuleType) -> Source:
    about = (module.__doc__ or "").split()
    return Source(title, " ".join(about), module.CLAIMS)


SOURCES = (
    _source("FIRE", fire),
    _source("NoPE", nope),
    _source("In-context functions and memorization", thesis),
    _source("Extrapolation of text, and addition", lecture),
    _source("Papers of single methods", papers),
)
CLAIMS = tuple(claim for source in SOURCES for claim in source.claims)
