"""FIRE's ablations (Tables 2 to 6 and appendix B.5), on a laptop or at the scale of the paper.

Question: which parts of FIRE matter for its cross-entropy beyond the training length?
Expectation (the paper's, base model trained on 2,048 tokens of C4, cross-entropy at 512 / 1,024 / 2,048 / 4,096 / 8,192
tokens):
- FIRE 3.15 3.08 3.05 3.05 3.06; FIRE-S 3.22 3.14 3.10 3.09 3.10 (Table 2).
- Without log and threshold (eq. 21) 3.194 3.128 3.099 3.216 3.334; log without threshold (eq. 22) 3.161 3.093 3.062
  3.057 3.085; with both (eq. 23) 3.149 3.083 3.054 3.046 3.056 (Table 3).
- Linear 3.21 3.14 3.11 3.20 3.32; one hidden layer 3.17 3.10 3.07 3.06 3.08; two 3.15 3.08 3.05 3.05 3.06 (Table 4).
- ReLU 3.15 3.08 3.05 3.05 3.06; GELU 3.36 3.26 3.06 3.05 3.06 (Table 5).
- One hidden layer with an activation after the last layer 3.16 3.10 3.07 3.09 3.19; without 3.17 3.10 3.07 3.06 3.08
  (Table 6).
With models of 0.4 million parameters we expect the two variants that the paper finds to fail beyond the training length
(eq. 21 and linear) to be worst there, and no significant differences among the others.
Outcome: on novels, with pieces of text, eq. 21 and the linear function are worst beyond the training length, as
published, and significantly worse than FIRE at every length. None of the others differs significantly from FIRE beyond
the training length; eq. 22 is significantly worse at 64 and 128 bytes, by 0.05 and 0.03 nats per byte, as in Table 3.
GELU, which is 0.2 worse than ReLU at short lengths in Table 5, is equal to it here. With the same targets at every
length, every variant gets worse beyond the training length, also FIRE. Every score:
benchmarks/results/study-fire-ablations.json; a table: docs/log/2026-11-24.md.
Cost: about an hour of two CPU cores (24 trainings of 1,000 steps).
Command: lengthwise run fire/ablations --set text=FOLDER

Options: `text`: a file, a folder or a prepared corpus; default: the docstrings of Python's standard library. `seeds`:
the number of seeds. `scale`: laptop, or paper (125 million parameters, 2,048 tokens, 600,000 steps).
"""

from language_modelling import evaluation

from lengthwise.config import ConfigError, ModelConfig, TrainingConfig, choose
from lengthwise.studies import Study, grid
from lengthwise.tasks import Text

VARIANTS = (
    "fire",  # eq. 23, two hidden layers, ReLU
    "fire-s",
    "fire:transform=identity,threshold=false",  # eq. 21
    "fire:threshold=false",  # eq. 22
    "fire:hidden_layers=0",
    "fire:hidden_layers=1",
    "fire:hidden_layers=1,final_activation=true",
    "fire:activation=gelu",
)
TABLES = {
    "source": "Li et al. 2024, Tables 2 to 6",
    "about": "C4, trained on 2,048 tokens, base model: mean at 4,096 and 8,192 tokens",
}
LONGER = {  # published cross-entropy at 4,096 and 8,192 tokens
    "FIRE": (3.046, 3.056),
    "FIRE-S": (3.09, 3.10),
    "FIRE(transform=identity, threshold=False)": (3.216, 3.334),
    "FIRE(threshold=False)": (3.057, 3.085),
    "FIRE(hidden_layers=0)": (3.20, 3.32),
    "FIRE(hidden_layers=1)": (3.06, 3.08),
    "FIRE(hidden_layers=1, final_activation=True)": (3.09, 3.19),
    "FIRE(activation=gelu)": (3.05, 3.06),
}


def study(text: str = "python:docstrings", seeds: int = 3, scale: str = "laptop") -> Study:
    if scale not in ("laptop", "paper"):
        raise ConfigError(f"scale must be laptop or paper, got {scale!r}")
    if scale == "laptop":
        model = ModelConfig(d_model=96, num_layers=3, num_heads=4)
        training = TrainingConfig(train_length=256, steps=1000, batch_size=16, learning_rate=3e-3)
        lengths, tokens = (64, 128, 256, 512, 1024), 131_072
    else:
        model = ModelConfig(d_model=768, num_layers=12, num_heads=12)
        training = TrainingConfig(
            train_length=2048,
            steps=600_000,
            batch_size=256,
            learning_rate=6e-4,
            beta2=0.95,
            weight_decay=0.1,
            warmup=0.005,
        )
        lengths, tokens = (512, 1024, 2048, 4096, 8192), 4_194_304
    chosen = choose(Text, path=text, chunk=max(lengths))
    return Study(
        name=f"fire: ablations ({scale})",
        question="Which parts of FIRE matter for its cross-entropy beyond the training length?",
        expectation=(
            "Without log and threshold (eq. 21) and with a linear function, FIRE is worst beyond the training length; "
            "the other variants do not differ significantly."
        ),
        cost="about an hour of 2 CPU cores" if scale == "laptop" else "8 trainings of 600,000 steps: a cluster",
        command="lengthwise run fire/ablations",
        runs=grid(VARIANTS, [chosen], seeds, training=training, model=model),
        evaluation=evaluation(lengths, tokens, ()),
        published={**TABLES, "scores": {chosen.label: {name: sum(pair) / 2 for name, pair in LONGER.items()}}},
    )
