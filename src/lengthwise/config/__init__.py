"""Configurations of runs: frozen dataclasses with strict JSON conversion and a hash that is the run key.

Nothing here imports torch. A `Run` describes one training completely, including all defaults, so that equal trainings
have equal keys on every machine. Encodings, tasks and position schemes in it are choices (`choices.py`).
"""

from lengthwise.config.arguments import CheckedArguments
from lengthwise.config.base import Config
from lengthwise.config.choice_data import choice_from_data
from lengthwise.config.choices import Choice, Registry, alternate, choose
from lengthwise.config.class_settings import annotation, context_of, settings_of, shown_settings
from lengthwise.config.evaluation import EvaluationConfig
from lengthwise.config.executors import EXECUTOR_CONFIGS, ExecutorConfig, Inline, Local, Ray, Slurm, Torchrun
from lengthwise.config.model import ModelConfig
from lengthwise.config.run import Run
from lengthwise.config.training import Curriculum, StopWhenLearned, TrainingConfig
from lengthwise.values import ConfigError, near_miss

__all__ = [
    "EXECUTOR_CONFIGS",
    "CheckedArguments",
    "Choice",
    "Config",
    "ConfigError",
    "Curriculum",
    "EvaluationConfig",
    "ExecutorConfig",
    "Inline",
    "Local",
    "ModelConfig",
    "Ray",
    "Registry",
    "Run",
    "Slurm",
    "StopWhenLearned",
    "Torchrun",
    "TrainingConfig",
    "alternate",
    "annotation",
    "choice_from_data",
    "choose",
    "context_of",
    "near_miss",
    "settings_of",
    "shown_settings",
]
