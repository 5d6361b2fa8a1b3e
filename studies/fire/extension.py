"""Context extension of a trained RoPE model: scaled frequencies, maps of distances, and no encoding.

Question: a RoPE model was trained on short texts; which change of its frequencies or distances lets it read four times
as much, without training, after 100 steps at the longer length, or after a short training without any encoding?
Expectation (written before the first run): without training, every method is better than plain RoPE at four times the
training length; PI is the worst of them at the training length itself, and the dynamic methods lose nothing there.
After fine-tuning, all methods lie within 0.05 nats per byte of each other at four times the length, and so does plain
RoPE.
Outcome: on novels, without training, every method but PI is better than RoPE at four times the training
length; PI fails at every length. The dynamic methods lose nothing at the training length. After 100 steps, all methods
but PI lie within 0.05 nats per byte of each other at four times the length, and so does RoPE. With the same targets at
every length, the gaps are wider: at four times the length, before training, RoPE has 3.44 nats per byte, dynamic NTK
2.85, YaRN and dynamic YaRN 1.80. Beyond the length of the fine-tuning, only dynamic YaRN keeps its cross-entropy. Every
score: benchmarks/results/study-fire-extension.json; the tables: docs/log/2026-11-24.md.
Maps of distances and DroPE were added later, with this expectation (written before their first run): up to four times
the training length, Self-Extend, ReRoPE and DCA use only distances that were trained, so without training they lose at
most 0.1 nats per byte from the training length to there (same targets), and are better than RoPE, PI and NTK-by-parts.
STRING uses only trained distances up to 1.16 times the training length, so it fails there like RoPE. DroPE, the model
without its encoding after a recalibration of 2 % of the training, is more than 0.1 nats worse than RoPE at the training
length, because 20 steps are few; after 10 %, it is better than RoPE at four times the training length, also with norms
of queries and keys. A temperature in the evaluation improves it at eight times.
Outcome of a small run (the docstrings, two seeds, 32,768 bytes of each length, the same targets at every length; no
fine-tuning at 1,024): RoPE has 1.11 nats per byte at the training length and 3.55 at four times; there Self-Extend has
1.12, DCA 1.13, ReRoPE 1.23, YaRN and dynamic YaRN 1.27, NTK-by-parts 1.29, and STRING 3.42, as expected. At eight
times, DCA has 1.18, ReRoPE 1.37, dynamic YaRN 1.57, Self-Extend 1.76, and every other method more than 3. DroPE has
2.46 at the training length after 2 % and 2.30 after 10 %, with norms 2.29; at four times 2.49, 2.40 and 2.39. So it is
better than RoPE there, but far from having recovered: the shares of the paper are shares of billions of tokens. The
temperature changes nothing (less than 0.01).
Cost: about 35 minutes of two CPU cores (3 trainings of 1,000 steps, 36 evaluations, 24 fine-tunings of 100 steps, and 9
recalibrations).
Command: lengthwise run fire/extension --set text=FOLDER

Options: `text`: a file, a folder or a prepared corpus; default: the docstrings of Python's standard library. `seeds`:
the number of seeds. `factor`: how many times the training length is fine-tuned.
"""

from language_modelling import evaluation

from lengthwise.config import ModelConfig, TrainingConfig, choose
from lengthwise.studies import Study, continued, grid
from lengthwise.tasks import Text

TRAIN_LENGTH = 256
METHODS = ("pi", "ntk-aware", "ntk-by-parts", "yarn", "longrope")  # they have a fixed factor
DYNAMIC = ("dynamic-ntk", "dynamic-yarn")  # their factor follows from the length
MAPS = ("self-extend", "rerope", "dca", "string")  # they map distances to trained ones, and need no training
DROPPED = "nope"  # DroPE
HOTTER = (
    f"nope(temperature=ministral(strength=0.1,step={TRAIN_LENGTH}))"  # 1 at the training length, 1.16 at four times
)


def study(text: str = "python:docstrings", seeds: int = 3, factor: int = 4) -> Study:
    lengths = (64, 128, 256, 512, 1024, 2048)
    model = ModelConfig(d_model=96, num_layers=3, num_heads=4)
    training = TrainingConfig(train_length=TRAIN_LENGTH, steps=1000, batch_size=16, learning_rate=3e-3)
    base = grid(["rope"], [choose(Text, path=text, chunk=max(lengths))], seeds, training=training, model=model)
    methods = (*(f"{name}:factor={factor}" for name in METHODS), *DYNAMIC)
    dropped = continued(base, [DROPPED], share=0.1)
    tuning = {"train_length": factor * TRAIN_LENGTH, "batch_size": 4, "learning_rate": 3e-4}
    return Study(
        name="fire: context extension",
        question="Which change of a trained RoPE model lets it read longer texts, before and after fine-tuning?",
        expectation=(
            "Without training, every method is better than RoPE at four times the training length, and PI is the worst "
            "of them at the training length. After 100 steps all of them, and RoPE, lie within 0.05 nats per byte "
            "there. Self-Extend, ReRoPE "
            "and DCA lose at most 0.1 nats per byte up to four times the training length, STRING fails. Without its "
            "encoding (DroPE), the model is better than RoPE there after 10 % of the training, and worse at the "
            "training length after 2 %."
        ),
        cost="about 35 minutes of 2 CPU cores",
        command="lengthwise run fire/extension",
        runs=(
            *base,
            *continued(base, [*methods, *MAPS], steps=0),
            *continued(base, ["rope", *methods], steps=100, **tuning),
            *continued(base, [DROPPED], share=0.02),
            *dropped,
            *continued(base, [DROPPED], share=0.1, model={"qk_norm": True}),
            *continued(dropped, [HOTTER], steps=0),
        ),
        evaluation=evaluation(lengths, 131_072, ()),
    )
