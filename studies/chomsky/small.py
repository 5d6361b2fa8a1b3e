"""A trial."""

from deletang import comparison, evaluations

from lengthwise.config import ModelConfig
from lengthwise.studies import Study

NAMES = ("EvenPairs", "CycleNavigation", "ReverseString", "StackManipulation", "MissingDuplicate", "BucketSort")
LENGTHS = (10, 20, 40, 60, 80, 100)
MODEL = ModelConfig(d_model=64, num_layers=2, num_heads=4)
MIXER = ModelConfig(mixer="mamba", d_model=64, num_layers=2)


def study(seeds: int = 3, steps: int = 1500, tasks: str = ",".join(NAMES)) -> Study:
    names = tuple(tasks.split(","))
    training = {"steps": steps, "batch_size": 64, "learning_rate": 2e-3}
    return Study(
        name="chomsky (small)",
        question="Which levels?",
        expectation="x",
        cost="?",
        command="lengthwise run chomsky/small",
        runs=comparison(names, seeds, MODEL, MIXER, training, max(LENGTHS)),
        evaluation=evaluations(names, LENGTHS, 200),
    )
