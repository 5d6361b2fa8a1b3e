"""Test whether a pretrained language model learns Boolean functions from the examples of a prompt.

Needs transformers (the extra `outside`). A model is a folder on this machine. Nothing is downloaded, no code in the
folder is run, and weights are read from safetensors only.
"""

from lengthwise.evaluation.pretrained.label_predictions import LabelPredictions, Plan, boolean_tasks, predict_labels
from lengthwise.evaluation.pretrained.loading import Pretrained, load
from lengthwise.evaluation.pretrained.prompts import FORMS, SETTINGS, form_for, prompt_text

__all__ = [
    "FORMS",
    "SETTINGS",
    "LabelPredictions",
    "Plan",
    "Pretrained",
    "boolean_tasks",
    "form_for",
    "load",
    "predict_labels",
    "prompt_text",
]
