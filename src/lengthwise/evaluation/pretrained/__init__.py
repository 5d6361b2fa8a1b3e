"""Test whether a pretrained language model learns Boolean functions from the examples of a prompt.

Needs transformers (`pip install 'lengthwise[outside]'`). A model is a folder on this machine. Nothing is downloaded, no code in the
folder is run, and weights are read from safetensors only.
"""

from lengthwise.evaluation.pretrained.asking import Answers, Plan, answers, boolean_tasks
from lengthwise.evaluation.pretrained.loading import Pretrained, load
from lengthwise.evaluation.pretrained.wording import FORMS, SETTINGS, form_for, prompt

__all__ = [
    "FORMS",
    "SETTINGS",
    "Answers",
    "Plan",
    "Pretrained",
    "answers",
    "boolean_tasks",
    "form_for",
    "load",
    "prompt",
]
