"""Position coupling on a laptop: addition with 0.2 million parameters, trained on 1 to 6 digits, evaluated on up to 24.

Question: how much longer numbers does a small model add if digits of equal significance share a position ID?
Expectation (written before the first run): the paper trained on 1 to 30 digits, adds up to 200 digits with coupling,
and fails within a few more digits with other encodings, also with NoPE, RoPE and FIRE. So with coupling we expect more
than half of all sums to be right at twice the training length (12 digits), and a decline after that, because our
training is 100 times shorter. With consecutive positions, we expect at most 5 % at 8 digits and 0 from 12 digits on,
with every encoding. Size, learning rate and number of steps were chosen with seed 100, which is not among the seeds
here, with coupling alone.
Outcome (200 sums of each length, two seeds): both models with coupling learn the task (1.00 at 6 digits), and nothing
else does: with consecutive positions, a learned table has 0.02 and 0.10 at 6 digits, NoPE and RoPE 0. So the comparison
beyond the training length is one of a model that has learned with models that have not, which one layer and 3,000 steps
favour. Coupling has 0.11 and 1.00 at 8 digits and 0.07 and 0.53 at 12, less than expected on average (0.30), and at
most 0.03 at 18 and 24. With 1,000 more steps, seed 100 has 0.27 at 12 digits and 0.21 at 18.
Cost: about 10 minutes of one CPU core.
Command: lengthwise run coupling/small

Source: Cho et al. 2024, "Position Coupling: Improving Length Generalization of Arithmetic Transformers Using Task
Structure". Differs, besides the size: here the number of digits of the longer number is uniform in training, and the
sizes of both numbers differ in each batch.
"""

from lengthwise.config import EvaluationConfig, ModelConfig, TrainingConfig, choose
from lengthwise.positions import Coupled
from lengthwise.studies import Study, grid
from lengthwise.tasks import Addition

LONGEST = 24
TASK = choose(Addition, reverse=True, pad=True)
MODEL = ModelConfig(d_model=128, num_layers=1, num_heads=4)
COUPLED = choose(Coupled, max_position=LONGEST + 2)


def study(seeds: int = 2, steps: int = 3000) -> Study:
    training = TrainingConfig(train_length=6, min_length=1, steps=steps, batch_size=64, learning_rate=1e-3)
    table = f"learned:max_length={LONGEST + 3}"
    return Study(
        name="coupling: small",
        question="How much longer numbers does a small model add if digits of equal significance share a position?",
        expectation=(
            "With coupling, more than half of the sums of 12 digits are right, twice the training length. With "
            "consecutive positions at most 5 % are right at 8 digits and none from 12 digits on."
        ),
        cost="about 10 minutes of 1 CPU core",
        command="lengthwise run coupling/small",
        runs=(
            *grid([table], [TASK], seeds, model=MODEL, training=training, positions=[COUPLED]),
            *grid(["learned:max_length=80", "nope", "rope"], [TASK], seeds, model=MODEL, training=training),
        ),
        evaluation=EvaluationConfig(lengths=(4, 6, 8, 12, 18, 24), examples=200),
    )
