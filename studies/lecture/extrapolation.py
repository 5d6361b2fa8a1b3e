"""The lecture's extrapolation experiment: perplexity against the validation length, trained on 512 and on 1,024 tokens.

Question: how far beyond the training length does each encoding keep its cross-entropy?
Expectation (the lecture's plots, after Press et al. 2022): with sinusoidal encodings the cross-entropy rises at once
beyond the training length; with RoPE a few hundred tokens later; with T5's bias it stays flat to about twice the
training length; with ALiBi it stays flat or falls up to 16,000 tokens.
Outcome: cross-entropy in nats per byte, means of three seeds (every score is in
benchmarks/results/study-lecture-extrapolation.json). Trained on 512 bytes, at 512, 1,024 and 16,384 bytes:
- Sinusoidal 1.57, 2.13 and 3.00, RoPE 1.01, 1.25 and 3.46: both get worse, as expected. Twice the training length is
  the first longer one, so whether RoPE's loss begins later than sinusoidal's was not measured.
- T5 1.37, 1.43 and 2.32. It is nearly flat at twice the length with all targets. With the same targets at each length
  it loses 0.14 there, so the text after twice the length gets worse, against the expectation.
- ALiBi 1.04, 1.02 and 1.01: it gets better, as expected, because fewer targets lack context. With the same targets it
  has 0.725 at every length, so it uses nothing of the longer text.
Trained on 1,024 bytes, with half as many sequences in each step, the order is the same, and all are worse at the
training length: sinusoidal 1.90, 2.12 and 2.48, RoPE 1.09, 1.65 and 3.10, T5 1.67, 1.74 and 2.21, ALiBi 1.11,
1.09 and 1.09 at 1,024, 2,048 and 16,384 bytes. Sinusoidal and T5 learned less than a model of three bytes here (1.58),
which a longer training might change.
Cost: laptop: about an hour of two idle CPU cores (24 trainings of 1,000 steps); paper: a GPU for some days.
Command: lengthwise run lecture/extrapolation --set text=FOLDER

Options: `text`: a file, a folder or a prepared corpus with documents of at least 16,384 bytes or tokens; default: the
source of Python's standard library. `seeds`: the number of seeds. `scale`: laptop, or paper (16 layers of width 1,024,
as Press et al. 2022).
"""

from lengthwise.config import ConfigError, EvaluationConfig, ModelConfig, TrainingConfig, choose
from lengthwise.studies import Study, grid
from lengthwise.tasks import Text

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
SCALES = {
    "laptop": (ModelConfig(d_model=96, num_layers=3, num_heads=4), 1000, 4096, 3e-3),
    "paper": (ModelConfig(d_model=1024, num_layers=16, num_heads=8, d_ff=4096), 100_000, 131_072, 3e-4),
}


def study(text: str = "python:source", seeds: int = 3, scale: str = "laptop") -> Study:
    if scale not in SCALES:
        raise ConfigError(f"scale must be laptop or paper, got {scale!r}")
    model, steps, tokens, learning_rate = SCALES[scale]
    chosen = choose(Text, path=text, chunk=max(LENGTHS))
    return Study(
        name=f"lecture: extrapolation ({scale})",
        question="How far beyond the training length does each encoding keep its cross-entropy?",
        expectation=(
            "Sinusoidal gets worse at once beyond the training length, RoPE a few hundred tokens later, T5 from about "
            "twice the training length on, and ALiBi not up to 16,384."
        ),
        cost="about an hour of 2 idle CPU cores" if scale == "laptop" else "some days of a GPU",
        command="lengthwise run lecture/extrapolation",
        runs=tuple(
            run
            for length in (512, 1024)
            for run in grid(
                ["sinusoidal", "t5", "rope", "alibi"],
                [chosen],
                seeds,
                training=TrainingConfig(
                    train_length=length, steps=steps, batch_size=tokens // length, learning_rate=learning_rate
                ),
                model=model,
            )
        ),
        evaluation=EvaluationConfig(lengths=LENGTHS, tokens=65_536, shifts=({"targets": 64},)),
    )
