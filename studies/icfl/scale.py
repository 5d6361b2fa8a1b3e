"""In-context linear regression with models of several sizes, and with Mamba.

Question: does a larger model extrapolate further beyond the number of examples it was trained on, and does Mamba?
Expectation (theirs, plots only): size lowers the error up to 50 examples and does not change where an encoding fails.
Cost: 75 trainings of 50,000 steps, some hours each on one GPU.
Command: lengthwise run icfl/scale --device cuda
"""

from thesis import ENCODINGS, MODELS, paper_evaluation, paper_training

from lengthwise.config import ModelConfig
from lengthwise.studies import Study, grid

TRAINING = paper_training(dims=True)

study = Study(
    name="icfl: size",
    question="Does a larger model extrapolate further beyond the number of examples it was trained on, and does Mamba?",
    expectation="Size lowers the error up to 50 examples and does not change where an encoding fails.",
    cost="75 trainings of 50,000 steps, some hours each on one GPU",
    command="lengthwise run icfl/scale --device cuda",
    runs=(
        *(
            run
            for model in MODELS.values()
            for run in grid(ENCODINGS, ["linearregression"], seeds=3, model=model, training=TRAINING)
        ),
        *grid(
            ["nope"],
            ["linearregression"],
            seeds=3,
            model=ModelConfig.mamba(d_model=256, num_layers=32, state_size=16),
            training=TRAINING,
        ),
    ),
    evaluation=paper_evaluation(shifts=False),
)
