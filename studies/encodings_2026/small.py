"""All encodings of the library on a laptop: seven tasks, trained short, evaluated up to eight times as long.

Question: which encodings still work at up to eight times the training length, and does the answer depend on the task?
Tasks: text; copies of one repeated symbol and of random symbols; recall of the value of a key in the middle of others;
addition with a scratchpad, which the model writes itself; state tracking (products of permutations of five elements,
with the arrangement after each); counting. Every encoding of the library takes part, so a new one joins by its line in
the list:

- Those that change trained rotations start from RoPE (`starts_from_rope`): PI, NTK-aware, NTK-by-parts, YaRN and their
  dynamic forms, Llama 3, LongRoPE, Self-Extend, ReRoPE, DCA and STRING. They are evaluated on the weights of the RoPE
  runs, without training, with the factor 8 where they have one.
- All others are trained. Temperatures and sinks are trained alone, so each is NoPE with this addition.
- Settings that are lengths (`step`, `length`, `band`) are the training length in tokens, because defaults for long
  texts would have no effect here. The table of Learned has a row for every position of the evaluation.

The first stage chooses the better of two learning rates for each encoding on each task, by the score at the training
length after half of the steps, with seed 100, which the comparison does not use. `best_runs` says how ties are decided.
Both stages are stored: the first as a study of its own, and the rates in the runs of the second.

Expectation (written before the first run), from what the papers claim:
- Text, at eight times the training length: FIRE, KERPLE, ALiBi, Sandwich, DAPE, FoX, StickBreaking and GRAPE-AP (all
  claim extrapolation or use a decay with distance) lie within 0.1 nats per byte of their own score at the training
  length. RoPE, p-RoPE, sinusoidal and Learned get worse by more than 0.5. LeRoPE follows RoPE. xPos lies between. PoPE
  and RePo (both claim better extrapolation than RoPE) get less worse than RoPE. NoPE, and with it all temperatures and
  sinks, gets worse by 0.1 to 0.5. Of the encodings that start from RoPE, DCA, ReRoPE and dynamic YaRN lose least; PI
  fails at every length.
- Copies: of a repeated symbol, NoPE leads at twice the length (Kazemnejad et al. 2023). Of random symbols, nothing is
  above 0.1 at twice the length.
- Recall: StickBreaking (claims to retrieve at eight times the length), SSMax and LogN (claim sharper attention over
  more keys) are above NoPE at eight times the length; SelectiveRoPE (claims recall) is above RoPE.
- Addition with a scratchpad: nothing is above 0.1 at twice the length, because steps must be found by position or
  content at new distances; relative biases (T5, FIRE, KERPLE) are best at most by a few percent.
- State tracking: nothing is above 0.1 at twice the length, because no circuit of constant depth does it (Merrill et al.
  2024).
- Counting: CoPE (claims to count) leads at twice the length; nothing is above the constant answer by more than 0.1 at
  eight times.
Outcome (means of two seeds; every score in benchmarks/results/study-encodings-2026-small.json):
- Text, in nats per byte, at eight times the training length and at the training length: the group that claims
  extrapolation gets better there, as expected: StickBreaking 1.50 (1.56), PaTH-FoX 1.52 (1.58), FoX 1.57 (1.62),
  KERPLE's power variant 1.57 (1.63), DAPE and Sandwich 1.61, FIRE 1.62 (1.67), KERPLE 1.69 (1.75), ALiBi 1.91 (1.95),
  GRAPE-AP 1.92 (1.97). So do Transformer-XL 1.61 (1.66) and GRAPE-A 1.74 (1.79), without an expectation. RoPE 2.53
  (1.77), p-RoPE 2.54 (1.77), sinusoidal 2.73 (2.13) and LeRoPE 2.59 (1.77) fail, xPos lies between: 2.09 (1.77).
  Learned loses only 0.23, from a bad start (2.39). PoPE loses 0.27; RePo 0.11, but it is as bad as NoPE at the training
  length (2.29). NoPE and all temperatures lose 0.11 to 0.15. On the weights of RoPE, DCA keeps most, 1.80; Self-Extend
  (1.83) keeps more than ReRoPE (1.98), and PI fails everywhere (2.93 and more). T5 gets worse by 0.31 and LieRE by
  0.64.
- Copies: of a repeated symbol, NoPE has 0.38 at twice the length and leads, with temperatures that change it little
  (Inkling 0.39). Of random symbols, seven are above 0.1 at twice the length, against the expectation: DAPE 0.37, FIRE
  0.27, KERPLE's power variant 0.20, GRAPE-A 0.16, Sandwich 0.13, KERPLE 0.12, FoX 0.11; none has more than 0.01 at four
  times.
- Recall: this column says nothing about the claims. The key that is asked for is always in the middle, so the task can
  be solved by position: at the training length, 12 of 38 trained encodings, most of them rotations and tables, have
  1.00. Another 22 have at most 0.30 there, in the median 0.28, and 0.15, 0.14 and 0.11 at twice, four and eight times
  the length. That is what the most frequent value of the prompt scores, without key and position (0.26, 0.19, 0.15 and
  0.12). StickBreaking, SSMax, LogN and NoPE are among them, so that they do not differ at eight times the length (0.06,
  0.06, 0.10 and 0.13) shows nothing; nor does SelectiveRoPE (0.02) beside RoPE (0.05), which are both below chance
  there. An earlier version of this text read these numbers as "none of the claims shows", and 0.28 as a sign of solving
  by position. PaTH-FoX 0.34 and PaTH 0.28 lead at twice the length. SelectiveRoPE is the variant with low rank and
  without a gate, which no published language model uses.
- Addition and state tracking: 0 at twice the length everywhere, as expected.
- Counting: nothing leads at twice the length. GRAPE-A has 0.12, PaTH 0.10 and CoPE 0.05, of 128; at most 0.02 at eight
  times.
The rows of AxialRoPE and MRoPE are not of these methods: both derive from RoPE, so they were evaluated on its weights,
without training and with another base.
Nobody should choose an encoding by the small differences: there are two seeds, models of two layers, and short
trainings, in which several encodings have not learned some tasks.
Cost: 110 minutes of two CPU cores that other work shared, and about 70 minutes of processor time on each (estimated).
LieRE's 28 of the 1,260 runs were added by a second call of the same command, when LieRE joined the library.
Command: lengthwise run encodings_2026/small --workers 2
"""

