"""In-context linear regression with models of several sizes, and with Mamba, at the published scale or on a laptop.

Question: does a larger model extrapolate further beyond the number of examples it was trained on, and does Mamba?
Expectation (theirs, plots only): size lowers the error up to 50 examples and does not change where an encoding fails.
Expectation for the small scale (written before its first run, and after icfl/small, whose models of 4 layers of width 64 are part
of it): at 12 examples a larger model has a lower error with every encoding. At 96 examples, PI, YaRN and RoPE have errors above 1
at every size, and FIRE is at every size the best encoding and better than at 12 examples. Mamba is worse than FIRE of the same
width at 96 examples, because its state has to hold what attention looks up, but its error stays below 1.
Outcome (small): not run yet.
Cost: paper: 75 trainings of 50,000 steps, some hours each on one GPU; small: about 45 minutes of two CPU cores.
Command: lengthwise run icfl/scale --device cuda

Options: `scale`: paper or small. Small has 75 trainings of 1,000 steps on 12 examples of 3 dims, evaluated on 96, with the training
of icfl/small; the runs with 4 layers of width 64 are those of icfl/small, which are not trained again in its results folder.
"""

from thesis import ENCODINGS, MODELS, SMALL, paper_evaluation, paper_training, small_training

from lengthwise.config import ConfigError, EvaluationConfig, ModelConfig
from lengthwise.studies import Study, grid

SMALL_MODELS = (
    ModelConfig.llama(d_model=32, num_layers=2, num_heads=2, d_ff=128),
    SMALL,
    ModelConfig.llama(d_model=64, num_layers=8, num_heads=2, d_ff=256),
)
SMALL_LENGTHS = (1, 2, 3, 4, 6, 8, 10, 12, 15, 18, 24, 36, 48, 72, 96)
SCALES = {
    "paper": (
        "linearregression",
        tuple(MODELS.values()),
        ModelConfig.mamba(d_model=256, num_layers=32, state_size=16),
        paper_training(dims=True),
        range(3),
        paper_evaluation(shifts=False),
    ),
    "small": (
        "linearregression:dims=3",
        SMALL_MODELS,
        ModelConfig.mamba(d_model=64, num_layers=4, state_size=16),
        small_training(steps=1000, batch_size=64),
        range(1, 4),
        EvaluationConfig(lengths=SMALL_LENGTHS, examples=400, prompt=96),
    ),
}


def study(scale: str = "paper") -> Study:
    if scale not in SCALES:
        raise ConfigError(f"scale must be paper or small, got {scale!r}")
    task, models, mamba, training, seeds, evaluation = SCALES[scale]
    return Study(
        name="icfl: size" if scale == "paper" else "icfl: size (small)",
        question="Does a larger model extrapolate further beyond the number of examples it was trained on, and does Mamba?",
        expectation="Size lowers the error up to the training length and does not change where an encoding fails.",
        cost="75 trainings of 50,000 steps, some hours each on one GPU"
        if scale == "paper"
        else "45 minutes of 2 CPU cores",
        command="lengthwise run icfl/scale --device cuda" if scale == "paper" else "lengthwise run icfl/scale",
        runs=(
            *(run for model in models for run in grid(ENCODINGS, [task], seeds, model=model, training=training)),
            *grid(["nope"], [task], seeds, model=mamba, training=training),
        ),
        evaluation=evaluation,
    )
