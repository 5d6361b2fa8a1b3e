"""Tasks: what models are trained and tested on. One file per task, one line per task in the list below."""

from lengthwise.config import Registry
from lengthwise.tasks.base import Batch, Task, exact_match, generator, mean_nats
from lengthwise.tasks.copy import Copy
from lengthwise.tasks.reverse import Reverse
from lengthwise.tasks.text import Text

TASKS = Registry("task", (Text, Copy, Reverse))

__all__ = ["TASKS", "Batch", "Copy", "Reverse", "Task", "Text", "exact_match", "generator", "mean_nats"]