from collections.abc import Iterable
from typing import Any

from lengthwise.config import Choice, EvaluationConfig, ModelConfig, Run, TrainingConfig, choose, settings_of
from lengthwise.encodings import ENCODINGS, LeRoPE, PRoPE, RoPE, XPos
from lengthwise.store import Store
from lengthwise.studies import Study, best_runs, continued, grid
from lengthwise.tasks import Addition, Copy, Counting, Permutations, Recall, Text

COMMAND = "lengthwise run encodings_2026/small --workers 2"
FACTOR = 8  # the longest evaluation, in training lengths
RATES = (1e-3, 4e-3)
RATE_SEED = 100  # of the stage that chooses the learning rates, and of nothing else
MODEL = ModelConfig(d_model=64, num_layers=2, num_heads=4)
TRAINED_ROTATIONS = (RoPE, PRoPE, XPos, LeRoPE)
WITH_FACTOR = ("PI", "NTKAware", "NTKByParts", "YaRN", "Llama3", "LongRoPE")
EXPECTATION = (
    "Encodings of distances lead at eight times the training length on text. No encoding tracks the state there, and "
    "none keeps an exact copy of random symbols. Temperatures and sinks change NoPE by less than the seeds differ."
)

SETTINGS: dict[str, tuple[int, int, int]] = {  # of each class of task: training length, steps, batch size
    "Text": (64, 450, 16),
    "Copy": (8, 600, 32),
    "Recall": (8, 600, 32),
    "Addition": (3, 600, 32),
    "Permutations": (4, 600, 32),
    "Counting": (16, 600, 32),
}


def tasks(text: str) -> list[Choice]:
    return [
        choose(Text, path=text, chunk=FACTOR * SETTINGS["Text"][0]),
        choose(Copy, symbols=200, pattern="repeated"),
        choose(Copy, symbols=20),
        choose(Recall, keys=FACTOR * SETTINGS["Recall"][0], values=16, depth=0.5),
        choose(Addition, scratchpad="minimal"),
        choose(Permutations, moves="swaps", answer="all"),
        choose(Counting),
    ]


