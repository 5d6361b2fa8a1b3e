"""The battery: which encodings still do a task, which they have learned, at up to eight times the training length?

Question: trained until they have learned a task, how far do encodings keep it beyond the training length, and on which
tasks?
Tasks: text in prose and in code; copying, reversing and recalling; addition and sorting; parity with a scratchpad;
linear regression and conjunctions in context; a regular, a context-free and a context-sensitive task of the Chomsky
hierarchy. `battery_tasks.py` says how they are trained.
Encodings: those of the papers and of the thesis on which this library is based, and those that led in an earlier study
of all encodings.

Expectation (written before the first run, after the trials with seeds 100 and 101 that chose the settings, in which
NoPE, RoPE, ALiBi, FIRE and in part KERPLE and T5 were seen on most tasks). "Keeps" means an effective length of at
least the given multiple of the training length:
- Text, on the same targets at eight times the training length: ALiBi, KERPLE, Sandwich, FIRE, DAPE, FoX, PaTH-FoX,
  StickBreaking and GRAPE-A lie within 0.1 nats per byte of their own score at the training length. Sinusoidal, Learned
  and RoPE get worse by more than 0.5, NoPE by 0.1 to 0.5. T5 and Transformer-XL get worse by less than 0.3.
- Copying and reversing: no encoding keeps either to 2 times. KERPLE copies furthest (0.80 at 2 times in a trial), and
  nothing reverses beyond 1.5 times.
- Recall: FIRE keeps it to 4 times, as in a trial, and so do KERPLE and DAPE. ALiBi, Sandwich and FoX do not keep it to
  4 times, because they favour near keys. RoPE, Sinusoidal and Learned do not keep it to 2 times.
- Addition and sorting: no encoding keeps either to 1.5 times.
- Parity with a scratchpad: no encoding keeps it to 2 times (0.45 to 0.60 there in trials).
- Functions in context: ALiBi, KERPLE, FIRE, T5 and NoPE get no worse with more examples, up to 8 times. Sinusoidal,
  Learned and RoPE get worse than at the training length from 2 times on.
- Formal languages: FIRE keeps even pairs to 8 times, as in a trial, RoPE does not to 2 times. Nothing keeps stack
  manipulation to 2 times. NoPE, T5, FIRE and KERPLE have at least 0.8 of the tokens of bucket sort at 8 times, RoPE has
  less than 0.5.
- Steps: RoPE learns most of the tasks in the fewest steps. NoPE learns at most 8 of the 11 tasks with a threshold.
- Recall is scored by query since then, and was scored by all eight queries of a prompt in the trials.
- Over all tasks no encoding is the best or not significantly worse than the best on more than 10 of 13.
Outcome: not complete yet. All tasks but recall and parity are finished. Their scores are in
benchmarks/results/unfinished/battery.db.xz, a results.db without the development of parameters.
Cost: about 8 hours of two CPU cores (estimated from single trainings).
Command: lengthwise run battery/core

Options: `tasks`: names of tasks, separated by commas, to run one part after the other in the same results folder. The
report then shows the last part. Without `tasks`, the command adds what is missing and shows all; finished runs are not
repeated. `seeds`: the number of seeds. When the rows are stored (benchmarks/study_rows.py), docs/battery.py writes a
page and a decision guide from them.
"""

from battery_tasks import selected, two_stages

from lengthwise.encodings import (
    DAPE,
    FIRE,
    T5,
    ALiBi,
    FoX,
    GrapeA,
    KerpleLog,
    KerplePower,
    Learned,
    NoPE,
    PaTHFoX,
    RoPE,
    Sandwich,
    Sinusoidal,
    StickBreaking,
    TransformerXL,
)
from lengthwise.studies import Study

CORE = (
    NoPE,
    Sinusoidal,
    Learned,
    RoPE,
    ALiBi,
    T5,
    KerpleLog,
    KerplePower,
    Sandwich,
    FIRE,
    TransformerXL,
    DAPE,
    FoX,
    PaTHFoX,
    StickBreaking,
    GrapeA,
)


def study(tasks: str = "", seeds: int = 5) -> Study:
    return two_stages(
        name="battery: core",
        question="Trained until they have learned a task, how far do encodings keep it beyond the training length?",
        expectation=(
            "On text, decays and bounded biases keep their score at eight times the length, rotations and tables of "
            "positions do not. FIRE keeps recall to four times and even pairs to eight times. Nothing keeps copying, "
            "reversing, addition, sorting, parity or stack manipulation to twice the length."
        ),
        command="lengthwise run battery/core",
        cost="about 8 hours of 2 CPU cores (estimated from single trainings)",
        settings=selected(tasks),
        encodings=CORE,
        seeds=seeds,
    )
