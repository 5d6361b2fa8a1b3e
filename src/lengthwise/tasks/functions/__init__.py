"""Functions to learn in context: one file per family of functions. Each prompt has its own function."""

from lengthwise.tasks.functions.boolean import BooleanFunction
from lengthwise.tasks.functions.prompts import Functions, FunctionTask
from lengthwise.tasks.functions.regression import Regression

__all__ = ["BooleanFunction", "FunctionTask", "Functions", "Regression"]
