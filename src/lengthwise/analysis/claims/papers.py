"""Claims of the papers that introduced encodings, methods of extension and position schemes.

"Second-hand" means that a claim comes from a summary of its source, which may say more or less than the source itself.
"""

from lengthwise.analysis.claims.claim import Claim
from lengthwise.analysis.claims.claim_tests import Better, Falls, Keeps, SameAs
from lengthwise.analysis.claims.evidence import Rows
from lengthwise.analysis.claims.fire import LONGER_PROSE, PROSE, PROSE_SAME_TARGETS

SAME_TARGETS = {"task.path": "python:docstrings", "question.shift.targets": 64}
TEXT = Rows("battery/core", "Text(chunk=512)", SAME_TARGETS, "prose, the same targets at every length")
TEXT_OF_OTHERS = Rows("battery/others", "Text(chunk=512)", SAME_TARGETS, "prose, the same targets at every length")
RECALL = Rows("battery/core", "Recall(keys=64, values=8, queries=8)")
EXTENSION = Rows("fire/extension", "Text", {"question.shift.targets": 64}, "the same targets at every length")
REVERSE_STRING = Rows("chomsky/small", "ReverseString")
MISSING_DUPLICATE = Rows("chomsky/small", "MissingDuplicate")
COUPLED_ADDITION = Rows("coupling/small --set seeds=3", "Addition(reverse=True, pad=True)")

TUNED = " from RoPE (100 steps at 1024)"
BY_PARTS, AWARE = "NTKByParts(factor=4.0)", "NTKAware(factor=4.0)"
PI, YARN = "PI(factor=4.0)", "YaRN(factor=4.0)"
XPOS = "XPos(scale_base=32.0, max_length=512)"  # its settings in the battery, on text

