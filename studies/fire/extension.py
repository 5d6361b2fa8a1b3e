"""Context extension of a trained RoPE model: seven methods, without training and after a short fine-tuning.

Question: a RoPE model was trained on short texts; which change of its frequencies lets it read four times as much, without training
and after 100 steps at the longer length?
Expectation (written before the first run): without training, every method is better than plain RoPE at four times the training
length; PI is the worst of them at the training length itself, and the dynamic methods lose nothing there. After fine-tuning, all
methods lie within 0.05 nats per byte of each other at four times the length, and so does plain RoPE.
Outcome: on novels, without training, every method but PI is better than RoPE at four times the training
length; PI fails at every length. The dynamic methods lose nothing at the training length. After 100 steps, all methods but PI lie
within 0.05 nats per byte of each other at four times the length, and so does RoPE. With the same targets at every length, the gaps
are wider: at four times the length, before training, RoPE has 3.44 nats per byte, dynamic NTK 2.85, YaRN and dynamic YaRN 1.80.
Beyond the length of the fine-tuning, only dynamic YaRN keeps its cross-entropy. Every score:
benchmarks/results/study-fire-extension.json; the tables: docs/log.md.
Cost: about 25 minutes of two CPU cores (3 trainings of 1,000 steps, 21 evaluations, 24 fine-tunings of 100 steps).
Command: lengthwise run studies/fire/extension.py --set text=FOLDER

Options: `text`: a file, a folder or a prepared corpus; default: the docstrings of Python's standard library. `seeds`: the number of
seeds. `factor`: how many times the training length is fine-tuned.
"""

from language_modelling import evaluation

from lengthwise.config import ModelConfig, TrainingConfig, choose
from lengthwise.studies import Study, continued, grid
from lengthwise.tasks import Text

TRAIN_LENGTH = 256
METHODS = ("pi", "ntk-aware", "ntk-by-parts", "yarn", "longrope")  # they have a fixed factor
DYNAMIC = ("dynamic-ntk", "dynamic-yarn")  # their factor follows from the length


def study(text: str = "python:docstrings", seeds: int = 3, factor: int = 4) -> Study:
    lengths = (64, 128, 256, 512, 1024, 2048)
    model = ModelConfig(d_model=96, num_layers=3, num_heads=4)
    training = TrainingConfig(train_length=TRAIN_LENGTH, steps=1000, batch_size=16, learning_rate=3e-3)
    base = grid(["rope"], [choose(Text, path=text, chunk=max(lengths))], seeds, training=training, model=model)
    methods = (*(f"{name}:factor={factor}" for name in METHODS), *DYNAMIC)
    tuning = {"train_length": factor * TRAIN_LENGTH, "batch_size": 4, "learning_rate": 3e-4}
    return Study(
        name="fire: context extension",
        question="Which change of a trained RoPE model's frequencies lets it read longer texts, before and after fine-tuning?",
        expectation=(
            "Without training, every method is better than RoPE at four times the training length, and PI is the worst of them at "
            "the training length. After 100 steps all of them, and RoPE, lie within 0.05 nats per byte there."
        ),
        cost="about 25 minutes of 2 CPU cores",
        command="lengthwise run studies/fire/extension.py",
        runs=(
            *base,
            *continued(base, methods, steps=0),
            *continued(base, ["rope", *methods], steps=100, **tuning),
        ),
        evaluation=evaluation(lengths, 131_072, ()),
    )
