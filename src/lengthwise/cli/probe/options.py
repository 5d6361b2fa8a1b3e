"""The options of `lengthwise probe`: the runs to probe, and the fields of the probes' questions."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from lengthwise.cli.options import FLATTENED, Integer, Place, whole_numbers
from lengthwise.config import ConfigError
from lengthwise.probes import PROBES, ModelProbe


@FLATTENED
@dataclass(frozen=True, kw_only=True)
class Selection:
    """The runs to probe: one run or a study's runs, what they are compared with, and at which lengths."""

    against: str | None = None
    """The run to compare with: its key, or an encoding, which selects its run with the same task and seed (the next
    seed if the run itself has that encoding)."""
    study: str | None = None
    """Probe all finished runs of this study instead of one run."""
    task: str | None = None
    """Only the study's runs with this task, including its settings: addition:scratchpad=full or
    "Addition(scratchpad=full)"."""
    across_seeds: bool = False
    """Compare with the other encoding's run of the next seed. Runs of the same seed start from the same weights, which
    keeps their attention similar."""
    # These come from the other arguments of the command.
    run: Annotated[str | None, Parameter(parse=False)] = None
    lengths: Annotated[str | None, Parameter(parse=False)] = None

    def require(self, probe: ModelProbe, place: Place) -> None:
        """Raise `ConfigError` if the selection is incomplete or contradictory for the probe."""
        if (self.run is None) == (self.study is None):
            got = "neither" if self.run is None else "both"
            raise ConfigError(
                f"probe needs either a run's key or --study NAME, got {got}; `lengthwise list runs{place.option}` "
                "shows the keys"
            )
        if self.task is not None and self.study is None:
            raise ConfigError(
                "--task selects runs of a study, but a key already names one run; omit it, or use --study"
            )
        if probe.compares and self.against is None:
            raise ConfigError(
                f"{probe.name} compares two models; add --against with a run's key, or with an encoding (--against nope) for "
                "its run with the same task and seed"
            )

    def parsed_lengths(self) -> list[int] | None:
        if self.lengths is None:
            return None
        return list(dict.fromkeys(whole_numbers(self.lengths, "--lengths", 1, "20,40,80")))


@FLATTENED
@dataclass(frozen=True, kw_only=True)
class QuestionOptions:
    """The fields of the probes' questions. `lengths` stands for the length of several questions. None stands for the
    default."""

    lengths: str | None = None
    """Lengths to probe, comma-separated. [default: those of the run's evaluation for attention-distance; those of the
    run's evaluation that are longer than training for attended-distance; the training length for logit-parts and
    position-shift; 4x the training length for recency; 8x the training length for duplicates and lost-in-the-middle; 80
    for induction]"""
    examples: Integer | None = None
    """Test examples at each length. [default: 10 for attention-distance; 100 for attended-distance, logit-parts,
    position-shift, duplicates, lost-in-the-middle and induction; 64 for recency]"""
    seed: Integer | None = None
    """Seed of the test examples. [default: 0]"""
    variant: str | None = None
    """How attention distances are computed: jensen-shannon, or published (as in the NoPE study's code). [default:
    jensen-shannon]"""
    query: Integer | None = None
    """Position of the query whose bias is measured. [default: 128]"""
    shifts: str | None = None
    """Numbers to add to all position IDs, comma-separated; 0 is always included. [default: 0,1,10,100,1000]"""
    points: Integer | None = None
    """Number of different examples in a prompt. [default: the training length for recency, duplicates and
    lost-in-the-middle; 12 for induction]"""
    repeats: Integer | None = None
    """Number of times that a prompt repeats its examples. [default: 4]"""
    resamples: Integer | None = None
    """Number of bootstrap resamples for intervals over prompts. [default: 100]"""
    noise: str | None = None
    """Numbers of noise examples (copies of one example) before the target: 5-20 or 5,10,20. [default: 5-20, or fewer in
    short prompts]"""
    positions: Integer | None = None
    """Number of answer positions, evenly spaced over the prompt. [default: 21]"""
    neighbours: Integer | None = None
    """Number of nearest neighbours that the induction probe considers. [default: 1]"""


def description_of_probes() -> str:
    """Return a line about each probe, by chapter."""
    probes = PROBES.of_models
    parts = []
    for chapter in dict.fromkeys(probe.chapter for probe in probes):
        lines = [f"{p.name}: {p.summary[0].lower()}{p.summary[1:]}" for p in probes if p.chapter == chapter]
        parts.append("\n        ".join([f"{chapter.title}:", *lines]))
    return "\n\n    ".join(parts)
