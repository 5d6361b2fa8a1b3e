"""Functions to learn in context: one file per class of functions. Each prompt has a function of its own."""

from lengthwise.tasks.functions.linear import LinearRegression
from lengthwise.tasks.functions.prompts import FunctionTask
from lengthwise.tasks.functions.regression import Regression

__all__ = ["FunctionTask", "LinearRegression", "Regression"]