CLAIMS = (
    Claim(
        name="alibi-1",
        text="A model with ALiBi predicts text of twice its training length as well as a sinusoidal one that was "
        "trained on that length (equal perplexities; tested here as better).",
        source="Press et al. 2022 (ALiBi), abstract",
        tests=(Better("ALiBi", "Sinusoidal", PROSE, 2, than_rows=LONGER_PROSE),),
    ),
    Claim(
        name="kerple-1",
        text="The logarithmic variant of KERPLE extrapolates excellently on language modelling (trained on 512 "
        "tokens, evaluated on up to 16,384).",
        source="Chi et al. 2022 (KERPLE), abstract",
        tests=(Keeps("KerpleLog", PROSE, 32), Keeps("KerpleLog", PROSE_SAME_TARGETS, 32)),
    ),
    Claim(
        name="xpos-1",
        text="xPos extrapolates to longer texts, and RoPE does not (the paper adds attention in blocks, which is not "
        "included here).",
        source="Sun et al. 2023 (xPos), Table 1",
        tests=(
            Keeps(XPOS, TEXT_OF_OTHERS, 8),
            Better(XPOS, "RoPE", TEXT_OF_OTHERS, 8),
            Falls("RoPE", TEXT_OF_OTHERS, 8),
        ),
    ),
    Claim(
        name="dape-1",
        text="DAPE is better than encodings without content at the training length.",
        source="Zheng et al. 2024 (DAPE), abstract",
        tests=tuple(Better("DAPE", other, TEXT, 1) for other in ("RoPE", "ALiBi", "KerpleLog", "FIRE")),
    ),
    Claim(
        name="dape-2",
        text="DAPE is better than encodings without content at longer lengths: published at 64 times the training "
        "length (trained on 128 tokens, evaluated on 8,192), tested here at 8 times.",
        source="Zheng et al. 2024 (DAPE), abstract",
        tests=tuple(Better("DAPE", other, TEXT, 8) for other in ("RoPE", "ALiBi", "KerpleLog", "FIRE")),
    ),
    Claim(
        name="fox-1",
        text="The Forgetting Transformer extrapolates better than the Transformer (with RoPE).",
        source="Lin et al. 2025 (FoX), abstract",
        tests=(Better("FoX", "RoPE", TEXT, 8),),
    ),
    Claim(
        name="cope-1",
        text="CoPE solves counting, where popular encodings fail.",
        source="Golovneva et al. 2024 (CoPE), abstract",
        needs="it needs a counting task that models of this size learn, and no study here has one",
    ),
    Claim(
        name="cope-2",
        text="CoPE improves the perplexity of language models (tested here against RoPE only).",
        source="Golovneva et al. 2024 (CoPE), abstract",
        tests=(Better("CoPE", "RoPE", TEXT_OF_OTHERS, 1),),
    ),
    Claim(
        name="path-1",
        text="PaTH improves language models upon RoPE.",
        source="Yang et al. 2025 (PaTH), abstract",
        tests=(Better("PaTH", "RoPE", TEXT_OF_OTHERS, 1),),
    ),
    Claim(
        name="path-2",
        text="PaTH tracks states that RoPE cannot track.",
        source="Yang et al. 2025 (PaTH), synthetic tasks",
        needs="it needs a task of tracking states that models of this size learn, and no study here has one",
    ),
    Claim(
        name="pope-1",
        text="Without further training, PoPE extrapolates better than RoPE.",
        source="Gopalakrishnan et al. 2025 (PoPE), abstract",
        tests=(Better("PoPE", "RoPE", TEXT_OF_OTHERS, 8),),
    ),
    Claim(
        name="pope-2",
        text="PoPE extrapolates better than YaRN, although YaRN is fine-tuned. Here YaRN is not fine-tuned, so “holds "
        "here” is the weaker statement that PoPE is better than YaRN without training.",
        source="Gopalakrishnan et al. 2025 (PoPE), abstract",
        tests=(Better("PoPE", "YaRN(factor=8.0) from RoPE", TEXT_OF_OTHERS, 8),),
    ),
    Claim(
        name="wall-1",
        text="Wall attention generalizes to far longer texts without further training (trained on 4,096 tokens, more "
        "than 200,000; tested here at 8 times the training length).",
        source="Tilde Research 2026 (Wall attention), second-hand",
        tests=(Keeps("Wall", TEXT_OF_OTHERS, 8),),
    ),
    Claim(
        name="wall-2",
        text="Wall attention is better than RoPE and than the Forgetting Transformer on long texts.",
        source="Tilde Research 2026 (Wall attention), second-hand",
        tests=(Better("Wall", "RoPE", TEXT_OF_OTHERS, 8), Better("Wall", "FoX", TEXT_OF_OTHERS, 8, than_rows=TEXT)),
    ),
    Claim(
        name="stick-breaking-1",
        text="Trained on 2,048 tokens, stick-breaking attention still retrieves at 16,384, eight times as many "
        "(tested here as no significant loss in the share of queries that are answered correctly).",
        source="Tan et al. 2025 (stick-breaking), second-hand",
        tests=(Keeps("StickBreaking", RECALL, 8),),
    ),
    Claim(
        name="ssmax-1",
        text="SSMax, a softmax whose temperature depends on the number of keys, retrieves better from long contexts "
        "than softmax.",
        source="Nakanishi 2025 (SSMax), abstract",
        needs="it needs models with SSMax that are trained to retrieve, and no study here trains them",
    ),
    Claim(
        name="grape-1",
        text="GRAPE-AP is better than RoPE, ALiBi and FoX (averages over seven tasks at 355 million parameters: "
        "53.25, 51.73, 52.87 and 52.96).",
        source="Zhang et al. 2026 (GRAPE), README of the repository",
        needs="it needs pretrained models of 355 million parameters, which no study here trains",
    ),
    Claim(
        name="swan-1",
        text="Language models with RoPE alone or without any encoding fail on longer texts than in training (1,024 "
        "tokens).",
        source="SWAN-GPT 2025, second-hand",
        tests=tuple(Falls(label, rows, 4) for rows in (PROSE, PROSE_SAME_TARGETS) for label in ("RoPE", "NoPE")),
    ),
    Claim(
        name="pi-1",
        text="After a short fine-tuning (at most 1,000 steps), position interpolation makes a RoPE model read longer "
        "texts (tested against the unchanged model, and against the same fine-tuning without interpolation).",
        source="Chen et al. 2023 (position interpolation), abstract",
        tests=tuple(Better(PI + TUNED, other, EXTENSION, 4) for other in ("RoPE", "RoPE" + TUNED)),
    ),
    Claim(
        name="pi-2",
        text="A RoPE model that was extended by position interpolation keeps its quality at the original length "
        "relatively well.",
        source="Chen et al. 2023 (position interpolation), abstract",
        tests=(SameAs(PI + TUNED, "RoPE", EXTENSION, 1),),
    ),
    Claim(
        name="pi-3",
        text="Without any change, a RoPE model fails on longer texts.",
        source="Chen et al. 2023 (position interpolation), abstract",
        tests=(Falls("RoPE", EXTENSION, 4),),
    ),
    Claim(
        name="yarn-1",
        text="After fine-tuning, YaRN is better than earlier methods: position interpolation and NTK-aware scaling.",
        source="Peng et al. 2024 (YaRN), abstract",
        tests=tuple(Better(YARN + TUNED, other + TUNED, EXTENSION, 4) for other in (PI, AWARE)),
    ),
    Claim(
        name="yarn-2",
        text="YaRN extrapolates beyond the length of its fine-tuning (tested with dynamic YaRN, whose factor follows "
        "the length).",
        source="Peng et al. 2024 (YaRN), abstract",
        tests=(Keeps("DynamicYaRN" + TUNED, EXTENSION, 8),),
    ),
    Claim(
        name="yarn-3",
        text="NTK-by-parts is the best method of scaling without a temperature after fine-tuning.",
        source="Peng et al. 2024 (YaRN), introduction",
        tests=tuple(Better(BY_PARTS + TUNED, other + TUNED, EXTENSION, 4) for other in (PI, AWARE)),
    ),
    Claim(
        name="yarn-4",
        text="Dynamic NTK makes a RoPE model better at longer texts without fine-tuning.",
        source="Peng et al. 2024 (YaRN), introduction",
        tests=(Better("DynamicNTK from RoPE", "RoPE", EXTENSION, 4),),
    ),
    Claim(
        name="self-extend-1",
        text="Self-Extend extends a RoPE model to longer texts without training.",
        source="Jin et al. 2024 (Self-Extend), abstract",
        tests=(Keeps("SelfExtend from RoPE", EXTENSION, 4),),
    ),
    Claim(
        name="dca-1",
        text="Dual chunk attention extends a RoPE model to longer texts without training.",
        source="An et al. 2024 (DCA), abstract",
        tests=(Keeps("DCA from RoPE", EXTENSION, 4),),
    ),
    Claim(
        name="drope-1",
        text="A RoPE model whose encoding is dropped after training and that is recalibrated with at most 2 % of the "
        "tokens reads longer texts better than YaRN (published at two, four and eight times the training length; "
        "tested here at four, the factor of YaRN).",
        source="Gelberg et al. 2025 (DroPE), second-hand",
        tests=(Better("NoPE from RoPE (20 steps)", f"{YARN} from RoPE", EXTENSION, 4),),
    ),
    Claim(
        name="randomized-1",
        text="Randomized positions make Transformers more accurate on longer inputs of algorithmic tasks (by 12 "
        "points on average).",
        source="Ruoss et al. 2023 (randomized positions), abstract",
        tests=tuple(
            Better("RoPE with Randomized(max_length=512)", "RoPE", rows) for rows in (REVERSE_STRING, MISSING_DUPLICATE)
        ),
    ),
    Claim(
        name="chomsky-1",
        text="Transformers do not reverse strings that are longer than in training (solved means an accuracy of 0.9).",
        source="Delétang et al. 2023 (Chomsky hierarchy)",
        tests=tuple(
            Falls(label, REVERSE_STRING, 2.5, below=0.9) for label in ("NoPE", "RoPE", "ALiBi", "KerpleLog", "FIRE")
        ),
    ),
    Claim(
        name="coupling-1",
        text="With position coupling, sums of six times as many digits as in training are right (trained on 1 to 30 "
        "digits, 200; tested here at four times).",
        source="Cho et al. 2024 (position coupling), abstract",
        tests=(Keeps("Learned(max_length=27) with Coupled(max_position=26)", COUPLED_ADDITION, 4, least=0.95),),
    ),
)
