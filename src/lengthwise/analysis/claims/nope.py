"""Claims of the NoPE paper: Kazemnejad et al. 2023, "The Impact of Positional Encoding on Length Generalization in
Transformers".

Published models have 107 million parameters. Accuracies are over lengths 21 to 40 after training on up to 20, means of
three seeds, from the result files of the authors' repository. Their Rotary turns a quarter of each head.
"""

from lengthwise.analysis.claims.claim import Claim
from lengthwise.analysis.claims.claim_tests import Better, Falls, Keeps, Learns, RanksHigher, SameAs
from lengthwise.analysis.claims.evidence import Rows
from lengthwise.analysis.claims.fire import LONGER_PROSE, LONGER_PROSE_SAME_TARGETS

REPEATED = Rows("nope/small", "Copy(symbols=200, pattern=repeated)")
REPLACED = Rows("nope/small", "Copy(symbols=40, pattern=replaced)")
RANDOM = Rows("nope/small", "Copy(symbols=20)")
REVERSE = Rows("nope/small", "Reverse(symbols=20)")
PRIMITIVE = (REPEATED, REPLACED, RANDOM, REVERSE)
SCAN = Rows("nope/classic", "SCAN(split=tr25)")
PCFG = Rows("nope/classic", "PCFG")
ADDITION = Rows("nope/scratchpads", "Addition", {}, "without a scratchpad")
ADDITION_STEPS = Rows("nope/scratchpads", "Addition(scratchpad=full)", {}, "with a scratchpad")
PARITY = Rows("nope/scratchpads", "Parity", {}, "without a scratchpad")
PARITY_STEPS = Rows("nope/scratchpads", "Parity(scratchpad=full)", {}, "with a scratchpad")

NOPE, T5, ALIBI, ROTARY, SINUSOIDAL = "NoPE", "T5", "ALiBi", "RoPE(rotary_fraction=0.25)", "Sinusoidal"
ENCODINGS = (NOPE, T5, ALIBI, ROTARY, SINUSOIDAL)
PAPER = "Kazemnejad et al. 2023 (NoPE)"
RESULTS = f"{PAPER}, result files of the repository"