def starts_from_rope(make: type) -> bool:
    """Whether an encoding is a change of trained rotations, which is evaluated on a trained RoPE model without
    training.
    """
    return issubclass(make, RoPE) and make not in TRAINED_ROTATIONS


def trained_encodings(task: Choice) -> list[Choice]:
    """Return every encoding of the library that is trained. Settings that are lengths are those of the training or
    evaluation.
    """
    length, built = SETTINGS[task.name][0], task.build()
    tokens, longest = built.tokens(length), built.tokens(FACTOR * length)
    own: dict[str, Any] = {"step": tokens, "length": tokens, "band": tokens}
    choices = []
    for make in ENCODINGS:
        names = settings_of(make).keys()
        settings = {name: value for name, value in own.items() if name in names}
        if make.__name__ == "Learned":
            settings["max_length"] = longest
        if not starts_from_rope(make):
            choices.append(choose(make, **settings))
    return choices


def extensions() -> list[Choice]:
    """Return every encoding of the library that starts from RoPE."""
    return [
        choose(make, **({"factor": FACTOR} if make.__name__ in WITH_FACTOR else {}))
        for make in ENCODINGS
        if starts_from_rope(make)
    ]


def trainings(text: str, seeds: Iterable[int], rate: float, share: float = 1.0) -> list[Run]:
    """Return the runs of all trained encodings on all tasks. `share`: of the training steps."""
    runs: list[Run] = []
    for task in tasks(text):
        length, steps, batch = SETTINGS[task.name]
        training = TrainingConfig(
            train_length=length,
            min_length=length if task.name == "Text" else 1,
            steps=round(share * steps),
            batch_size=batch,
            learning_rate=rate,
        )
        runs += grid(trained_encodings(task), [task], list(seeds), model=MODEL, training=training)
    return runs


def evaluations(factors: Iterable[int], examples: int, tokens: int) -> dict[str, EvaluationConfig]:
    return {
        name: EvaluationConfig(lengths=tuple(length * n for n in factors), examples=examples, tokens=tokens)
        for name, (length, _, _) in SETTINGS.items()
    }


def study(text: str = "python:docstrings", seeds: int = 2) -> Study:
    """Return the stage that chooses the learning rates; `then` is the comparison."""
    rates = [run for rate in RATES for run in trainings(text, [RATE_SEED], rate, share=0.5)]

    def comparison(store: Store) -> Study:
        chosen = {(run.encoding, run.task): run.training.learning_rate for run in best_runs(store, rates)}
        return comparison_study(text, seeds, chosen)

    return Study(
        name="encodings 2026: learning rates (small)",
        question=f"Which of the learning rates {RATES[0]:g} and {RATES[1]:g} is better for each encoding on each task?",
        expectation="The larger rate is better for most encodings on most tasks, because the trainings are short.",
        cost="about 25 minutes of 2 CPU cores (estimated)",
        command=COMMAND,
        runs=tuple(rates),
        evaluation=evaluations([1], 64, 4096),
        then=comparison,
    )


def comparison_study(text: str, seeds: int, rates: dict[tuple[Choice, Choice], float]) -> Study:
    """Return the comparison. `rates`: the learning rate of each encoding on each task."""
    runs = [
        run for rate in RATES for run in trainings(text, range(seeds), rate) if rates[run.encoding, run.task] == rate
    ]
    runs.sort(key=lambda run: run.seed)  # so that an interrupted study has a complete comparison early
    rope = [run for run in runs if run.encoding == choose(RoPE)]
    return Study(
        name="encodings 2026 (small)",
        question="Which encodings still work at up to eight times the training length, and on which tasks?",
        expectation=EXPECTATION,
        cost="about 45 minutes of 2 CPU cores (estimated)",
        command=COMMAND,
        runs=(*runs, *continued(rope, extensions(), steps=0)),
        evaluation=evaluations([1, 2, 4, 8], 64, 8192),
    )
