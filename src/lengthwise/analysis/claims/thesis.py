"""Claims of a thesis: "How Do Position Encodings Affect Length Generalization? Case Studies on In-Context Function
Learning".

Its models have 4 to 67 million parameters, learned functions from 50 examples in the prompt and were evaluated on 400.
Of its experiments on functions only plots are published, and of memorization F1 by hidden size.
"""

from lengthwise.analysis.claims.claim import Claim
from lengthwise.analysis.claims.claim_tests import Better, Falls, Learns
from lengthwise.analysis.claims.evidence import Rows

REGRESSION = Rows("icfl/small", "LinearRegression(dims=3)")
BOOLEAN = tuple(Rows("icfl/small", f"{name}(dims=8)") for name in ("Conjunction", "Disjunction", "Threshold"))
PARITIES = (Rows("icfl/paper", "ParityFunction"), Rows("icfl/paper", "SparseParity"))
SIZES = {
    width: Rows(
        "icfl/scale --set scale=small",
        "LinearRegression(dims=3)",
        {"model.d_model": width, "model.num_layers": layers},
        f"{layers} layers of {width}",
    )
    for width, layers in ((32, 2), (64, 8))
}
WIDTHS = {
    width: Rows("memorization/widths", "Tagging", {"model.d_model": width}, f"width {width}")
    for width in (8, 16, 24, 32)
}
SENTENCES = Rows("memorization/small", "Tagging", {"training.train_length": 1}, "trained on single sentences")

NTK, PI, YARN = "DynamicNTK(factor=8.0)", "PI(factor=8.0)", "YaRN(factor=8.0)"
THESIS = "a thesis on in-context function learning"
PLOTS = f"{THESIS}, plots without numbers"

OTHERS = ("NoPE", "RoPE", PI, NTK, YARN, "DynamicYaRN")

CLAIMS = (
    Claim(
        name="thesis-1",
        text="FIRE is one of the two best encodings with more examples than in training (linear regression).",
        source=PLOTS,
        tests=tuple(Better("FIRE", other, REGRESSION, 8) for other in OTHERS),
    ),
    Claim(
        name="thesis-2",
        text="ALiBi is one of the two best encodings with more examples than in training (linear regression).",
        source=PLOTS,
        tests=tuple(Better("ALiBi", other, REGRESSION, 8) for other in OTHERS),
    ),
    Claim(
        name="thesis-3",
        text="FIRE and ALiBi are the best encodings with more examples than in training, tested here against RoPE "
        "(Boolean functions).",
        source=PLOTS,
        tests=tuple(Better(ours, "RoPE", rows, 8) for ours in ("FIRE", "ALiBi") for rows in BOOLEAN),
    ),
    Claim(
        name="thesis-4",
        text="With more examples than in training, NoPE's error on linear regression rises.",
        source=PLOTS,
        tests=(Falls("NoPE", REGRESSION, 8),),
    ),
    Claim(
        name="thesis-5",
        text="RoPE, position interpolation and YaRN need fine-tuning: without it, they fail with more examples than "
        "in training.",
        source=PLOTS,
        tests=tuple(Falls(label, REGRESSION, 8) for label in ("RoPE", PI, YARN)),
    ),
    Claim(
        name="thesis-6",
        text="Dynamic YaRN is better than RoPE with more examples than in training (linear regression).",
        source=PLOTS,
        tests=(Better("DynamicYaRN", "RoPE", REGRESSION, 8),),
    ),
    Claim(
        name="thesis-7",
        text="Dynamic NTK is “not bad” with more examples than in training, tested here as better than RoPE (linear "
        "regression).",
        source=PLOTS,
        tests=(Better(NTK, "RoPE", REGRESSION, 8),),
    ),
    Claim(
        name="thesis-8",
        text="No encoding learns parities, neither of all bits nor of two of them.",
        source=PLOTS,
        tests=tuple(Learns(label, rows, is_learned=False) for rows in PARITIES for label in (*OTHERS, "ALiBi", "FIRE")),
    ),
    Claim(
        name="thesis-9",
        text="A larger model has a smaller error at the training length.",
        source=PLOTS,
        tests=tuple(
            Better(label, label, SIZES[64], 1, than_rows=SIZES[32]) for label in ("NoPE", "RoPE", "ALiBi", "FIRE")
        ),
    ),
    Claim(
        name="thesis-10",
        text="Size does not change where an encoding fails: a larger RoPE model fails with more examples than in "
        "training as well.",
        source=PLOTS,
        tests=(Falls("RoPE", SIZES[32], 8), Falls("RoPE", SIZES[64], 8)),
    ),
    Claim(
        name="thesis-11",
        text="F1 on memorized sentences rises with the hidden size (0.74, 0.85, 0.94 and 0.99 for 192, 300, 408 and "
        "516).",
        source=f"{THESIS}, introduction",
        tests=(
            Better("RoPE", "RoPE", WIDTHS[16], 1, than_rows=WIDTHS[8]),
            Better("RoPE", "RoPE", WIDTHS[24], 1, than_rows=WIDTHS[16]),
        ),
    ),
    Claim(
        name="thesis-12",
        text="A model that is wide enough memorizes all 1,400 sentences (F1 of 1.00).",
        source=f"{THESIS}, introduction",
        tests=(Learns("RoPE", WIDTHS[32]),),
    ),
    Claim(
        name="thesis-13",
        text="Models that know all sentences lose F1 when all sentences are joined to one text.",
        source=f"{THESIS}, introduction",
        tests=tuple(
            Falls(label, SENTENCES, 1400) for label in ("NoPE", "Sinusoidal", "RoPE", "ALiBi", "KerpleLog", "FIRE")
        ),
    ),
    Claim(
        name="thesis-14",
        text="On prompts with repeated examples, NoPE finds and copies the answer of an earlier example, and other "
        "encodings do not.",
        source=PLOTS,
        needs="`lengthwise probe duplicates` on the runs of `lengthwise run icfl/paper` measures it; no scores "
        "decide it",
    ),
    Claim(
        name="thesis-15",
        text="Where in the prompt the answer stands matters, and this does not depend on the encoding.",
        source=PLOTS,
        needs="`lengthwise probe lost-in-the-middle` on the runs of `lengthwise run icfl/paper` measures it; no "
        "scores decide it",
    ),
)