CLAIMS = (
    Claim(
        name="nope-1",
        text="At the training lengths, all five encodings learn to copy repeated symbols, copy replaced ones and "
        "reverse (validation accuracies of 0.996 to 1.0).",
        source=RESULTS,
        tests=tuple(Learns(label, task) for task in (REPEATED, REPLACED, REVERSE) for label in ENCODINGS),
    ),
    Claim(
        name="nope-2",
        text="NoPE copies a repeated symbol at longer lengths better than T5's bias (0.986 and 0.771).",
        source=RESULTS,
        tests=(Better(NOPE, T5, REPEATED),),
    ),
    Claim(
        name="nope-3",
        text="T5's bias copies a repeated symbol at longer lengths better than ALiBi (0.771 and 0.289).",
        source=RESULTS,
        tests=(Better(T5, ALIBI, REPEATED),),
    ),
    Claim(
        name="nope-4",
        text="Up to twice the training length, NoPE still copies a repeated symbol (0.96 at 40 symbols).",
        source=f"{RESULTS}, accuracy by length",
        tests=(Keeps(NOPE, REPEATED, 2),),
    ),
    Claim(
        name="nope-5",
        text="Rotary copies no repeated symbol at any longer length, not even at the first (0.000).",
        source=f"{RESULTS}, accuracy by length",
        tests=(Falls(ROTARY, REPEATED, None, below=0.05),),
    ),
    Claim(
        name="nope-6",
        text="The sinusoidal encoding copies no repeated symbol at any longer length, not even at the first (0.000).",
        source=f"{RESULTS}, accuracy by length",
        tests=(Falls(SINUSOIDAL, REPEATED, None, below=0.05),),
    ),
    Claim(
        name="nope-7",
        text="NoPE copies replaced symbols at longer lengths better than T5's bias (0.967 and 0.939).",
        source=RESULTS,
        tests=(Better(NOPE, T5, REPLACED),),
    ),
    Claim(
        name="nope-8",
        text="T5's bias copies replaced symbols at longer lengths better than ALiBi (0.939 and 0.170).",
        source=RESULTS,
        tests=(Better(T5, ALIBI, REPLACED),),
    ),
    Claim(
        name="nope-9",
        text="T5's bias copies random symbols at longer lengths better than NoPE (0.420 and 0.305).",
        source=RESULTS,
        tests=(Better(T5, NOPE, RANDOM),),
    ),
    Claim(
        name="nope-10",
        text="ALiBi copies random symbols at longer lengths better than Rotary and the sinusoidal encoding (0.331, "
        "0.011 and 0.028).",
        source=RESULTS,
        tests=(Better(ALIBI, ROTARY, RANDOM), Better(ALIBI, SINUSOIDAL, RANDOM)),
    ),
    Claim(
        name="nope-11",
        text="NoPE and T5's bias reverse equally well at longer lengths (0.230 and 0.242).",
        source=RESULTS,
        tests=(SameAs(NOPE, T5, REVERSE),),
    ),
    Claim(
        name="nope-12",
        text="NoPE reverses at longer lengths better than ALiBi (0.230 and 0.171).",
        source=RESULTS,
        tests=(Better(NOPE, ALIBI, REVERSE),),
    ),
    Claim(
        name="nope-13",
        text="When reversing, every encoding has lost nearly everything at twice the training length, NoPE included "
        "(0.02 at 28 symbols and less after that).",
        source=f"{RESULTS}, accuracy by length",
        tests=tuple(Falls(label, REVERSE, 2, below=0.05) for label in ENCODINGS),
    ),
    Claim(
        name="nope-14",
        text="Over all tasks, NoPE has the highest mean reciprocal rank (0.687; T5 0.549, ALiBi 0.502, Rotary 0.330, "
        "sinusoidal 0.215).",
        source=f"{PAPER}, notebook of the repository, tasks without scratchpad",
        tests=tuple(RanksHigher(NOPE, other, PRIMITIVE) for other in (T5, ALIBI, ROTARY, SINUSOIDAL)),
    ),
    Claim(
        name="nope-15",
        text="Over all tasks, ALiBi, Rotary and the sinusoidal encoding follow in this order in the mean reciprocal "
        "rank.",
        source=f"{PAPER}, notebook of the repository, tasks without scratchpad",
        tests=(RanksHigher(ALIBI, ROTARY, PRIMITIVE), RanksHigher(ROTARY, SINUSOIDAL, PRIMITIVE)),
    ),
    Claim(
        name="nope-16",
        text="On SCAN, NoPE and T5's bias carry out commands with more actions than in training equally well (0.797 "
        "and 0.799).",
        source=RESULTS,
        tests=(SameAs(NOPE, T5, SCAN),),
    ),
    Claim(
        name="nope-17",
        text="On SCAN, NoPE is far better than ALiBi, Rotary and the sinusoidal encoding (0.797; 0.438, 0.283 and "
        "0.057).",
        source=RESULTS,
        tests=tuple(Better(NOPE, other, SCAN) for other in (ALIBI, ROTARY, SINUSOIDAL)),
    ),
    Claim(
        name="nope-18",
        text="On PCFG SET, NoPE, T5's bias, ALiBi and Rotary are alike (0.428 to 0.439), and the sinusoidal encoding "
        "is worse (0.367).",
        source=RESULTS,
        tests=(
            *(SameAs(NOPE, other, PCFG) for other in (T5, ALIBI, ROTARY)),
            Better(NOPE, SINUSOIDAL, PCFG),
        ),
    ),
    Claim(
        name="nope-19",
        text="A scratchpad helps a model to add longer numbers than in training.",
        source=f"{PAPER}, section on scratchpads (bars without numbers)",
        tests=(
            Better(NOPE, NOPE, ADDITION_STEPS, than_rows=ADDITION),
            Better(T5, T5, ADDITION_STEPS, than_rows=ADDITION),
        ),
    ),
    Claim(
        name="nope-20",
        text="A scratchpad helps on addition alone: on parity, for example, it does not help at longer lengths.",
        source=f"{PAPER}, section on scratchpads (bars without numbers)",
        tests=(Better(NOPE, NOPE, PARITY, than_rows=PARITY_STEPS),),
    ),
    Claim(
        name="nope-21",
        text="A language model with Rotary fails soon beyond its training length, and one with ALiBi does not (1.3 "
        "billion parameters, trained on 1,024 tokens, up to about 1,800).",
        source=f"{PAPER}, appendix F",
        tests=tuple(
            test
            for rows in (LONGER_PROSE, LONGER_PROSE_SAME_TARGETS)
            for test in (Falls("RoPE", rows, 2), Keeps(ALIBI, rows, 2))
        ),
    ),
    Claim(
        name="nope-22",
        text="Trained models without a position encoding have attention patterns that are most like those of T5's "
        "bias.",
        source=f"{PAPER}, abstract and Figure 4",
        needs="it compares attention patterns, which `lengthwise run nope/attention` and `lengthwise probe "
        "attention-distance` measure; no scores decide it",
    ),
    Claim(
        name="nope-23",
        text="A language model without a position encoding does not fail soon beyond its training length either (1.3 "
        "billion parameters, trained on 1,024 tokens, up to about 1,800).",
        source=f"{PAPER}, appendix F",
        tests=tuple(Keeps(NOPE, rows, 2) for rows in (LONGER_PROSE, LONGER_PROSE_SAME_TARGETS)),
    ),
)
