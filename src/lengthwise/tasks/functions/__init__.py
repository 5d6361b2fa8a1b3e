"""Functions to learn in context: one file per class of functions. Each prompt has its own function."""

from lengthwise.tasks.functions.boolean import BooleanFunction
from lengthwise.tasks.functions.cnf import CNF
from lengthwise.tasks.functions.conjunction import Conjunction
from lengthwise.tasks.functions.disjunction import Disjunction
from lengthwise.tasks.functions.dnf import DNF
from lengthwise.tasks.functions.halfspace import IntegerHalfspace
from lengthwise.tasks.functions.linear import LinearRegression
from lengthwise.tasks.functions.majority import SparseMajority
from lengthwise.tasks.functions.parity import ParityFunction
from lengthwise.tasks.functions.prompts import Functions, FunctionTask
from lengthwise.tasks.functions.quadratic import QuadraticRegression
from lengthwise.tasks.functions.regression import Regression
from lengthwise.tasks.functions.relu import ReLUNetwork
from lengthwise.tasks.functions.sparse_disjunction import SparseDisjunction
from lengthwise.tasks.functions.sparse_linear import SparseLinearRegression
from lengthwise.tasks.functions.sparse_parity import SparseParity
from lengthwise.tasks.functions.threshold import Threshold
from lengthwise.tasks.functions.tree import DecisionTree

__all__ = [
    "CNF",
    "DNF",
    "BooleanFunction",
    "Conjunction",
    "DecisionTree",
    "Disjunction",
    "FunctionTask",
    "Functions",
    "IntegerHalfspace",
    "LinearRegression",
    "ParityFunction",
    "QuadraticRegression",
    "ReLUNetwork",
    "Regression",
    "SparseDisjunction",
    "SparseLinearRegression",
    "SparseMajority",
    "SparseParity",
    "Threshold",
]
