"""Which encodings still work on sequences longer than in training? A first answer in minutes on two CPU cores.

Question: trained on short sequences, which position encodings still predict text at 2, 4 and 8 times that length, and
still copy sequences that are slightly longer or twice as long?
Expectation (written before this version was run, from single runs of its settings): on text, FIRE's cross-entropy does
not rise and is the lowest at 8 times the training length. ALiBi's and KERPLE's do not rise either, but start slightly
higher. NoPE and T5 start high and lose up to 0.3 nats per byte. RoPE, best or second best at the training length, loses
0.5 to 1 nats per byte and is worst at 8 times that length, together with sinusoidal. All but NoPE learn to copy 8
symbols; FIRE and KERPLE still copy some sequences of 16 symbols, ALiBi few, and the others none from 10 to 12 symbols
on.
Cost: five to nine minutes on two idle CPU cores, depending on the processor.
Command: lengthwise run quickstart

Models this small, trained this briefly, show which encodings fail, but not by how much. Every encoding has its default
settings.
"""

from lengthwise.config import EvaluationConfig, ModelConfig, TrainingConfig
from lengthwise.studies import Study, grid

study = Study(
    name="quickstart",
    question="Trained on short sequences, which position encodings still predict text, and still copy, at longer ones?",
    expectation=(
        "On text, the cross-entropy of FIRE, ALiBi and KERPLE does not rise beyond the training length; NoPE and T5 "
        "lose a little; RoPE and sinusoidal lose most. All but NoPE learn to copy; FIRE and KERPLE still copy some "
        "sequences of twice "
        "the length, ALiBi few, the others none."
    ),
    cost="5 to 9 minutes on 2 idle CPU cores",
    command="lengthwise run quickstart",
    runs=grid(
        encodings=["nope", "sinusoidal", "rope", "alibi", "t5", "kerple-log", "fire"],
        tasks=["text", "copy"],
        seeds=3,
        model=ModelConfig(d_model=64, num_layers=2, num_heads=4),
        training={
            "text": TrainingConfig(train_length=128, steps=500, batch_size=16, learning_rate=3e-3),
            "copy": TrainingConfig(train_length=8, min_length=1, steps=1000, batch_size=32, learning_rate=4e-3),
        },
    ),
    evaluation={
        "text": EvaluationConfig(lengths=(128, 256, 512, 1024), tokens=24_576),
        "copy": EvaluationConfig(lengths=(8, 9, 10, 12, 16), examples=256),
    },
)
