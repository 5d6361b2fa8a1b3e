"""The FIRE paper's language modelling: what small.py, medium.py and paper.py share.

Models are trained on prose. They are evaluated on several domains, as in the paper's Figure 2, each with two protocols:
one forward pass per piece of text, as published, and the same targets at every length (the setting `targets` of the
task Text).
"""

from collections.abc import Iterable
from typing import Any

from lengthwise.config import EvaluationConfig, ModelConfig, Run, TrainingConfig, choose
from lengthwise.studies import Study, continued, grid
from lengthwise.tasks import Text

TARGETS = 64  # scored bytes or tokens of a piece in the protocol with the same targets
ENCODINGS = ("nope", "sinusoidal", "rope", "alibi", "t5", "kerple-log", "sandwich", "fire", "fire-s")

QUESTION = (
    "How does the cross-entropy of a language model change beyond its training length, and which encoding decides it?"
)


def runs(
    text: str,
    training: TrainingConfig,
    model: ModelConfig,
    seeds: int,
    chunk: int,
    encodings: Iterable[Any] = ENCODINGS,
) -> tuple[Run, ...]:
    """Return a run for every encoding and seed, and the RoPE models again with positions interpolated to the longest
    length.
    """
    trained = grid(encodings, [choose(Text, path=text, chunk=chunk)], seeds, training=training, model=model)
    rope = [run for run in trained if run.encoding.name == "RoPE"]
    return (*trained, *continued(rope, [f"pi:factor={chunk / training.train_length}"], steps=0))


def evaluation(lengths: Iterable[int], tokens: int, domains: Iterable[str]) -> EvaluationConfig:
    """Return the evaluation on the training corpus and on other `domains`, with both protocols."""
    changes: list[dict[str, Any]] = [{}, *({"path": path} for path in domains)]
    tests = [{**change, **protocol} for change in changes for protocol in ({}, {"targets": TARGETS})]
    return EvaluationConfig(lengths=tuple(lengths), tokens=tokens, shifts=tuple(test for test in tests if test))


def laptop_study(
    name: str, expectation: str, cost: str, command: str, texts: tuple[str, str, str], seeds: int, steps: int
) -> Study:
    """Return the study with models of 0.4 million parameters. `texts`: prose for training, and two other domains."""
    prose, *domains = texts
    model = ModelConfig(d_model=96, num_layers=3, num_heads=4)
    lengths = (256, 512, 1024, 2048, 4096, 8192)
    return Study(
        name=name,
        question=QUESTION,
        expectation=expectation,
        cost=cost,
        command=command,
        runs=tuple(
            run
            for train_length in (256, 512)
            for run in runs(
                prose,
                TrainingConfig(
                    train_length=train_length, steps=steps, batch_size=4096 // train_length, learning_rate=3e-3
                ),
                model,
                seeds,
                chunk=max(lengths),
            )
        ),
        evaluation=evaluation(lengths, 65_536, domains),
    )
