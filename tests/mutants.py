"""Break the source in many small ways, one at a time, and see whether the tests notice: `python3 dev.py mutants`.

Each fault (mutant) changes one place of src/lengthwise: a comparison, an operator, a number, a condition, or a
statement that is left out. A mutant is caught if a test fails. Faults that no test catches show what is not tested.
Timeouts are counted apart.

Two steps, and the first is needed again only after the tests or the source have changed:

    python3 dev.py mutants --record          # run the tests once, and store which tests execute which lines (.mutants/)
    python3 dev.py mutants                   # try the mutants with the tests that execute their lines
    python3 dev.py mutants --sample 10       # try 10 of them, others every day; exit code 1 if most of them survive

Or the same for some files only, with a record of their tests, which takes a minute:

    python3 dev.py mutants --record tests/store tests/config
    python3 dev.py mutants --files 'store/*' validation.py --count 30 --seed 1

The mutants are drawn with a fixed seed, from each package by its share of the code. `--keep FILE` stores the outcome as
JSON.
"""

import argparse
import ast
import copy
import datetime
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "lengthwise"
STORED = ROOT / ".mutants"  # the record of which tests execute which lines
COUNT = 200
MOST_TESTS = 60  # for one mutant, the quickest first
SECONDS = 240  # for the tests of one mutant; a fault that makes a loop endless ends as a timeout
MIN_SHARE = 0.4  # of a sample that has to be caught; far below the share of all mutants, because a sample is small

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
FUNCTIONS = {
    "min": "max", "max": "min", "any": "all", "all": "any", "cos": "sin", "sin": "cos", "amax": "amin", "amin": "amax",
    "floor": "ceil", "ceil": "floor", "clamp_min": "clamp_max", "clamp_max": "clamp_min", "tril": "triu",
    "triu": "tril", "mean": "sum", "maximum": "minimum", "minimum": "maximum", "keys": "values", "append": "extend",
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One fault: the `number`-th place of a file where a mutation of this `kind` is possible."""

    file: str  # relative to src/lengthwise
    line: int
    kind: str
    number: int

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line} {self.kind}"


class Mutator(ast.NodeTransformer):
    """Visit the places where a fault is possible; at the one numbered `chosen`, write it."""

    def __init__(self, chosen: int | None = None):
        self.chosen, self.count = chosen, 0
        self.places: list[tuple[int, str]] = []

    def _is_chosen(self, node: ast.AST, kind: str) -> bool:
        self.places.append((getattr(node, "lineno", 0), kind))
        self.count += 1
        return self.count - 1 == self.chosen

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        for n, operator in enumerate(node.ops):
            if self._is_chosen(node, f"{type(operator).__name__} -> {COMPARISONS[type(operator)].__name__}"):
                node.ops[n] = COMPARISONS[type(operator)]()
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        is_text = any(
            isinstance(side, (ast.JoinedStr, ast.Constant)) and _is_text(side) for side in (node.left, node.right)
        )
        other = OPERATORS.get(type(node.op))
        if other is not None and not is_text and self._is_chosen(node, f"{type(node.op).__name__} -> {other.__name__}"):
            node.op = other()
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, (ast.USub, ast.Not)) and self._is_chosen(node, f"without {type(node.op).__name__}"):
            return node.operand
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        other = ast.Or if isinstance(node.op, ast.And) else ast.And
        if self._is_chosen(node, f"{type(node.op).__name__} -> {other.__name__}"):
            node.op = other()
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, bool):
            if self._is_chosen(node, f"{node.value} -> {not node.value}"):
                return ast.copy_location(ast.Constant(not node.value), node)
        elif isinstance(node.value, (int, float)) and self._is_chosen(node, f"{node.value} + 1"):
            return ast.copy_location(ast.Constant(node.value + 1), node)
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        if not _is_type_checking(node.test) and self._is_chosen(node, "if -> if not"):
            node.test = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in FUNCTIONS and self._is_chosen(node, f"{name} -> {FUNCTIONS[name]}"):
            if isinstance(node.func, ast.Attribute):
                node.func.attr = FUNCTIONS[name]
            elif isinstance(node.func, ast.Name):
                node.func.id = FUNCTIONS[name]
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Call) and self._is_chosen(node, "call left out"):
            return ast.copy_location(ast.Pass(), node)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        if self._is_chosen(node, "assignment left out"):
            return ast.copy_location(ast.Pass(), node)
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:  # numbers inside of messages are not behaviour
        return ast.copy_location(ast.Pass(), node) if self._is_chosen(node, "raise left out") else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return node


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str)


def _is_type_checking(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def mutants_of(path: Path) -> list[Mutant]:
    """Return every fault that is possible in a file."""
    mutator = Mutator()
    mutator.visit(ast.parse(path.read_text(encoding="utf-8")))
    file = path.relative_to(SOURCE).as_posix()
    return [Mutant(file, line, kind, number) for number, (line, kind) in enumerate(mutator.places)]


def mutated(mutant: Mutant) -> str:
    """Return the source of the mutant's file with its fault."""
    tree = ast.parse((SOURCE / mutant.file).read_text(encoding="utf-8"))
    return ast.unparse(ast.fix_missing_locations(Mutator(mutant.number).visit(copy.deepcopy(tree)))) + "\n"


def drawn(count: int, seed: int, tested: dict[str, dict[int, list[str]]], patterns: list[str]) -> list[Mutant]:
    """Draw mutants from lines that tests execute in a function, from each package by its share of these lines."""
    groups: dict[str, list[Mutant]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        file = path.relative_to(SOURCE).as_posix()
        if not any(fnmatch(file, pattern) for pattern in patterns):
            continue
        lines = tested.get(file, {})
        package = path.relative_to(SOURCE).parts[0]
        groups[package] += [mutant for mutant in mutants_of(path) if mutant.line in lines]
    generator, total = random.Random(seed), sum(map(len, groups.values()))
    chosen = []
    for package in sorted(groups):
        size = round(count * len(groups[package]) / total)
        chosen += generator.sample(groups[package], min(max(size, 1 if groups[package] else 0), len(groups[package])))
    return chosen


# ---- which tests execute which lines ----------------------------------------------------------------------------


def record(arguments: list[str]) -> int:
    """Run the tests with coverage, and store for each line the tests that execute it, and how long each test takes."""
    STORED.mkdir(exist_ok=True)
    data = STORED / "coverage"
    environment = {**os.environ, "COVERAGE_FILE": str(data), "PYTHONPATH": str(ROOT / "src")}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "3",
        "-m",
        "not medium and not slow",
        "-p",
        "no:cacheprovider",
    ]
    command += [f"--cov={SOURCE}", "--cov-context=test", "--cov-report=", f"--junitxml={STORED / 'times.xml'}"]
    code = subprocess.call([*command, *arguments], cwd=ROOT, env=environment)
    if code != 0:
        print("mutants: the tests fail without any fault; mend them first", file=sys.stderr)
    return code


def recorded() -> tuple[dict[str, dict[int, list[str]]], dict[str, float]]:
    """Return {file: {line: tests}} and the seconds of each test."""
    import xml.etree.ElementTree as ElementTree

    import coverage

    if not (STORED / "coverage").exists():
        raise SystemExit(
            "mutants: nothing is recorded; run python3 dev.py mutants --record first (as long as the tests take)"
        )
    seconds: dict[str, float] = {}
    for case in ElementTree.parse(STORED / "times.xml").iter("testcase"):
        path = case.attrib["classname"].replace(".", "/") + ".py"
        seconds[f"{path}::{case.attrib['name']}"] = float(case.attrib["time"])
    data = coverage.CoverageData(str(STORED / "coverage"))
    data.read()
    tested: dict[str, dict[int, list[str]]] = {}
    for file in data.measured_files():
        contexts = data.contexts_by_lineno(file)
        lines = {
            line: [name.partition("|")[0] for name in names if name.endswith("|run")]
            for line, names in contexts.items()
        }
        tested[Path(file).relative_to(SOURCE).as_posix()] = {
            line: sorted(set(names)) for line, names in lines.items() if names
        }
    return tested, seconds


# ---- trying them ------------------------------------------------------------------------------------------------


def attempt(mutant: Mutant, tests: list[str]) -> tuple[str, float]:
    """Run tests on a copy of the source with the fault. Return "caught", "survived" or "timeout", and the seconds."""
    start = datetime.datetime.now()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copied = Path(folder) / "src" / "lengthwise"
        shutil.copytree(SOURCE, copied)  # with the compiled files: Python compiles only the changed one again
        (copied / mutant.file).write_text(mutated(mutant), encoding="utf-8")
        environment = {
            **os.environ,
            "PYTHONPATH": str(copied.parent),
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
        try:
            result = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
            )
            outcome = "survived" if result.returncode == 0 else "caught"
            output = result.stdout + result.stderr
            broken = "no collectors" in output or "loading conftest" in output  # the tests cannot be imported any more
            if result.returncode not in (0, 1, 2) and not broken:  # 2: an error while the tests are collected
                outcome = f"failed to run ({result.returncode})"
        except subprocess.TimeoutExpired:
            outcome = "timeout"
    return outcome, (datetime.datetime.now() - start).total_seconds()


def attempts(chosen: list[Mutant], tested: Any, seconds: dict[str, float], workers: int) -> Iterator[dict[str, Any]]:
    with ThreadPoolExecutor(workers) as pool:
        jobs = []
        for mutant in chosen:
            tests = sorted(tested[mutant.file][mutant.line], key=lambda test: seconds.get(test, 1e9))[:MOST_TESTS]
            jobs.append((mutant, len(tests), pool.submit(attempt, mutant, tests)))
        for mutant, count, job in jobs:
            outcome, took = job.result()
            yield {"mutant": mutant.name, "outcome": outcome, "tests": count, "seconds": round(took, 1)}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="run the tests once and store which lines they execute")
    parser.add_argument("--count", type=int, default=COUNT, help=f"how many mutants to draw (default: {COUNT})")
    parser.add_argument("--seed", type=int, default=0, help="of the draw (default: 0)")
    parser.add_argument(
        "--files", nargs="+", default=["*"], help="draw from these files of src/lengthwise only (patterns)"
    )
    parser.add_argument("--sample", type=int, help="try only so many of them, others every day")
    parser.add_argument("--workers", type=int, default=2, help="mutants that are tried at once (default: 2)")
    parser.add_argument("--keep", type=Path, help="write the outcome of each mutant to this JSON file")
    wanted, rest = parser.parse_known_args(argv)
    if wanted.record:
        return record(rest)
    if rest:
        parser.error(f"unknown arguments: {' '.join(rest)}")
    tested, seconds = recorded()
    chosen = drawn(wanted.count, wanted.seed, tested, wanted.files)
    if wanted.sample is not None:
        day = hashlib.sha256(datetime.date.today().isoformat().encode()).digest()
        chosen = random.Random(day).sample(chosen, min(wanted.sample, len(chosen)))
    outcomes = []
    for outcome in attempts(chosen, tested, seconds, wanted.workers):
        outcomes.append(outcome)
        print(
            f"{len(outcomes):4} of {len(chosen)}  {outcome['outcome']:9} {outcome['seconds']:6.1f} s  "
            f"{outcome['mutant']}",
            flush=True,
        )
    counts = Counter(outcome["outcome"] for outcome in outcomes)
    print(f"{len(outcomes)} mutants: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()))
    if wanted.keep is not None:
        record_of_all = {"seed": wanted.seed, "commit": commit(), "counts": counts, "mutants": outcomes}
        wanted.keep.write_text(json.dumps(record_of_all, indent=1) + "\n")
    return 1 if counts["survived"] > (1 - MIN_SHARE) * len(outcomes) else 0


def commit() -> str:
    result = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return result.stdout.strip()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
