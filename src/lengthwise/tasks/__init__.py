"""Tasks: what models are trained and tested on. One file per task, one line per task in the list below."""

from lengthwise.config import Registry
from lengthwise.tasks.addition import Addition
from lengthwise.tasks.base import Batch, Task, exact_match, generator, mean_nats
from lengthwise.tasks.copy import Copy
from lengthwise.tasks.parity import Parity
from lengthwise.tasks.pcfg import PCFG
from lengthwise.tasks.reverse import Reverse
from lengthwise.tasks.scan import SCAN
from lengthwise.tasks.summation import Summation
from lengthwise.tasks.text import Text

TASKS = Registry("task", (Text, Copy, Reverse, Addition, Summation, Parity, SCAN, PCFG))

__all__ = [
    "PCFG",
    "SCAN",
    "TASKS",
    "Addition",
    "Batch",
    "Copy",
    "Parity",
    "Reverse",
    "Summation",
    "Task",
    "Text",
    "exact_match",
    "generator",
    "mean_nats",
]
