"""Figure E.5 at the published scale: the similarity of NoPE's attention to that of other encodings, per layer, on SCAN.

Question: which encoding's attention patterns are most like NoPE's?
Expectation (theirs): T5's, then ALiBi's; Rotary's and sinusoidal's are furthest. The baseline is another seed of NoPE.
The other encodings are also compared with another seed of NoPE, because runs of the same seed start from the same
weights, which keeps their attention similar.
Outcome: none yet; these runs have not been trained.
Cost: 15 trainings of a model of 85 million parameters (the runs of classic.py on SCAN, which one store trains only
once).
Command: lengthwise run nope/attention --device cuda
         lengthwise probe attention-distance --study "nope: attention" --against nope --across-seeds
"""

from kazemnejad import ENCODINGS, PAPER, SEEDS, paper_training, published

from lengthwise.config import EvaluationConfig
from lengthwise.studies import Study, grid

study = Study(
    name="nope: attention",
    question="Which encoding's attention patterns are most like NoPE's?",
    expectation="T5's, then ALiBi's; Rotary's and sinusoidal's are furthest. Another seed of NoPE is the baseline.",
    cost="15 trainings of 40,000 steps, some hours each on one GPU; the distances take minutes",
    command="lengthwise run nope/attention --device cuda",
    runs=grid(ENCODINGS, ["scan:split=tr25"], SEEDS, model=PAPER, training=paper_training(1, 25, examples=15_547)),
    evaluation=EvaluationConfig(lengths=(10, 20, 25, 26, 27, 28, 30, 32, 33, 36, 40, 48), examples=600),
    published=published({"SCAN(split=tr25)": "SCAN"}, "of the distances only plots are published"),
)
