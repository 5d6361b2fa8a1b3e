"""The Chomsky hierarchy on a laptop: six of the fifteen tasks, trained on lengths 1 to 40, evaluated on up to 100.

Question: which levels do position encodings, randomized positions and models without attention solve at longer lengths?
Tasks: EvenPairs and CycleNavigation (regular), ReverseString and StackManipulation (context-free), MissingDuplicate and
BucketSort (context-sensitive). All fifteen would take two and a half times as long; `paper.py` has them.
Models: decoders of 2 layers with NoPE, RoPE, ALiBi, KERPLE and FIRE, RoPE and ALiBi with randomized positions (subsets
of 512), and Mamba.
Expectation (written before the first run, after trials with seed 100, which is not among the seeds here: at length 100,
FIRE with 2,000 steps had 0.76 on EvenPairs, 0.54 on ReverseString, 0.62 on StackManipulation, 0.98 on BucketSort and
0.13 on CycleNavigation). "Solved" is defined in `deletang.py`; accuracies are means over lengths 60, 80 and 100 and
over seeds:
- Regular: published Transformers solve even pairs, so at least one decoder does. No Transformer solves cycle
  navigation: all are within 0.1 of the baseline. Mamba does not solve it either, although LSTMs do, because its state
  can only decay, and a circle needs a state that turns (Grazzi et al. 2025, "Unlocking State-Tracking in Linear RNNs
  Through Negative Eigenvalues").
- Context-free: nothing solves reverse string or stack manipulation.
- Context-sensitive: bucket sort is solved by at least one decoder, and by Mamba, which can count. Missing duplicate is
  not solved without randomized positions.
- Randomized positions raise the mean over the six tasks by at least 0.05 for RoPE (published: 0.12 over all fifteen),
  and by less for ALiBi, which has no untrained rotations.
Outcome: not run yet.
Cost: about an hour of two idle CPU cores, two hours of two that others use too (estimated from single steps).
Command: lengthwise run chomsky/small --workers 2
"""

from deletang import MIXERS, comparison, evaluations

from lengthwise.config import ModelConfig
from lengthwise.studies import Study

NAMES = ("EvenPairs", "CycleNavigation", "ReverseString", "StackManipulation", "MissingDuplicate", "BucketSort")
LENGTHS = (10, 20, 40, 60, 80, 100)
MODEL = ModelConfig(d_model=64, num_layers=2, num_heads=4)
MIXER_MODELS = [ModelConfig(mixer=mixer, d_model=64, num_layers=2) for mixer in MIXERS]


def study(seeds: int = 3, steps: int = 3000) -> Study:
    training = {"steps": steps, "batch_size": 32, "learning_rate": 2e-3}
    return Study(
        name="chomsky: small",
        question="Which levels of the Chomsky hierarchy do small models solve at longer lengths than in training?",
        expectation=(
            "At least one decoder solves even pairs and bucket sort, and Mamba solves bucket sort. Nothing solves "
            "cycle navigation, reverse string or stack manipulation. Missing duplicate is not solved without "
            "randomized positions, which "
            "raise RoPE's mean accuracy by at least 0.05."
        ),
        cost="about an hour of 2 idle CPU cores, two hours of 2 that others use too (estimated)",
        command="lengthwise run chomsky/small --workers 2",
        runs=comparison(NAMES, seeds, MODEL, MIXER_MODELS, training, max_length=512),
        evaluation=evaluations(NAMES, LENGTHS, examples=200),
    )
