"""The fifteen tasks of the Chomsky hierarchy at the published size, trained on lengths 1 to 40, evaluated on up to 500.

Question: which levels do position encodings, randomized positions and models without attention solve at longer lengths?
Expectation: the published result for Transformers (see `deletang.py`): even pairs and bucket sort are solved, no
context-free task and no other context-sensitive one is. With randomized positions, the mean accuracy over the fifteen
tasks rises by 0.12.
Outcome: not run yet.
Size: as in the authors' code, 5 layers of width 64 with 8 heads, dropout 0.1, batches of 128, a learning rate of 1e-3,
and 512 test examples of each length. `steps` is that of their public example; the paper trains longer.
Cost: 360 trainings of 10,000 steps: about two weeks of one CPU core (estimated), or a GPU for some days.
Command: lengthwise run chomsky/paper --device cuda
"""

from deletang import MIXERS, TASKS, comparison, evaluations

from lengthwise.config import ModelConfig
from lengthwise.studies import Study

LENGTHS = (20, 40, 50, 60, 80, 100, 150, 200, 300, 400, 500)
MODEL = ModelConfig(d_model=64, num_layers=5, num_heads=8, dropout=0.1)
MIXER_MODELS = [ModelConfig(mixer=mixer, d_model=64, num_layers=5, dropout=0.1) for mixer in MIXERS]


def study(seeds: int = 3, steps: int = 10_000) -> Study:
    training = {"steps": steps, "batch_size": 128, "learning_rate": 1e-3}
    return Study(
        name="chomsky: paper",
        question="Which levels of the Chomsky hierarchy do models solve at longer lengths than in training?",
        expectation=(
            "Transformers solve even pairs and bucket sort, no context-free task, and no other context-sensitive one. "
            "Randomized positions raise the mean accuracy over all tasks by 0.12."
        ),
        cost="360 trainings of 10,000 steps, some days of one GPU (estimated)",
        command="lengthwise run chomsky/paper --device cuda",
        runs=comparison(tuple(TASKS), seeds, MODEL, MIXER_MODELS, training, max_length=2048),
        evaluation=evaluations(tuple(TASKS), LENGTHS, examples=512),
    )
