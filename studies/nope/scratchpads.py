"""Figures E.6 to E.13 at the published scale: every scratchpad format on every task that has one.

Question: does working step by step help a model to longer inputs, in which format, and with which encoding?
Expectation (theirs): it helps on addition alone; the format matters, and no encoding gains from all of them.
Outcome: none yet; these runs have not been trained.
Cost: about 800 trainings of a model of 85 million parameters, 40,000 steps each; their 870 took 6 to 15 hours each on
one GPU.
Command: lengthwise run nope/scratchpads --device cuda
         lengthwise probe attended-distance --study "nope: scratchpads" --task addition:scratchpad=full      (figure 7)

Formats: none, full, minimal (computation and output), and full without one component each. Sorting and LEGO have no
variables, so they have no format without them. (Two of the published formats have the same name in figures E.10, E.11
and E.13.)

For single formats only plots are published. The published numbers are mean reciprocal ranks, and one row for addition
(NoPE 0.149, T5 0.151, ALiBi 0.105, Rotary 0.048, sinusoidal 0.057) that pools unspecified formats, so it is not shown
beside a score here.
"""

from kazemnejad import ENCODINGS, PAPER, RANKS_WITH, SEEDS, WEIGHTS, paper_training, published

from lengthwise.config import EvaluationConfig
from lengthwise.studies import Study, grid

FORMATS = ("none", "full", "minimal", "no-input", "no-computation", "no-output", "no-variables", "no-remaining")
TASKS = {
    "addition": FORMATS,
    "polynomial": FORMATS,
    "summation": FORMATS,
    "parity": FORMATS,
    "sorting": tuple(f for f in FORMATS if f != "no-variables"),
    "sorting:items=numbers": tuple(f for f in FORMATS if f != "no-variables"),
    "lego": tuple(f for f in FORMATS if f != "no-variables"),
}
SHORTEST = {"Addition": 1, "Polynomial": 4, "Sorting": 4, "Summation": 4, "Parity": 3, "LEGO": 4}

study = Study(
    name="nope: scratchpads",
    question="Does working step by step help a model to longer inputs, in which format, and with which encoding?",
    expectation="It helps on addition alone; the format matters, and no encoding gains from all of them.",
    cost="about 800 trainings of 40,000 steps, many hours each on one GPU",
    command="lengthwise run nope/scratchpads --device cuda",
    runs=grid(
        ENCODINGS,
        [
            f"{task}{',' if ':' in task else ':'}scratchpad={name}"
            for task, formats in TASKS.items()
            for name in formats
        ],
        SEEDS,
        model=PAPER,
        training={name: paper_training(shortest, 8, accumulation=4) for name, shortest in SHORTEST.items()},
    ),
    evaluation=EvaluationConfig(lengths=(4, 6, 8, *range(9, 17)), examples=250),
    published=published(
        {},
        "ranks over all their tasks, with and without scratchpad, not over these alone; " + WEIGHTS.format(bits=10),
        ranks=RANKS_WITH,
    ),
)
