"""Claims of a lecture on position encodings and length generalization, and of the study of addition that it presents.

Its plots of language models (after Press et al. 2022, trained on 512 and 1,024 tokens, up to 16,000) have no numbers.
The study is Zhou et al. 2024, "Transformers Can Achieve Length Generalization But Not Robustly": 25 million parameters,
trained on 1 to 40 digits, with four ingredients: FIRE, randomized positions, reversed digits and index hints.
"""

from lengthwise.analysis.claims.claim import Claim
from lengthwise.analysis.claims.claim_tests import Better, Falls, Keeps
from lengthwise.analysis.claims.evidence import Rows

LECTURE = "a lecture, plot of perplexity by length, after Press et al. 2022, Figure 1"
ZHOU = "Zhou et al. 2024 (addition)"

TEXT = "Text(chunk=16384)"
SHORT = Rows("lecture/extrapolation", TEXT, {"training.train_length": 512}, "trained on 512 bytes")
LONG = Rows("lecture/extrapolation", TEXT, {"training.train_length": 1024}, "trained on 1,024 bytes")
SAME_TARGETS = Rows(
    "lecture/extrapolation",
    TEXT,
    {"training.train_length": 512, "question.shift.targets": 64},
    "trained on 512 bytes, the same targets at every length",
)
SAME_TARGETS_LONG = Rows(
    "lecture/extrapolation",
    TEXT,
    {"training.train_length": 1024, "question.shift.targets": 64},
    "trained on 1,024 bytes, the same targets at every length",
)
TEXTS = (SHORT, LONG, SAME_TARGETS, SAME_TARGETS_LONG)

FIRST_ORDER = {"training.data_seed": 0}
ALL_FOUR = Rows(
    "addition/robust",
    "Addition(reverse=True, pad=True, reverse_operands=True, hints=10)",
    FIRST_ORDER,
    "reversed, with hints",
)
WITHOUT_HINTS = Rows(
    "addition/robust", "Addition(reverse=True, pad=True, reverse_operands=True)", FIRST_ORDER, "reversed, without hints"
)
NOT_REVERSED = Rows("addition/robust", "Addition(pad=True, hints=10)", FIRST_ORDER, "not reversed, with hints")
BEST = "FIRE with Randomized(max_length=64)"

CLAIMS = (
    Claim(
        name="lecture-1",
        text="With the sinusoidal encoding, the perplexity of text rises at once beyond the training length "
        "(tested here at twice this length, the first longer one).",
        source=LECTURE,
        tests=tuple(Falls("Sinusoidal", rows, 2) for rows in TEXTS),
    ),
    Claim(
        name="lecture-2",
        text="With RoPE, the perplexity of text rises a few hundred tokens beyond the training length (tested here "
        "only as worse at twice this length, 512 and 1,024 bytes beyond it).",
        source=LECTURE,
        tests=tuple(Falls("RoPE", rows, 2) for rows in TEXTS),
    ),
    Claim(
        name="lecture-3",
        text="With T5's bias, the perplexity of text stays flat up to about twice the training length.",
        source=LECTURE,
        tests=tuple(Keeps("T5", rows, 2) for rows in TEXTS),
    ),
    Claim(
        name="lecture-4",
        text="With ALiBi, the perplexity of text stays flat or falls up to 16 times the training length and more.",
        source=LECTURE,
        tests=tuple(Keeps("ALiBi", rows, 16) for rows in TEXTS),
    ),
    Claim(
        name="lecture-5",
        text="A model with learned absolute positions judges sentences worse when all positions are shifted.",
        source="a lecture, plot of GPT-2's judgements by shift",
        needs="`lengthwise probe position-shift` measures it on a trained run; no scores decide it",
    ),
    Claim(
        name="addition-1",
        text="With FIRE, randomized positions, reversed digits and index hints together, sums of 2.5 times as many "
        "digits as in training are more than 98 % right (tested here at 2.33 times as many, 7 digits).",
        source=ZHOU,
        tests=(Keeps(BEST, ALL_FOUR, 7 / 3, least=0.98),),
    ),
    Claim(
        name="addition-2",
        text="Without index hints, longer sums are right less often.",
        source=ZHOU,
        tests=(Better(BEST, BEST, ALL_FOUR, than_rows=WITHOUT_HINTS),),
    ),
    Claim(
        name="addition-3",
        text="Without reversed digits, longer sums are right less often.",
        source=ZHOU,
        tests=(Better(BEST, BEST, ALL_FOUR, than_rows=NOT_REVERSED),),
    ),
    Claim(
        name="addition-4",
        text="Without randomized positions, longer sums are right less often.",
        source=ZHOU,
        tests=(Better(BEST, "FIRE", ALL_FOUR),),
    ),
    Claim(
        name="addition-5",
        text="With RoPE in place of FIRE, longer sums are right less often.",
        source=ZHOU,
        tests=(Better(BEST, "RoPE with Randomized(max_length=64)", ALL_FOUR),),
    ),
)
