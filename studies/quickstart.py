"""Which encodings still work past the trained length? A first answer in minutes on two CPU cores.

Question: trained on short sequences, which position encodings still predict text, and still copy, at 2, 4 and 8 times
that length?
Expectation: on text, additive biases that decay (ALiBi, KERPLE, FIRE) and T5's keep or improve their log perplexity at
longer lengths, sinusoidal and RoPE get worse beyond the trained length. Copying fails past the trained length for all
at this size; the small models here show the shape of the answer, not its size.
Cost: at most six minutes on two CPU cores.
Command: lengthwise run studies/quickstart.py
"""

from lengthwise.config import EvaluationConfig, ModelConfig, TrainingConfig
from lengthwise.studies import Study, grid

study = Study(
    name="quickstart",
    question="Trained on short sequences, which position encodings still predict text, and still copy, at longer ones?",
    expectation=(
        "On text, ALiBi, KERPLE, FIRE and T5 keep their log perplexity past the trained length, sinusoidal and RoPE "
        "lose it. Copying fails past the trained length for all at this size."
    ),
    cost="at most 6 minutes on 2 CPU cores",
    command="lengthwise run studies/quickstart.py",
    runs=grid(
        encodings=["nope", "sinusoidal", "rope", "alibi", "t5", "kerple-log", "fire"],
        tasks=["text", "copy"],
        seeds=1,
        model=ModelConfig(d_model=64, num_layers=2, num_heads=4),
        training={
            "text": TrainingConfig(train_length=64, steps=300, batch_size=16, learning_rate=2e-3),
            "copy": TrainingConfig(train_length=8, min_length=1, steps=600, batch_size=32, learning_rate=2e-3),
        },
    ),
    evaluation={
        "text": EvaluationConfig(lengths=(64, 128, 256, 512), tokens=32_768),
        "copy": EvaluationConfig(lengths=(8, 16, 32, 64), examples=256),
    },
)
