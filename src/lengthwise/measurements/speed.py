"""The time and the memory of encodings in a whole model, relative to NoPE."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lengthwise.config import ConfigError, ModelConfig
from lengthwise.config.mixers import MIXERS
from lengthwise.measurements.base import Chart, Measurement, Number, Numbers, Options, key, note, option, value
from lengthwise.measurements.table import Row, Table

BASELINE = "NoPE"
Kind = Literal["forward", "training", "decoding"]
KINDS: Mapping[Kind, str] = {"forward": "forward pass", "training": "training step", "decoding": "decoded token"}

# The model and the batch by device: one that a CPU trains in well under a second per step, and the size of GPT-2 small.
CPU_SIZES: Mapping[str, Any] = {
    "d_model": 256,
    "num_layers": 4,
    "num_heads": 4,
    "batch_tokens": 2048,
    "dtype": "float32",
}
ACCELERATOR_SIZES: Mapping[str, Any] = {
    "d_model": 768,
    "num_layers": 12,
    "num_heads": 12,
    "batch_tokens": 16_384,
    "dtype": "bfloat16",
}


def sizes_for(device: str) -> Mapping[str, Any]:
    """Return the default sizes of the model and the batch on a device such as "cpu" or "cuda:1"."""
    return CPU_SIZES if device.partition(":")[0] == "cpu" else ACCELERATOR_SIZES


def _size(name: str, text: str) -> Any:
    shown = f"{CPU_SIZES[name]} on a CPU, {ACCELERATOR_SIZES[name]} on other devices"
    return option(text, CPU_SIZES[name], shown=shown)


@dataclass(frozen=True, kw_only=True)
class SpeedOptions(Options):
    """What is measured: the encodings, and the model that contains them."""

    encodings: tuple[str, ...] = ()
    """The encodings and mixers as `lengthwise bench` takes them; () are all encodings. NoPE is always measured too."""
    lengths: tuple[int, ...] = option(
        "Tokens per sequence, comma-separated.", (256, 512, 1024, 2048), shown="256,512,1024,2048"
    )
    device: str = option(
        "Device to run on: cpu, cuda, cuda:1, ...",
        "cpu",
        shown="cuda if this machine has a GPU that PyTorch can use, otherwise cpu",
    )
    threads: int = 1
    d_model: int = _size("d_model", "Width of the model.")
    num_layers: int = _size("num_layers", "Number of layers.")
    num_heads: int = _size("num_heads", "Attention heads per layer.")
    batch_tokens: int = _size(
        "batch_tokens", "Tokens per batch: a batch has as many sequences as fit, and at least one."
    )
    dtype: Literal["float32", "bfloat16"] = _size(
        "dtype",
        "Data type of matrix products and attention. Weights are float32, and bfloat16 is used by autocast.",
    )
    rounds: int = option("Measured rounds. In each, every encoding is measured once, in random order.", 12)
    warmup: int = option("Rounds before the measured ones, which are not stored.", 2, minimum=0)
    seed: int = option("Seed of the weights, the tokens and the order in each round.", 0, minimum=None)
    backend: str = option(
        "Attention backend: auto (the fastest that supports the encoding), fused, blocked, sdpa, flex or reference.",
        "auto",
    )
    memory: bool = True
    """Whether the peak memory of a training step is measured."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "lengths", tuple(sorted(set(self.lengths))))
        if not self.lengths or self.lengths[0] < 1:
            raise ConfigError(f"lengths must be numbers of at least 1, got {list(self.lengths)}")
        self.model()  # checks the sizes

    def model(self, share_encoding: bool | None = None, mixer: str | None = None) -> ModelConfig:
        """Return the configuration of the GPT-like model, with a mixer in place of attention if one is named."""
        sizes = {name: getattr(self, name) for name in ("d_model", "num_layers", "num_heads")}
        if mixer is not None and "num_heads" not in MIXERS[mixer].settings:
            del sizes["num_heads"]
        return ModelConfig.gpt(**sizes, share_encoding=share_encoding, mixer=mixer)

    def batch(self, length: int) -> int:
        """Return the number of sequences of a batch."""
        return max(1, self.batch_tokens // length)


def _of_lengths(y: str, **more: Any) -> tuple[Number, ...]:
    return (Number(head="{length:,}", y=y, by=("length",), **more),)


ABOUT = (
    "Model: d_model {d_model}, num_layers {num_layers}, num_heads {num_heads}, byte vocabulary, {dtype}; about "
    f"{{batch_tokens:,}} tokens per batch. A ratio is the median over rounds of the time divided by that of {BASELINE} "
    "in the same round, with "
    "a 95 % interval by order statistics, which needs at least 6 rounds. {n} of {rounds} rounds are finished."
)


def _ratios(kind: Kind, about: str = "") -> tuple[Chart, Numbers]:
    """Return the chart and the table of the time of one kind, relative to NoPE."""
    title = f"Time of a {KINDS[kind]} relative to {BASELINE}"
    chart = Chart(
        kind="lines",
        title=title,
        x="length",
        y=f"{kind}_ratio",
        how="median",
        from_zero=False,
        across="tokens per sequence",
    )
    numbers = _of_lengths(f"{kind}_ratio", how="median")
    return chart, Numbers(title=f"{title}, by tokens per sequence", numbers=numbers, about=about)


CHART_FORWARD, TABLE_FORWARD = _ratios("forward")
CHART_TRAINING, TABLE_TRAINING = _ratios("training")
CHART_DECODING, TABLE_DECODING = _ratios("decoding", ABOUT)


class Speed(Measurement):
    """The time and the memory of every encoding in a GPT-like model, relative to NoPE. Measured by `lengthwise bench`.

    A training step is the forward pass, the backward pass and AdamW. A decoded token is the mean over the last tokens
    of a sequence, which are decoded one by one with a cache of those before them. In every round each encoding is
    measured once, in random order, and its time is divided by that of NoPE in the same round.
    """

    name = "speed"
    Options = SpeedOptions
    columns = (
        key("encoding"),
        key("length", "tokens per sequence", whole=True),
        key("round", whole=True),
        value("forward", "time of a forward pass", "ms"),
        value("training", "time of a training step", "ms"),
        value("decoding", "time of a decoded token", "ms"),
        value("memory", "peak memory of a training step", "MiB", whole=True),
        note("batch", "sequences of a batch"),
        note("backends", "attention backends that were used"),
        note("settings", "the encoding with all its settings"),
        note("reason", "why there are no times"),
        note("memory_reason", "why the memory was not measured"),
        # Computed by `derive`.
        value("forward_ratio", f"time of a forward pass / that of {BASELINE}"),
        value("training_ratio", f"time of a training step / that of {BASELINE}"),
        value("decoding_ratio", f"time of a decoded token / that of {BASELINE}"),
        value("memory_ratio", f"peak memory / that of {BASELINE}"),
        note("n", "number of rounds"),
    )
    charts = (CHART_FORWARD, CHART_TRAINING, CHART_DECODING)
    tables = (
        TABLE_FORWARD,
        TABLE_TRAINING,
        TABLE_DECODING,
        Numbers(
            title="Peak memory of a training step beyond the weights, in MiB, by tokens per sequence",
            numbers=_of_lengths("memory"),
        ),
        Numbers(
            title=f"Peak memory of a training step beyond the weights, relative to {BASELINE}",
            numbers=_of_lengths("memory_ratio"),
            on_page_only=True,
        ),
        Numbers(
            title=f"Time of {BASELINE} in milliseconds",
            numbers=tuple(
                Number(head=name, y=kind, how="median", where={"encoding": BASELINE}) for kind, name in KINDS.items()
            ),
            rows=("length",),
        ),
        Numbers(
            title="Not measured",
            numbers=(Number(head="times", y="reason"), Number(head="memory", y="memory_reason")),
            rows=("length",),
        ),
    )
    chapter = "Speed of position encodings"
    command = "lengthwise bench"
    counted = "rounds"

    def derive(self, answer: Table, facts: Mapping[str, Any]) -> Table:
        """Add the ratios to NoPE, and leave out the times of an encoding that failed in a later round."""
        rows = list(answer)
        refused = {(row["encoding"], row["length"]) for row in rows if row.get("reason")}
        base = {
            (row["length"], name, row.get("round")): row[name]
            for row in rows
            if row["encoding"] == BASELINE
            for name in (*KINDS, "memory")
            if row.get(name)
        }
        counts: dict[int, set[int]] = {}
        for row in rows:
            if row.get("round") is not None:
                counts.setdefault(row["length"], set()).add(row["round"])
        derived: list[Row] = []
        for row in rows:
            at = row["length"], row.get("round")
            if at[1] is not None and (row["encoding"], row["length"]) in refused:
                continue
            ratios = {
                f"{name}_ratio": row[name] / base[at[0], name, at[1]]
                for name in (*KINDS, "memory")
                if row.get(name) is not None and (at[0], name, at[1]) in base
            }
            derived.append({**row, **ratios} | ({} if at[1] is None else {"n": len(counts[at[0]])}))
        return Table.from_rows(derived)

    def unmeasured(self, answer: Table) -> dict[str, str]:
        """Return why encodings have no time at any length, by label."""
        measured = {row["encoding"] for row in self.derive(answer, {}) if row.get("round") is not None}
        reasons = {row["encoding"]: row["reason"] for row in reversed(list(answer)) if row.get("reason")}
        return {label: reason for label, reason in reasons.items() if label not in measured}
