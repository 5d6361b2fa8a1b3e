"""What language models lose when they are extended to longer texts, and what they gain beyond their training length."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from lengthwise.config import Config, ConfigError
from lengthwise.measurements.base import Number, Numbers, note, value
from lengthwise.measurements.reach import OWN, TEXT, Reach, ReachOptions
from lengthwise.measurements.table import Row, Table

MAX_STEPS = 10**7
MAX_ROWS = 2**16  # of a batch


@dataclass(frozen=True, kw_only=True)
class Tuning(Config):
    """How the models are trained further. The seed and a row's number determine the window of text of the row."""

    length: int
    """Tokens of a training example."""
    steps: int
    """Optimizer steps."""
    learning_rate: float
    """Learning rate of AdamW after the warmup, which then stays constant."""
    warmup: int
    """Steps of linear warmup."""
    batch_size: int
    """Examples of a forward and backward pass."""
    accumulate: int
    """Forward and backward passes of a step."""
    lora: int | None = None
    """Rank of LoRA; None trains all parameters."""
    save_every: int
    """Steps from one checkpoint to the next."""
    recompute: bool = False
    """Whether blocks are computed again in the backward pass, which needs less memory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_between(1, MAX_STEPS, "steps", "save_every")
        self.require_positive("length")
        self.require_between(1, MAX_ROWS, "batch_size", "accumulate")
        self.require_between(0, MAX_STEPS, "warmup")
        if not 0 < self.learning_rate < math.inf:
            raise ConfigError(f"learning_rate must be more than 0, got {self.learning_rate:g}")
        if self.lora is not None and not 1 <= self.lora <= MAX_ROWS:
            raise ConfigError(f"lora must be a rank from 1 to {MAX_ROWS:,}, such as 16, got {self.lora}")

    @property
    def rows(self) -> int:
        """The number of training examples."""
        return self.steps * self.accumulate * self.batch_size


@dataclass(frozen=True, kw_only=True)
class RetentionOptions(ReachOptions):
    """What is measured, and how the models are trained before that. Without `tune_sha256`, they are not.

    `train_length`: the training length before positions were scaled. The others are those of `Tuning`.
    """

    train_length: int
    tune_sha256: str | None = None
    length: int | None = None
    steps: int | None = None
    learning_rate: float | None = None
    warmup: int | None = None
    batch_size: int | None = None
    accumulate: int | None = None
    lora: int | None = None
    save_every: int | None = None
    recompute: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if OWN in self.methods:
            raise ConfigError(
                "--methods names own, which is always measured; name encodings only, such as yarn:factor=4"
            )
        if TEXT not in self.tasks:
            raise ConfigError("--tasks must contain text, because the report compares cross-entropies")
        if self.tune_sha256 == self.text_sha256:
            raise ConfigError(
                "--tune and --text have the same content, so the model would be measured on its training text; name "
                "another --text"
            )
        if self.tuning is not None and self.dtype == "float16":
            raise ConfigError("models are not trained in float16; take --dtype bfloat16 or float32")

    @property
    def tuning(self) -> Tuning | None:
        if self.tune_sha256 is None:
            return None
        values = {field.name: getattr(self, field.name) for field in fields(Tuning)}
        return Tuning(**{name: value for name, value in values.items() if value is not None})

    @property
    def reach(self) -> ReachOptions:
        """Return what is measured of one model."""
        values = {field.name: getattr(self, field.name) for field in fields(ReachOptions)}
        return ReachOptions(**values | {"methods": (OWN,)})


class Retention(Reach):
    """What language models lose when they are extended to longer texts, and what they gain. Measured by
    `lengthwise extend`.

    Cross-entropy and retrieval of the original model and of each extended one, at the training length and beyond. The
    changes of cross-entropies are paired: the same tokens of the same texts, before and after.
    """

    name = "retention"
    Options = RetentionOptions
    columns = (
        *Reach.columns,
        value("change", "change of the cross-entropy", "nats per token", groups="changes"),
        note("changes", "change of the cross-entropy of each text"),
        note("form", "native if transformers itself computes the encoding, otherwise lengthwise"),
        note("folder", "folder of the model below that of the report"),
        note("build_seconds", "seconds to apply the method and to train"),
        note("peak_gib", "largest memory in use, in GiB"),
        note("train_steps", "steps of the training losses"),
        note("train_losses", "mean training losses up to these steps"),
    )
    tables = (
        Numbers(
            title="Change of the cross-entropy",
            numbers=(Number(head="{length:,}", y="change", by=("length",)),),
            about="In nats per token, against the original model, whose training length is {train_length} tokens. "
            "The same tokens of the same texts are compared. More than 0 is a loss, and less than 0 is a gain.",
        ),
        Numbers(
            title="What it took",
            numbers=(
                Number(head="form", y="form"),
                Number(head="seconds to apply and train", y="build_seconds"),
                Number(head="largest memory (GiB)", y="peak_gib"),
                Number(head="folder", y="folder"),
            ),
        ),
        *Reach.tables,
    )
    chapter = "What was lost, and what was gained?"
    command = "lengthwise extend FOLDER"

    def derive(self, answer: Table, facts: Mapping[str, Any]) -> Table:
        """Add the changes against the original model at each length that both reached."""
        shown = super().derive(answer, facts)
        losses: dict[tuple[str, int], Row] = {
            (row["method"], row["length"]): row for row in answer if row.get("losses") is not None
        }
        changes = []
        for (method, length), row in losses.items():
            if method != OWN and (own := losses.get((OWN, length))) is not None:
                differences = [after - before for after, before in zip(row["losses"], own["losses"], strict=True)]
                mean = math.fsum(differences) / len(differences)
                changes.append({"method": method, "length": length, "change": mean, "changes": differences})
        return Table.from_rows([*shown, *changes])

    def texts(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"train_length": f"{question['train_length']:,}" if "train_length" in question else "known"}
