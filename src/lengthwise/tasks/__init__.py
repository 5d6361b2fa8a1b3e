"""Tasks: what models are trained and tested on. One file per task, one line per task in the list below."""

from lengthwise.config import Registry
from lengthwise.tasks.addition import Addition
from lengthwise.tasks.automata import PFA
from lengthwise.tasks.base import Batch, Task, exact_match, generator, mean_nats
from lengthwise.tasks.chomsky.context_free import (
    ModularArithmeticBrackets,
    ReverseString,
    SolveEquation,
    StackManipulation,
)
from lengthwise.tasks.chomsky.context_sensitive import (
    BinaryAddition,
    BinaryMultiplication,
    BucketSort,
    ComputeSqrt,
    DuplicateString,
    MissingDuplicate,
    OddsFirst,
)
from lengthwise.tasks.chomsky.regular import CycleNavigation, EvenPairs, ModularArithmetic, ParityCheck
from lengthwise.tasks.copy import Copy
from lengthwise.tasks.copy_column import CopyColumn
from lengthwise.tasks.counting import Counting
from lengthwise.tasks.functions.cnf import CNF
from lengthwise.tasks.functions.conjunction import Conjunction
from lengthwise.tasks.functions.disjunction import Disjunction
from lengthwise.tasks.functions.dnf import DNF
from lengthwise.tasks.functions.halfspace import IntegerHalfspace
from lengthwise.tasks.functions.linear import LinearRegression
from lengthwise.tasks.functions.majority import SparseMajority
from lengthwise.tasks.functions.parity import ParityFunction
from lengthwise.tasks.functions.quadratic import QuadraticRegression
from lengthwise.tasks.functions.relu import ReLUNetwork
from lengthwise.tasks.functions.sparse_disjunction import SparseDisjunction
from lengthwise.tasks.functions.sparse_linear import SparseLinearRegression
from lengthwise.tasks.functions.sparse_parity import SparseParity
from lengthwise.tasks.functions.threshold import Threshold
from lengthwise.tasks.functions.tree import DecisionTree
from lengthwise.tasks.glue import Glue
from lengthwise.tasks.lego import LEGO
from lengthwise.tasks.parity import Parity
from lengthwise.tasks.pcfg import PCFG
from lengthwise.tasks.permutations import Permutations
from lengthwise.tasks.polynomial import Polynomial
from lengthwise.tasks.recall import Recall
from lengthwise.tasks.reverse import Reverse
from lengthwise.tasks.scan import SCAN
from lengthwise.tasks.scrolls import Scrolls
from lengthwise.tasks.sorting import Sorting
from lengthwise.tasks.summation import Summation
from lengthwise.tasks.tagging import Tagging
from lengthwise.tasks.text import Text

TASKS = Registry(
    "task",
    (
        Text,
        Copy,
        Reverse,
        Addition,
        Summation,
        Parity,
        Polynomial,
        Sorting,
        LEGO,
        SCAN,
        PCFG,
        Recall,
        Permutations,
        Counting,
        CopyColumn,
        EvenPairs,
        ModularArithmetic,
        ParityCheck,
        CycleNavigation,
        StackManipulation,
        ReverseString,
        ModularArithmeticBrackets,
        SolveEquation,
        DuplicateString,
        MissingDuplicate,
        OddsFirst,
        BinaryAddition,
        BinaryMultiplication,
        ComputeSqrt,
        BucketSort,
        LinearRegression,
        SparseLinearRegression,
        QuadraticRegression,
        DecisionTree,
        ReLUNetwork,
        Conjunction,
        Disjunction,
        SparseDisjunction,
        CNF,
        DNF,
        SparseMajority,
        Threshold,
        IntegerHalfspace,
        ParityFunction,
        SparseParity,
        PFA,
        Scrolls,
        Glue,
        Tagging,
    ),
    plural="tasks",
)

__all__ = [
    "CNF",
    "DNF",
    "LEGO",
    "PCFG",
    "PFA",
    "SCAN",
    "TASKS",
    "Addition",
    "Batch",
    "BinaryAddition",
    "BinaryMultiplication",
    "BucketSort",
    "ComputeSqrt",
    "Conjunction",
    "Copy",
    "CopyColumn",
    "Counting",
    "CycleNavigation",
    "DecisionTree",
    "Disjunction",
    "DuplicateString",
    "EvenPairs",
    "Glue",
    "IntegerHalfspace",
    "LinearRegression",
    "MissingDuplicate",
    "ModularArithmetic",
    "ModularArithmeticBrackets",
    "OddsFirst",
    "Parity",
    "ParityCheck",
    "ParityFunction",
    "Permutations",
    "Polynomial",
    "QuadraticRegression",
    "ReLUNetwork",
    "Recall",
    "Reverse",
    "ReverseString",
    "Scrolls",
    "SolveEquation",
    "Sorting",
    "SparseDisjunction",
    "SparseLinearRegression",
    "SparseMajority",
    "SparseParity",
    "StackManipulation",
    "Summation",
    "Tagging",
    "Task",
    "Text",
    "Threshold",
    "exact_match",
    "generator",
    "mean_nats",
]
