"""All other encodings of the library on four tasks of the battery, with three seeds, or five where RoPE is extended.

Question: does any encoding outside of the core (core.py) keep a task further beyond the training length than RoPE?
Tasks: prose, copying, addition and conjunctions in context, with the settings of battery_tasks.py.
Encodings: all that core.py leaves out but M-RoPE, which is RoPE on text, and RoPE for comparison. Those that change
trained rotations (`EXTENSIONS`) are evaluated on the weights of the RoPE runs, without training, with the factor 8
where they have one. All others are trained, so a new encoding joins by its line in the library's list. Temperatures
and sinks are trained alone, so each of them is NoPE with this addition.

Expectation (written before the first run):
- Prose, on the same targets at eight times the training length: of the extensions, DCA, ReRoPE, Self-Extend and dynamic
  YaRN lose least without training, less than 0.3 nats per byte; PI loses more than 0.5. Of the trained encodings, CoPE
  and the others with a decay or with bounded distances stay within 0.2 of their score at the training length;
  rotations do not.
- Copying and addition: no encoding keeps either to twice the training length, and no extension of RoPE to 1.5 times.
- Conjunctions: the extensions are no worse than RoPE at 4 times. Of the trained ones, those that are NoPE with a
  temperature or a sink differ from NoPE by less than 0.05.

RoPE and its extensions got seeds 3 and 4 after the first three had been seen: corrected for twelve comparisons, three
seeds showed none of them to be better than RoPE itself. All expectations are older.

Three seeds show large differences only, such as those that papers claim (`lengthwise claims`). The main result is which
encodings are worth more seeds.
Outcome (means over seeds; the battery's page has intervals):
- Prose, at eight times the length minus at the training length: as expected for DCA (0.04), Self-Extend (0.14) and
  ReRoPE (0.20); dynamic YaRN loses more (0.43). PI is 1.1 above RoPE at the training length already. GRAPE-AP (-0.04),
  xPos (0.02), Shaw (0.04), PaTH (0.05) and Wall (0.08) stay within 0.2 as expected, but CoPE (0.37) and BandedBias
  (0.29) do not. Rotations without a decay lose 0.5 (PoPE) to 1.3, but for RePo, which is like NoPE at every length and
  loses 0.12.
- Copying and addition: as expected. Wall copies furthest (0.68 of 16 symbols, trained on 8), dynamic YaRN is the best
  extension (0.40 of 12 symbols). Of five digits Wall has 0.12 of the sums, SelectiveRoPE and some temperatures have up
  to 0.005, and everything else has none.
- Conjunctions: as expected but for PI, which equals RoPE at 4 times. Self-Extend and DCA keep them to 8 times (0.95).
  Temperatures, sinks and RePo did not learn the task, and score like NoPE, which did not either.
- For more seeds: Wall on copying. Of the core, only KERPLE and Sandwich have a higher mean at twice the length.
Cost: 2.8 hours of two CPU cores, beside other work (from start to end of each run, without those of core.py).
Command: lengthwise run battery/others

Options: `tasks`: names of tasks, separated by commas. `seeds`: the number of seeds; RoPE and its extensions have two
more.
"""

from collections.abc import Sequence
from dataclasses import replace

from battery_tasks import selected, two_stages
from core import CORE

from lengthwise.config import Run, choose
from lengthwise.encodings import (
    DCA,
    ENCODINGS,
    PI,
    STRING,
    DynamicNTK,
    DynamicYaRN,
    Llama3,
    LongRoPE,
    MRoPE,
    NTKAware,
    NTKByParts,
    ReRoPE,
    RoPE,
    SelfExtend,
    YaRN,
)
from lengthwise.studies import Study, continued

MORE_SEEDS = 2  # of RoPE and its extensions: the RoPE runs are those of core.py, and an extension is not trained
FACTOR = 8.0  # the longest evaluation, in training lengths
WITH_FACTOR = (PI, NTKAware, NTKByParts, YaRN, Llama3, LongRoPE)
EXTENSIONS = (*WITH_FACTOR, DynamicNTK, DynamicYaRN, SelfExtend, ReRoPE, DCA, STRING)
TRAINED = (RoPE, *(encoding for encoding in ENCODINGS if encoding not in {*CORE, *EXTENSIONS, MRoPE}))


def extended(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Return `MORE_SEEDS` more RoPE runs of each task, and the evaluations of all RoPE runs with each extension."""
    trained = [run for run in runs if run.encoding.name == "RoPE"]
    seeds = 1 + max(run.seed for run in trained)
    more = [replace(run, seed=seeds + n) for n in range(MORE_SEEDS) for run in trained if run.seed == 0]
    choices = [choose(encoding, **({"factor": FACTOR} if encoding in WITH_FACTOR else {})) for encoding in EXTENSIONS]
    return (*more, *continued([*trained, *more], choices, steps=0))


def study(tasks: str = "prose,copy,addition,conjunction", seeds: int = 3) -> Study:
    return two_stages(
        name="battery: others",
        question="Does any encoding outside of the core keep a task further beyond the training length than RoPE?",
        expectation=(
            "On prose, DCA, ReRoPE, Self-Extend and dynamic YaRN lose less than 0.3 nats per byte at eight times the "
            "length, PI more than 0.5. Nothing keeps copying or addition to twice the length."
        ),
        command="lengthwise run battery/others",
        cost="about 3 hours of 2 CPU cores",
        settings=selected(tasks),
        encodings=TRAINED,
        seeds=seeds,
        also=extended,
    )
