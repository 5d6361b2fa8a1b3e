"""Claims of the literature about position encodings, judged by stored scores. Nothing here imports torch.

`judge(CLAIMS, stored_evidence(store))` returns the verdicts. docs/claims.md has those on the scores in
benchmarks/results. Each claim names the `Rows` that decide it, which are constants in the modules of the sources: if
they name another study, it decides all claims on these rows.
"""

from lengthwise.analysis.claims.catalogue import CLAIMS, SOURCES, Source
from lengthwise.analysis.claims.claim import Claim, Judgement, judge
from lengthwise.analysis.claims.evidence import STORED_NAMES, Evidence, Rows, stored_evidence
from lengthwise.analysis.claims.scores import LEARNED, SEEDS, UNTESTED, VERDICTS, Verdict

__all__ = [
    "CLAIMS",
    "LEARNED",
    "SEEDS",
    "SOURCES",
    "STORED_NAMES",
    "UNTESTED",
    "VERDICTS",
    "Claim",
    "Evidence",
    "Judgement",
    "Rows",
    "Source",
    "Verdict",
    "judge",
    "stored_evidence",
]
