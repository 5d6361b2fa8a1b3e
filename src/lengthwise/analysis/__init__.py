"""Turn rows of the results database into findings: means and intervals over seeds, missing runs, and provenance.

Start with `findings(store, study)`. `Findings` is plain data for a report or a script. Nothing here imports torch.
"""

from lengthwise.analysis.estimates import Estimate, Interval, over_examples, over_seeds
from lengthwise.analysis.findings import (
    Baseline,
    Findings,
    Point,
    RunInfo,
    Series,
    TaskFindings,
)
from lengthwise.analysis.gather import findings, from_rows
from lengthwise.analysis.kinds import Kind
from lengthwise.analysis.ranks import (
    Ranking,
    Ties,
    baseline_over_lengths,
    over_lengths,
    ranking,
    reciprocal_ranks,
    require_ties,
)

__all__ = [
    "Baseline",
    "Estimate",
    "Findings",
    "Interval",
    "Kind",
    "Point",
    "Ranking",
    "RunInfo",
    "Series",
    "TaskFindings",
    "Ties",
    "baseline_over_lengths",
    "findings",
    "from_rows",
    "over_examples",
    "over_lengths",
    "over_seeds",
    "ranking",
    "reciprocal_ranks",
    "require_ties",
]
