"""Settings shared by the studies of this folder: encodings, seeds, model and training at both scales, published values.

Source: Kazemnejad et al. 2023, "The Impact of Positional Encoding on Length Generalization in Transformers" (NeurIPS
2023), section 3 and appendix D, and the run results in the repository McGill-NLP/length-generalization.

Like theirs, the studies at their scale train on a fixed set of 100,000 examples for 25.6 epochs, in batches of mixed
lengths (for SCAN and PCFG, on all training examples). The small study differs, see small.py.

Differences from the published runs in every study at their scale: one token per word instead of a tokenizer's pieces,
BOS before the prompt, the last checkpoint instead of the best one on validation, and dropout in fewer places. Their
dropout of 0.1 acts on embeddings, on attention weights, inside feed-forward layers, on each layer's residual branch,
and after the last norm; ours, also of 0.1, acts on embeddings and on each layer's residual branch. Their training set
is the same for all seeds; ours differs between seeds, and intervals over seeds include this variation. Their sets of
addition have equally many examples of every pair of numbers of digits, ours of every length. `DIFFERS` describes this
in the reports.
"""

from collections.abc import Mapping
from typing import Any

from lengthwise.config import ModelConfig, TrainingConfig

ENCODINGS = (
    "nope",
    "t5",
    "alibi",
    "rope:rotary_fraction=0.25",
    "sinusoidal",
)  # their code rotates a quarter of each head
LABELS = ("NoPE", "T5", "ALiBi", "RoPE(rotary_fraction=0.25)", "Sinusoidal")
SEEDS = (256788, 234054, 146317)

PAPER = ModelConfig.t5(d_model=768, num_layers=12, num_heads=12, d_ff=3072, dropout=0.1)
SMALL = ModelConfig.t5(d_model=64, num_layers=4, num_heads=4)


def paper_training(
    shortest: int, longest: int, *, steps: int = 40_000, accumulation: int = 1, examples: int = 100_000
) -> TrainingConfig:
    """Return the training of table 2 of the appendix, on the fixed set of section D.1. They use the checkpoint of their
    40,000 steps that is best on validation; we use the last one."""
    return _training(
        shortest,
        longest,
        steps=steps,
        batch_size=64,
        accumulation=accumulation,
        learning_rate=3e-5,
        train_examples=examples,
    )


def small_training(shortest: int, longest: int, *, steps: int) -> TrainingConfig:
    """Return the same schedule with fewer steps, a higher learning rate and smaller batches of new examples."""
    return _training(shortest, longest, steps=steps, batch_size=32, learning_rate=2e-3)


def _training(shortest: int, longest: int, **settings: Any) -> TrainingConfig:
    return TrainingConfig(
        train_length=longest,
        min_length=shortest,
        schedule="linear",
        final_learning_rate=0.0,
        warmup=0.06,
        weight_decay=0.05,
        beta2=0.999,
        **settings,
    )


# Accuracy over all lengths longer than training, mean of three seeds, in the order of LABELS; aggregated from their
# result files.
SCORES = {
    "copy, repeated": (0.9856, 0.7712, 0.2893, 0.0002, 0.0000),
    "copy, repeated twice": (0.9736, 0.5577, 0.1936, 0.0000, 0.0000),
    "copy, replaced": (0.9672, 0.9390, 0.1697, 0.0157, 0.0000),
    "copy, random": (0.3054, 0.4195, 0.3310, 0.0114, 0.0277),
    "copy, random twice": (0.4307, 0.5239, 0.5692, 0.0427, 0.0395),
    "reverse": (0.2301, 0.2423, 0.1709, 0.0774, 0.0230),
    "reverse twice": (0.4732, 0.4484, 0.1947, 0.0534, 0.0110),
    "reverse and back": (0.1822, 0.1400, 0.1152, 0.0000, 0.0002),
    "SCAN": (0.7973, 0.7985, 0.4381, 0.2829, 0.0569),
    "PCFG": (0.4332, 0.4388, 0.4281, 0.4387, 0.3665),
}
RANKS = (0.687, 0.549, 0.502, 0.330, 0.215)  # mean reciprocal rank over all their tasks without scratchpad
RANKS_WITH = (
    0.630,
    0.604,
    0.551,
    0.270,
    0.228,
)  # over all their tasks, those with every format of scratchpad among them
SOURCE = "Kazemnejad et al. 2023, from the run results in McGill-NLP/length-generalization, mean of 3 seeds"

DIFFERS = (
    "their dropout acts on attention weights, inside feed-forward layers and after the last norm, too, where ours does "
    "not; their checkpoint is the best one on validation, ours the last; ours have one token per word, and BOS before "
    "the prompt; "
    "their training set is the same for all seeds, ours another for each"
)

WEIGHTS = (  # of the scores by which encodings are ranked, where lengths do not count alike
    "theirs have as many questions at every length, but of addition at every pair of numbers of digits (17 of 192 at "
    "length 9, 31 at 16); ours have as many of addition at every length, and of parity all there are up to {bits} "
    "bits, which are fewer and "
    "count less"
)


def published(
    tasks: Mapping[str, str], about: str, *, ranks: tuple[float, ...] = RANKS, differs: str = DIFFERS
) -> dict[str, object]:
    """Return the `published` argument of a study. `tasks` maps labels of tasks to rows of SCORES; `about` and `differs`
    are notes for comparing published and measured scores."""
    scores = {task: dict(zip(LABELS, SCORES[row], strict=True)) for task, row in tasks.items()}
    return {
        "source": SOURCE,
        "about": f"{about}; {differs}",
        "scores": scores,
        "ranks": dict(zip(LABELS, ranks, strict=True)),
    }
