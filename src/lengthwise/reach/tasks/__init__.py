"""The retrieval tasks. A new one is a function in retrieval.py, and a line here."""

from collections.abc import Mapping

from lengthwise.reach.tasks.base import Chat, Needles, Prompt, RetrievalTask, assemble
from lengthwise.reach.tasks.retrieval import copying, keys, needle, values, variables

TASKS: Mapping[str, RetrievalTask] = {task.__name__: task for task in (needle, keys, values, variables, copying)}

__all__ = ["TASKS", "Chat", "Needles", "Prompt", "RetrievalTask", "assemble"]
