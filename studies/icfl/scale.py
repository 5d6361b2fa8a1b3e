"""In-context linear regression with models of several sizes, and with Mamba, at the published scale or on a laptop.

Question: does a larger model extrapolate further beyond the number of examples it was trained on, and does Mamba?
Expectation (theirs, plots only): size lowers the error up to 50 examples and does not change where an encoding fails.
Expectation for the small scale (written before its first run, and after icfl/small, whose models of 4 layers of width
64 are part of it): at 12 examples a larger model has a lower error with every encoding. At 96 examples, PI, YaRN and
RoPE have errors above 1 at every size, and FIRE is at every size the best encoding and better than at 12 examples.
Mamba is worse than FIRE of the same width at 96 examples, because its state has to hold what attention looks up, but
its error stays below 1.
Outcome (small; means of three seeds, every score with its interval in benchmarks/results/study-icfl-scale-small.json):
- At 12 examples the error falls with size for every encoding, as expected: NoPE 1.45, 0.34 and 0.09, RoPE 0.90, 0.06
  and 0.02, ALiBi 1.19, 0.28 and 0.07, FIRE 0.56, 0.05 and 0.015. Of the smallest models only FIRE is clearly better
  than averaging (0.94), so what the others of 2 layers do at longer lengths says little.
- At 96 examples PI (3.67, 2.93 and 1.95) and YaRN (3.54, 1.82 and 1.74) are above 1 at every size. RoPE is so in the
  mean of 2 and 4 layers (2.71 and 1.46), but not of 8 (0.88, with an interval of 0 to 2.25), against the expectation.
- FIRE is best at 96 examples at every size, and better there than at 12: 0.20, 0.017 and 0.007. So is, without an
  expectation, DynamicYaRN with 4 and 8 layers (0.11 and 0.06); YaRN and PI with their fixed factor are not.
- Mamba has 0.15 at 12 examples and 0.87 at 96, far above FIRE's 0.017. Its mean is below 1, as expected, but the
  interval of 0.21 to 1.49 is not.
So size lowers the error at every length and does not change which encodings fail, except that RoPE's failure is not
certain in the largest model.
Cost: paper: 75 trainings of 50,000 steps, some hours each on one GPU; small: about 45 minutes of two CPU cores.
Command: lengthwise run icfl/scale --device cuda

Options: `scale`: paper or small. Small has 75 trainings of 1,000 steps on 12 examples of 3 dims, evaluated on 96, with
the training of icfl/small; the runs with 4 layers of width 64 are those of icfl/small, which are not trained again in
its results folder.
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
        question="Does a larger model extrapolate further beyond the number of examples it was trained on, and "
        "does Mamba?",
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
