"""The question of a measurement: which lengths, tasks and methods, with how many examples. Imports no torch."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lengthwise.config import Config, ConfigError
from lengthwise.reach.tasks import TASKS
from lengthwise.values import near_miss

OWN = "own"  # the method that leaves the model as transformers computes it
TEXT = "text"  # the task that measures cross-entropy
MAX_LENGTH = 2**27
MAX_PARTS = 64  # lengths, depths or methods
MAX_EXAMPLES = 100_000
MARGIN = 0.05  # nats per token
PASS = 0.8  # share of correct answers


@dataclass(frozen=True, kw_only=True)
class Plan(Config):
    """What is measured. A results file belongs to one plan and one model."""

    lengths: tuple[int, ...]
    """Tokens that the model reads, ascending."""
    tasks: tuple[str, ...] = (TEXT, *TASKS)
    """text (cross-entropy) and the names of retrieval tasks."""
    methods: tuple[str, ...] = (OWN,)
    """own, and encodings as the command line takes them."""
    examples: int = 10
    """Examples of each task, length and depth."""
    targets: int = 64
    """Tokens at the end of each text that are predicted at every length."""
    depths: int = 5
    """Depths of retrieval tasks, evenly spaced from the beginning of the text to its end."""
    seed: int = 0
    """Seed of names, numbers and passages."""
    chat: bool = False
    """Put the prompts of retrieval tasks into the model's chat template."""
    dtype: str = "float32"
    """Data type of the weights."""
    text_sha256: str = ""
    """Hash of the text."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_between(1, MAX_EXAMPLES, "examples", "targets")
        self.require_between(1, MAX_PARTS, "depths")
        if not 1 <= len(self.lengths) <= MAX_PARTS or sorted(set(self.lengths)) != list(self.lengths):
            raise ConfigError(
                f"lengths must be 1 to {MAX_PARTS} different numbers in ascending order, got {list(self.lengths)[:70]}"
            )
        if self.lengths[-1] > MAX_LENGTH:
            raise ConfigError(f"lengths must be at most {MAX_LENGTH:,} tokens, got {self.lengths[-1]:,}")
        if self.lengths[0] < self.targets + 2 and TEXT in self.tasks:
            raise ConfigError(
                f"lengths must be at least {self.targets + 2} for {self.targets} targets, got {self.lengths[0]}; take longer ones, "
                "or fewer targets"
            )
        if self.chat and set(self.tasks) <= {TEXT}:
            raise ConfigError(
                "--chat changes only retrieval tasks; name one in --tasks, such as needle, or omit --chat"
            )
        known = (TEXT, *TASKS)
        for name in self.tasks:
            if name not in known:
                raise ConfigError(
                    f"there is no task {name[:40]!r}{near_miss(name, known)}; available: {', '.join(known)}"
                )
        for what, names in (("tasks", self.tasks), ("methods", self.methods)):
            if not 1 <= len(names) <= MAX_PARTS or len(set(names)) < len(names):
                raise ConfigError(f"{what} must be 1 to {MAX_PARTS} different names, got {', '.join(names)[:200]!r}")

    def options(self) -> dict[str, object]:
        """Return the settings by the names of the command's options. That of the text is a hash."""
        return {option_name(name): value for name, value in self.to_data().items()}

    def depths_of(self, task: str) -> tuple[float | None, ...]:
        """Return the depths of a task as shares of the text; a task without a depth has one entry, None."""
        if task == TEXT or not TASKS[task].has_depth:
            return (None,)
        return tuple(n / (self.depths - 1) for n in range(self.depths)) if self.depths > 1 else (0.5,)

    def units(self, length: int) -> list[tuple[str, str, float | None]]:
        """Return what is measured at a length as (method, task, depth): the tasks in order, each with all methods."""
        return [
            (method, task, depth) for task in self.tasks for depth in self.depths_of(task) for method in self.methods
        ]


def option_name(name: str) -> str:
    """Return the option that gives a setting: `--batch-size`. That of a text's hash names the text."""
    return f"--{name.removesuffix('_sha256').replace('_', '-')}"


def differences(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Return what differs between the values of options, as "--seed 0 instead of 1"; of texts, only that they differ."""
    found = []
    for name in dict.fromkeys((*old, *new)):
        one, other = old.get(name), new.get(name)
        if one == other:
            continue
        if name in ("--text", "--tune") and one and other:
            found.append(f"another {name}")
        else:
            found.append(f"{name} {_short(one)} instead of {_short(other)}")
    return found


def _short(value: object) -> str:
    text = "none" if value is None else ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def parse_lengths(text: str, option: str = "--lengths") -> tuple[int, ...]:
    """Return the lengths of `1k,2k,1m`, ascending: k is 1,024 tokens, and m is 1,048,576."""
    lengths = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"([0-9]{1,9})([kKmM]?)", part)
        value = int(match[1]) * {"": 1, "k": 2**10, "m": 2**20}[match[2].lower()] if match else 0
        if not 1 <= value <= MAX_LENGTH:
            raise ConfigError(
                f"{option} must be numbers of tokens from 1 to {MAX_LENGTH:,}, such as 1k,2k,4096, got {part[:40]!r}"
            )
        lengths.add(value)
    if not lengths:
        raise ConfigError(f"{option} is empty; name lengths such as 1k,2k,4k")
    return tuple(sorted(lengths))
