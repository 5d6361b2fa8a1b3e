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
Outcome: accuracies are means of three seeds over lengths 60, 80 and 100 unless a length is given, with their 95 %
intervals over seeds in brackets (every score is in benchmarks/results/study-chomsky-small.json). Solved means at least
0.91 on even pairs, 0.85 on cycle navigation, 0.990 on bucket sort, whose baseline is 0.948, and 0.90 on other tasks.
- Even pairs: held. KERPLE, and RoPE and ALiBi with randomized positions, solve them with every seed (at least 0.99),
  and so does Mamba. RoPE does so with one seed of three (0.73, 0.14 to 1.00), FIRE with two (0.80, 0.12 to 1.00).
- Cycle navigation: that nothing solves it held in the means and in every single seed, also for Mamba (0.31, 0.22 to
  0.41). The study does not test the reason given for Mamba. That all Transformers are within 0.1 of the baseline (0.25)
  did not hold in the means: NoPE has 0.53 and FIRE 0.47 (at length 60 they have 0.74 and 0.71, at 100 0.34 and 0.27).
  Their intervals (0.08 to 0.98 and 0.07 to 0.87) contain both the baseline and 0.85, so they decide neither.
- Context-free: held. The best means are 0.63 (reverse string, RoPE with randomized positions) and 0.68 (stack
  manipulation, FIRE), and no interval reaches 0.75. This is not the length alone: at length 40 no model has 0.95
  (reverse string at most 0.94, stack manipulation 0.83), so both tasks are only partly learned.
- Bucket sort: held for decoders, because NoPE solves it (0.998, 0.995 to 1.000). Not held for Mamba, which has 0.89
  (0.86 to 0.92), less than the baseline. RoPE with randomized positions is closest to it (0.989, 0.975 to 1.000).
  The intervals of all other decoders but ALiBi reach 0.990 too, so whether they solve it cannot be told, although the
  means of RoPE (0.69), ALiBi (0.78) and KERPLE (0.92) are below the baseline.
- Missing duplicate: held in the means. The best without randomized positions is KERPLE with 0.72 (0.57 to 0.87), but
  FIRE's interval (0.41 to 0.92) ends above 0.90. With randomized positions RoPE has 0.75 (0.65 to 0.84), so that does
  not solve it either.
- Randomized positions: held for RoPE, whose mean over the six tasks rises by 0.18 (0.08 to 0.28), from 0.54 to 0.72.
  ALiBi's rises by 0.08 (0.04 to 0.12), by less for each seed. The difference of the two gains is 0.10 (-0.03 to 0.22),
  so that ALiBi gains less cannot be told from three seeds.
At length 40, these models cover less than an eighth of the way from the baseline to 1, so they say nothing about longer
lengths: NoPE and one seed of FIRE on even pairs; RoPE, one seed of KERPLE, and two seeds each of RoPE and ALiBi with
randomized positions on cycle navigation; one seed of RoPE on missing duplicate. Of these, two seeds of NoPE and that of
FIRE on even pairs, and those with randomized positions on cycle navigation, have not learned length 10 either.
Cost: an hour of two idle CPU cores was estimated from single steps. The stored runs took 6.4 hours (9.5 in sum) of two
cores that other studies and tests used all the time, so what an idle machine needs is not known.
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
        cost="about an hour of 2 idle CPU cores (estimated), 6 hours of 2 that others use all the time",
        command="lengthwise run chomsky/small --workers 2",
        runs=comparison(NAMES, seeds, MODEL, MIXER_MODELS, training, max_length=512),
        evaluation=evaluations(NAMES, LENGTHS, examples=200),
    )
