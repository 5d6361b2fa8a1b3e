"""In-context function learning at the thesis' scale: twelve function classes, eight encodings, trained on 50 examples,
evaluated on 400.

Question: which position encodings let a model learn a function from more examples than it was trained on?
Expectation (theirs, plots only): ALiBi and FIRE extrapolate furthest; dynamic NTK and dynamic YaRN are "not bad"; RoPE,
PI, YaRN and NoPE degrade beyond 50 examples; no encoding learns parities. For conjunctions and disjunctions, their
evaluation labels x by another function than the one that x was balanced for, so that a constant label is right in 0.93
of all cases. Here one function does both, and the `mismatched_balance` shift evaluates the published way as well.
Cost: 288 trainings of a model of 17 million parameters, 50,000 steps each: some hours each on one GPU.
Command: lengthwise run icfl/paper --device cuda
"""

from thesis import BOOLEAN, ENCODINGS, PAPER, REGRESSION, paper_evaluation, paper_training

from lengthwise.config import EvaluationConfig
from lengthwise.studies import Study, grid, task

MISMATCHED = {"Conjunction", "Disjunction", "SparseDisjunction", "CNF", "DNF"}


def _evaluation(name: str, regression: bool) -> EvaluationConfig:
    evaluation = paper_evaluation(shifts=regression)
    if name not in MISMATCHED:
        return evaluation
    return EvaluationConfig(
        lengths=evaluation.lengths,
        examples=evaluation.examples,
        prompt=evaluation.prompt,
        shifts=({"mismatched_balance": True},),
    )


NAMES = {task(word).name: word in REGRESSION for word in (*REGRESSION, *BOOLEAN)}

study = Study(
    name="icfl: twelve classes of functions",
    question="Which position encodings let a model learn a function from more examples than it was trained on?",
    expectation=(
        "ALiBi and FIRE extrapolate furthest; beyond the 50 training examples, dynamic NTK and dynamic YaRN degrade "
        "slowly, RoPE, PI and YaRN at once, and NoPE too. Parities are not learned."
    ),
    cost="288 trainings of 50,000 steps, some hours each on one GPU",
    command="lengthwise run icfl/paper --device cuda",
    runs=grid(
        ENCODINGS,
        [*REGRESSION, *BOOLEAN],
        seeds=3,
        model=PAPER,
        training={name: paper_training(dims=regression) for name, regression in NAMES.items()},
    ),
    evaluation={name: _evaluation(name, regression) for name, regression in NAMES.items()},
)
