"""The retrieval tasks. A new one is a file and a line here."""

from collections.abc import Mapping

from lengthwise.reach.tasks.base import Chat, Needles, Prompt, RetrievalTask, assemble
from lengthwise.reach.tasks.copying import Copying
from lengthwise.reach.tasks.keys import Keys
from lengthwise.reach.tasks.needle import Needle
from lengthwise.reach.tasks.values import Values
from lengthwise.reach.tasks.variables import Variables

TASKS: Mapping[str, RetrievalTask] = {task.name: task for task in (Needle(), Keys(), Values(), Variables(), Copying())}

__all__ = ["TASKS", "Chat", "Needles", "Prompt", "RetrievalTask", "assemble"]
