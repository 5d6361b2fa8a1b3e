"""Figure E.2 at the published scale: copy and reverse, trained on 2 to 20 symbols and evaluated on up to 40.

Question: which position encodings copy and reverse sequences up to twice as long as any in training?
Expectation (theirs): NoPE and T5 go furthest, ALiBi less far, Rotary and sinusoidal fail at the first longer length.
Outcome: none yet; these runs have not been trained. For models that a laptop can train, see small.py.
Cost: 120 trainings of a model of 85 million parameters, 40,000 steps each: some hours each on one GPU.
Command: lengthwise run nope/primitive --device cuda

Differences from the published runs are described in kazemnejad.py. In addition, their tokenizer lost one of a hundred
symbols.
"""

from kazemnejad import ENCODINGS, PAPER, SEEDS, paper_training, published

from lengthwise.config import EvaluationConfig
from lengthwise.studies import Study, grid

TASKS = {
    "copy:pattern=repeated,symbols=6052": ("Copy(symbols=6052, pattern=repeated)", "copy, repeated"),
    "copy:pattern=repeated,symbols=6052,times=2": (
        "Copy(symbols=6052, pattern=repeated, times=2)",
        "copy, repeated twice",
    ),
    "copy:pattern=replaced,symbols=78": ("Copy(symbols=78, pattern=replaced)", "copy, replaced"),
    "copy:symbols=100": ("Copy(symbols=100)", "copy, random"),
    "copy:symbols=100,times=2": ("Copy(symbols=100, times=2)", "copy, random twice"),
    "reverse:symbols=100": ("Reverse(symbols=100)", "reverse"),
    "reverse:symbols=100,answer=twice": ("Reverse(symbols=100, answer=twice)", "reverse twice"),
    "reverse:symbols=100,answer=back": ("Reverse(symbols=100, answer=back)", "reverse and back"),
}

study = Study(
    name="nope: primitive tasks",
    question="Which position encodings copy and reverse sequences up to twice as long as any in training?",
    expectation="NoPE and T5 go furthest, ALiBi less far; Rotary and sinusoidal fail at the first longer length.",
    cost="120 trainings of 40,000 steps, some hours each on one GPU",
    command="lengthwise run nope/primitive --device cuda",
    runs=grid(ENCODINGS, TASKS, SEEDS, model=PAPER, training=paper_training(2, 20)),
    evaluation=EvaluationConfig(lengths=(5, 10, 15, 20, *range(21, 41)), examples=500),
    published=published(
        dict(TASKS.values()),
        "theirs and ours are over 500 questions at each of 21 to 40; their ceiling for random copies is 0.737, since a "
        "symbol was lost in the tokenizer",
    ),
)
