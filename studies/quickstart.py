"""Which encodings still work past the trained length? A first answer in minutes on two CPU cores.

Question: trained on short sequences, which position encodings still predict text, and still copy, at 2, 4 and 8 times
that length?
Expectation (written before the first run): on text, encodings whose bias falls with distance (ALiBi, KERPLE) and T5's
keep their log perplexity past the trained length; FIRE nearly does; NoPE loses a little, RoPE more, sinusoidal most.
Copying is learned at the trained length and breaks down soon after it for all: models this small, trained this briefly,
show the shape of the answer, not its size.
Cost: at most six minutes on two CPU cores.
Command: lengthwise run studies/quickstart.py

FIRE gets L = 8, below both trained lengths: with the usual 512 its normaliser would be constant during training.
"""

from lengthwise.config import EvaluationConfig, ModelConfig, TrainingConfig
from lengthwise.studies import Study, grid

study = Study(
    name="quickstart",
    question="Trained on short sequences, which position encodings still predict text, and still copy, at longer ones?",
    expectation=(
        "On text, ALiBi, KERPLE and T5 keep their log perplexity past the trained length, FIRE nearly does; NoPE loses "
        "a little, RoPE more, sinusoidal most. Copying is learned at the trained length and breaks down soon after it."
    ),
    cost="at most 6 minutes on 2 CPU cores",
    command="lengthwise run studies/quickstart.py",
    runs=grid(
        encodings=["nope", "sinusoidal", "rope", "alibi", "t5", "kerple-log", "fire:L=8"],
        tasks=["text", "copy"],
        seeds=3,
        model=ModelConfig(d_model=64, num_layers=2, num_heads=4),
        training={
            "text": TrainingConfig(train_length=128, steps=200, batch_size=16, learning_rate=3e-3),
            "copy": TrainingConfig(train_length=8, min_length=1, steps=1000, batch_size=32, learning_rate=4e-3),
        },
    ),
    evaluation={
        "text": EvaluationConfig(lengths=(128, 256, 512, 1024), tokens=24_576),
        "copy": EvaluationConfig(lengths=(8, 16, 32, 64), examples=256),
    },
)
