"""Memorized sentences in longer texts on a laptop: six encodings, trained on single sentences and on one to four.

Question: does a model still know the labels that it has memorized when sentences are joined to longer texts, and does
training on joined sentences help?
Published (a thesis): a model with F1 1.00 on single sentences loses F1 when all sentences are one text. Its reasons:
neighbouring sentences influence each other, and short sentences leave positions undertrained.
Expectation (written before the first run of the study; known from seed 100, which is not among the seeds here, with two
heads: NoPE and RoPE at width 48 have 1.00 at one sentence, 0.87 and 0.86 at two, 0.68 and 0.69 at eight; RoPE at width
64 has 0.58 at 1,400):
- Every encoding memorizes the single sentences (at least 0.99).
- Trained on single sentences, every encoding loses at two sentences. ALiBi loses least (at least 0.9 at two, 0.75 at
  eight), because its attention to earlier sentences is weakest. The sinusoidal encoding loses most (less than 0.6 at
  two), because positions beyond 41 were never trained. At 1,400 sentences no encoding is better than 0.7.
- Trained on one to four sentences, all but the sinusoidal encoding have at least 0.95 at four. At 1,400, ALiBi, KERPLE
  and FIRE keep at least 0.9, and NoPE and RoPE fall below 0.8.
- The two reasons are separated by single sentences at later positions (`lengthwise probe position-shift`): NoPE, RoPE,
  ALiBi and KERPLE do not change, because they see only distances, so what they lose is due to the other sentences. The
  sinusoidal encoding loses more than 0.2 at a shift of 32.
Outcome (three seeds, all 1,400 sentences at every length, means over seeds; intervals: docs/log.md and
benchmarks/results/study-memorization-small.json):
- Every encoding memorizes the single sentences: 1.00, as expected.
- Trained on single sentences, all lose in pairs: ALiBi least (0.89), then KERPLE (0.89), FIRE and RoPE (0.87), NoPE
  (0.86) and the sinusoidal encoding (0.81, which is much less than the loss that we expected). At 1,400 sentences ALiBi
  has 0.71, a little more than expected, KERPLE 0.62, and FIRE, RoPE, NoPE (0.56 to 0.57) and the sinusoidal encoding
  (0.44) are below the most frequent label of each word (0.60).
- Trained on one to four sentences, FIRE is nearly perfect up to 64 sentences, 16 times its training length (0.98), and
  falls to 0.85 at 1,400, against the expectation of 0.9. ALiBi and KERPLE keep 0.91 at 1,400. NoPE has only 0.93 at
  four sentences, against the expectation. NoPE (0.57), RoPE (0.59) and the sinusoidal encoding (0.47) are worse than
  the most frequent label at 1,400.
- At positions shifted by 8 to 512, models that were trained on single sentences keep their score on single sentences
  with NoPE, RoPE, ALiBi, KERPLE and also FIRE, so what these lose is due to the sentences before. The sinusoidal
  encoding has 0.76 to 0.79 at a shift of 8, 0.60 to 0.72 at 32 and 0.18 to 0.62 at 512: only for it are positions
  undertrained.
So both reasons of the thesis hold, but for different encodings, and training on a few joined sentences removes most of
the loss where an encoding prefers near tokens or learns to.
Cost: 41 minutes of one CPU core with other work on it.
Command: lengthwise run memorization/small
"""

from lengthwise.config import EvaluationConfig, ModelConfig, TrainingConfig, choose
from lengthwise.studies import Study, grid
from lengthwise.tasks import Tagging

ENCODINGS = ("nope", "sinusoidal", "rope", "alibi", "kerplelog", "fire")
LENGTHS = (1, 2, 4, 8, 16, 64, 256, 1400)  # sentences; the last are all
MODEL = ModelConfig(d_model=48, num_layers=2, num_heads=4)
JOINED = 4  # sentences


def study(seeds: int = 3, steps: int = 1500) -> Study:
    def training(longest: int, batch: int) -> TrainingConfig:
        return TrainingConfig(
            train_length=longest,
            min_length=1,
            steps=steps,
            batch_size=batch,
            learning_rate=4e-3,
            train_examples=1400,
        )

    return Study(
        name="memorization: small",
        question="Does a model still know memorized labels when sentences are joined to longer texts?",
        expectation=(
            "All encodings memorize single sentences. Joined ones cost F1: ALiBi loses least, the sinusoidal encoding "
            "most, and at 1,400 none is above 0.7. Trained on one to four sentences, ALiBi, KERPLE and FIRE keep at "
            "least 0.9 there."
        ),
        cost="41 minutes of 1 CPU core with other work on it",
        command="lengthwise run memorization/small",
        runs=(
            *grid(ENCODINGS, [choose(Tagging)], seeds, model=MODEL, training=training(1, 32)),
            *grid(ENCODINGS, [choose(Tagging)], seeds, model=MODEL, training=training(JOINED, 16)),
        ),
        evaluation=EvaluationConfig(lengths=LENGTHS),
    )
