"""Claims of the FIRE paper: Li et al. 2024, "Functional Interpolation for Relative Positions Improves Long Context
Transformers".

Published models have 125 or 350 million parameters, and were trained on 2,048 tokens of C4 and evaluated on up to
8,192, four times as many. Numbers are cross-entropies in nats per token at 512, 1,024, 2,048, 4,096 and 8,192 tokens.
Here, the threshold of FIRE starts at 512 tokens, as in public code, which is longer than most trainings.
"""

from lengthwise.analysis.claims.claim import Claim
from lengthwise.analysis.claims.claim_tests import Better, Keeps, SameAs
from lengthwise.analysis.claims.evidence import Rows

PROSE = Rows("fire/small", "Text(chunk=8192)", {"training.train_length": 256}, "trained on 256 bytes")
PROSE_SAME_TARGETS = Rows(
    "fire/small",
    "Text(chunk=8192)",
    {"training.train_length": 256, "question.shift.targets": 64},
    "trained on 256 bytes, the same targets at every length",
)
LONGER_PROSE = Rows("fire/small", "Text(chunk=8192)", {"training.train_length": 512}, "trained on 512 bytes")
LONGER_PROSE_SAME_TARGETS = Rows(
    "fire/small",
    "Text(chunk=8192)",
    {"training.train_length": 512, "question.shift.targets": 64},
    "trained on 512 bytes, the same targets at every length",
)
ABLATIONS = Rows("fire/ablations", "Text(chunk=1024)", {}, "trained on 256 bytes")

PAPER = "Li et al. 2024 (FIRE)"
NO_LOG_NO_THRESHOLD = "FIRE(transform=identity, threshold=False)"
NO_THRESHOLD = "FIRE(threshold=False)"
LINEAR = "FIRE(hidden_layers=0)"
ONE_LAYER = "FIRE(hidden_layers=1)"
LAST_ACTIVATION = "FIRE(hidden_layers=1, final_activation=True)"
GELU = "FIRE(activation=gelu)"

