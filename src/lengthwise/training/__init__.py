"""Training in plain PyTorch. It can be interrupted at any time; on a CPU the final weights are bitwise the same."""

from lengthwise.training.loop import load_weights, train
from lengthwise.training.progress import Progress, Stopped, TrainingError
from lengthwise.training.setup import build, check_training
from lengthwise.training.tensor_file import CheckpointError, CheckpointWarning
from lengthwise.training.timing import check_step, measure_step
from lengthwise.training.trainer import Trained

__all__ = [
    "CheckpointError",
    "CheckpointWarning",
    "Progress",
    "Stopped",
    "Trained",
    "TrainingError",
    "build",
    "check_step",
    "check_training",
    "load_weights",
    "measure_step",
    "train",
]
