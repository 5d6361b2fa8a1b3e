"""Language modelling at the scale of the FIRE paper: 125 and 350 million parameters, trained on C4.

Question: how does the cross-entropy of a language model change beyond its training length, and which encoding decides
it?
Expectation (the paper's): FIRE has the lowest cross-entropy at all lengths beyond 2,048. The base model's perplexity at
8,192 tokens is 21.24 with FIRE and 23.52 with KERPLE (3.06 and 3.16 nats per token); the curves of other encodings are
only plotted.
Outcome: not run here.
Cost: 600,000 steps of 256 sequences for each of 11 models of a size: a cluster.
Command: lengthwise run fire/paper --set corpus=FOLDER --device cuda

Options:
- `corpus`: C4, prepared with `lengthwise tokenize`. `arxiv`, `github`: prepared with the same tokenizer; omitted if
  empty.
- `size`: base (125 million parameters) or large (350 million).
- `train_length`: 2048, or 512 as in appendix B.5.
- `seeds`: the number of seeds; the paper has one.

Steps, dropout and learning rates are those of Brown et al. 2020 for models of these sizes, because the paper's tables
of them are not readable in our source.
"""

from language_modelling import QUESTION, evaluation, runs

from lengthwise.config import ConfigError, ModelConfig, TrainingConfig
from lengthwise.studies import Study

SIZES = {"base": (768, 12, 12, 6e-4), "large": (1024, 24, 16, 3e-4)}  # d_model, layers, heads, learning rate
ENCODINGS = ("nope", "sinusoidal", "rope", "alibi", "t5:num_buckets=64", "kerple-log", "sandwich", "fire", "fire-s")


def study(
    corpus: str = "python",
    arxiv: str = "",
    github: str = "",
    size: str = "base",
    train_length: int = 2048,
    seeds: int = 1,
) -> Study:
    if size not in SIZES:
        raise ConfigError(f"size must be base or large, got {size!r}")
    width, layers, heads, learning_rate = SIZES[size]
    training = TrainingConfig(
        train_length=train_length,
        steps=600_000,
        batch_size=256,
        learning_rate=learning_rate,
        beta2=0.95,
        weight_decay=0.1,
        warmup=0.005,
    )
    model = ModelConfig(d_model=width, num_layers=layers, num_heads=heads)
    return Study(
        name=f"fire: language modelling ({size}, {train_length})",
        question=QUESTION,
        expectation="FIRE has the lowest cross-entropy at all lengths beyond the training length.",
        cost="600,000 steps of 256 sequences for each of 10 models: a cluster",
        command="lengthwise run fire/paper --device cuda",
        runs=runs(corpus, training, model, seeds, chunk=8192, encodings=ENCODINGS),
        evaluation=evaluation((512, 1024, 2048, 4096, 8192), 4_194_304, filter(None, (arxiv, github))),
    )