CLAIMS = (
    Claim(
        name="fire-1",
        text="At four times the training length, FIRE has a lower cross-entropy than KERPLE (3.06 and 3.16; "
        "perplexities of 21.24 and 23.52).",
        source=f"{PAPER}, text",
        tests=(Better("FIRE", "KerpleLog", PROSE, 4),),
    ),
    Claim(
        name="fire-2",
        text="FIRE keeps its cross-entropy up to four times the training length (3.05 at 2,048 tokens, 3.06 at 8,192).",
        source=f"{PAPER}, Table 2",
        tests=(Keeps("FIRE", PROSE, 4), Keeps("FIRE", PROSE_SAME_TARGETS, 4)),
    ),
    Claim(
        name="fire-3",
        text="At twice and four times the training length, FIRE has the lowest cross-entropy of all encodings "
        "compared: NoPE, sinusoidal, RoPE, ALiBi, T5, KERPLE and Sandwich (curves without numbers).",
        source=f"{PAPER}, Figure 1",
        tests=tuple(
            Better("FIRE", other, PROSE, at)
            for at in (2, 4)
            for other in ("NoPE", "Sinusoidal", "RoPE", "ALiBi", "T5", "KerpleLog", "Sandwich")
        ),
    ),
    Claim(
        name="fire-4",
        text="One FIRE module shared by all layers (FIRE-S) costs a little at every length: 3.22, 3.14, 3.10, 3.09 "
        "and 3.10 instead of 3.15, 3.08, 3.05, 3.05 and 3.06.",
        source=f"{PAPER}, Table 2",
        tests=tuple(Better("FIRE", "FIRE-S", ABLATIONS, at) for at in (0.25, 0.5, 1, 2, 4)),
    ),
    Claim(
        name="fire-5",
        text="At four times the training length, FIRE-S still has a lower cross-entropy than KERPLE (3.10 and 3.16).",
        source=f"{PAPER}, section 4.6 and Table 2",
        tests=(Better("FIRE-S", "KerpleLog", PROSE, 4),),
    ),
    Claim(
        name="fire-6",
        text="Without the logarithm and without the threshold (equation 21), FIRE fails at longer lengths: 3.216 and "
        "3.334 instead of 3.046 and 3.056.",
        source=f"{PAPER}, Table 3",
        tests=tuple(Better("FIRE", NO_LOG_NO_THRESHOLD, ABLATIONS, at) for at in (2, 4)),
    ),
    Claim(
        name="fire-7",
        text="Without the logarithm and without the threshold, FIRE is worse at short lengths too: 3.194, 3.128 and "
        "3.099 instead of 3.149, 3.083 and 3.054.",
        source=f"{PAPER}, Table 3",
        tests=tuple(Better("FIRE", NO_LOG_NO_THRESHOLD, ABLATIONS, at) for at in (0.25, 0.5, 1)),
    ),
    Claim(
        name="fire-8",
        text="With the logarithm but without the threshold (equation 22), FIRE is worse at a quarter of the training "
        "length (3.161 instead of 3.149).",
        source=f"{PAPER}, Table 3",
        tests=(Better("FIRE", NO_THRESHOLD, ABLATIONS, 0.25),),
    ),
    Claim(
        name="fire-9",
        text="With the logarithm, the threshold matters little at four times the training length: 3.056 with it and "
        "3.085 without.",
        source=f"{PAPER}, Table 3",
        tests=(SameAs("FIRE", NO_THRESHOLD, ABLATIONS, 4),),
    ),
    Claim(
        name="fire-10",
        text="A linear function in place of the network of FIRE fails at longer lengths: 3.20 and 3.32 instead of "
        "3.05 and 3.06.",
        source=f"{PAPER}, Table 4",
        tests=tuple(Better("FIRE", LINEAR, ABLATIONS, at) for at in (2, 4)),
    ),
    Claim(
        name="fire-11",
        text="One hidden layer in FIRE's network is nearly as good as two: 3.06 and 3.08 instead of 3.05 and 3.06 at "
        "longer lengths.",
        source=f"{PAPER}, Table 4",
        tests=tuple(SameAs("FIRE", ONE_LAYER, ABLATIONS, at) for at in (2, 4)),
    ),
    Claim(
        name="fire-12",
        text="With GELU instead of ReLU, FIRE is worse at a quarter and at half of the training length: 3.36 and 3.26 "
        "instead of 3.15 and 3.08.",
        source=f"{PAPER}, Table 5",
        tests=tuple(Better("FIRE", GELU, ABLATIONS, at, by=0.05) for at in (0.25, 0.5)),
    ),
    Claim(
        name="fire-13",
        text="At longer lengths, GELU and ReLU make no difference in FIRE (3.05 and 3.06 with both).",
        source=f"{PAPER}, Table 5",
        tests=tuple(SameAs("FIRE", GELU, ABLATIONS, at) for at in (2, 4)),
    ),
    Claim(
        name="fire-14",
        text="An activation after the last layer of FIRE's network harms it at four times the training length (3.19 "
        "instead of 3.08, one hidden layer).",
        source=f"{PAPER}, Table 6",
        tests=(Better(ONE_LAYER, LAST_ACTIVATION, ABLATIONS, 4),),
    ),
    Claim(
        name="fire-15",
        text="On GLUE and SuperGLUE, at short lengths, FIRE and RoPE are on par (71.14 and 71.15 for the base model).",
        source=f"{PAPER}, Table 12",
        needs="it needs pretrained models of 125 million parameters, which no study here trains; `lengthwise run "
        "fire/paper` trains them without these tasks",
    ),
    Claim(
        name="fire-16",
        text="On SCROLLS, FIRE has the best average of all encodings (25.64 for the base model; T5 24.14, KERPLE "
        "24.11, RoPE with position interpolation 23.23).",
        source=f"{PAPER}, Table 1",
        needs="it needs pretrained models of 125 million parameters, which no study here trains",
    ),
    Claim(
        name="fire-17",
        text="On NarrativeQA, FIRE and KERPLE keep their F1 up to 32,768 tokens (9.42 and 9.01), and T5's falls "
        "(1.76).",
        source=f"{PAPER}, Table 10",
        needs="it needs pretrained models of 125 million parameters, which no study here trains",
    ),
)
