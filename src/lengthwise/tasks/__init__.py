"""Tasks: what models are trained and tested on. One file per task or family, and one line in the list below."""

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
from lengthwise.tasks.copy import Copy, CopyColumn, Reverse
from lengthwise.tasks.counting import Counting
from lengthwise.tasks.functions.clauses import CNF, DNF, Conjunction, Disjunction, SparseDisjunction
from lengthwise.tasks.functions.regression import (
    DecisionTree,
    LinearRegression,
    QuadraticRegression,
    ReLUNetwork,
    SparseLinearRegression,
)
from lengthwise.tasks.functions.sums import IntegerHalfspace, ParityFunction, SparseMajority, SparseParity, Threshold
from lengthwise.tasks.glue import Glue
from lengthwise.tasks.lego import LEGO
from lengthwise.tasks.pcfg import PCFG
from lengthwise.tasks.permutations import Permutations
from lengthwise.tasks.polynomial import Polynomial
from lengthwise.tasks.recall import Recall
from lengthwise.tasks.running_sum import Parity, Summation
from lengthwise.tasks.scan import SCAN
from lengthwise.tasks.scrolls import Scrolls
from lengthwise.tasks.sorting import Sorting
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
