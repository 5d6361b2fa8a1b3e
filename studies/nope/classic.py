"""Figure E.4 at the published scale: SCAN (trained up to 25 actions) and PCFG SET (trained up to 8 functions).

Question: which position encodings carry out commands and nested functions that are longer than any in training?
Expectation (theirs): on SCAN, NoPE and T5 are far ahead of ALiBi, Rotary and sinusoidal; on PCFG all but sinusoidal are
similar.
Outcome: none yet; these runs have not been trained.
Cost: 30 trainings of a model of 85 million parameters, 40,000 steps (PCFG 60,000): some hours each on one GPU.
Command: lengthwise run nope/classic --device cuda

Every test question beyond the training length is evaluated once, as in the published scores; their number differs by
length (3,232 of PCFG have 9 functions, one has 35). Models train on all training examples for several epochs: 15,547 of
SCAN (theirs 15,997), 70,834 of PCFG (theirs 72,909).
"""

from kazemnejad import ENCODINGS, PAPER, SEEDS, paper_training, published

from lengthwise.config import EvaluationConfig
from lengthwise.studies import Study, grid

study = Study(
    name="nope: classic tasks",
    question="Which position encodings carry out commands and nested functions that are longer than any in training?",
    expectation="On SCAN NoPE and T5 lead far before ALiBi, Rotary and sinusoidal; on PCFG all but sinusoidal "
    "are alike.",
    cost="30 trainings of 40,000 to 60,000 steps, some hours each on one GPU",
    command="lengthwise run nope/classic --device cuda",
    runs=grid(
        ENCODINGS,
        ["scan:split=tr25", "pcfg"],
        SEEDS,
        model=PAPER,
        training={
            "SCAN": paper_training(1, 25, examples=15_547),
            "PCFG": paper_training(1, 8, steps=60_000, examples=70_834),
        },
    ),
    evaluation={
        "SCAN": EvaluationConfig(lengths=(10, 20, 25, 26, 27, 28, 30, 32, 33, 36, 40, 48), examples=600),
        "PCFG": EvaluationConfig(lengths=(*range(1, 31), 32, 35), examples=3232),
    },
    published=published(
        {"SCAN(split=tr25)": "SCAN", "PCFG": "PCFG"},
        "theirs and ours are over all test questions, each once (3,136 of SCAN, 11,333 of PCFG, as many of each "
        "length); the questions of SCAN are the same; their PCFG SET is the released one, ours is drawn by our own "
        "generator, with answers of "
        "at most 100 symbols (of theirs 0.27 % have more, up to 736)",
    ),
)
