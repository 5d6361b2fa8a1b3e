"""Read what `lengthwise list` shows about our own classes from their source, because importing PyTorch takes a second or more.

Only literals and metrics are read: docstrings, defaults of keyword-only arguments, and class attributes. Where a default is
anything else, the reader gives up and the caller imports the module. A test compares every class with what importing it says.
"""

import ast
import inspect
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import lengthwise
from lengthwise import metrics

ROOT = Path(lengthwise.__file__).parent.parent


class NotLiteral(Exception):
    """The source says something that only running it would tell."""


@dataclass(frozen=True)
class SourceClass:
    """One class of a list: the module that defines it, and its definition."""

    module: str
    definition: ast.ClassDef

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def documentation(self) -> str:
        text = ast.get_docstring(self.definition, clean=False)
        return inspect.cleandoc(text or f"{self.name} has no docstring of its own.")

    @property
    def settings(self) -> dict[str, Any]:
        """The keyword-only arguments of `__init__` with a default, and the default."""
        for of_class in self.linearization():
            for node in of_class.definition.body:
                if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                    pairs = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
                    return {a.arg: literal(default, of_class.module) for a, default in pairs if default is not None}
        return {}

    def attribute(self, name: str) -> Any:
        """Return a class attribute. Raise `NotLiteral` where no class body assigns a literal to it."""
        for of_class in self.linearization():
            for node in of_class.definition.body:
                if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and name in _targets(node):
                    return literal(node.value, of_class.module)
                if isinstance(node, ast.FunctionDef) and node.name == name:
                    raise NotLiteral(name)
        raise NotLiteral(name)

    def linearization(self) -> list["SourceClass"]:
        """Return the class and its bases, the first base with its own first; bases outside of lengthwise are left out."""
        bases = (resolved(self.module, name) for name in self.definition.bases)
        return [self, *(each for base in bases if base is not None for each in base.linearization())]


def _targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def literal(node: ast.expr, module: str) -> Any:
    """Return the value of a literal, or of a name that a module gives to a literal."""
    if isinstance(node, ast.Name):
        for statement in tree(module).body:
            if isinstance(statement, ast.Assign) and node.id in _targets(statement):
                return literal(statement.value, module)
        imported = _imports(module).get(node.id)
        if imported is None:
            raise NotLiteral(node.id)
        if imported[0] == metrics.__name__:  # this module is imported without PyTorch
            return getattr(metrics, imported[1])
        return literal(ast.Name(imported[1]), imported[0])
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError) as error:
        raise NotLiteral(ast.unparse(node)) from error


@cache
def tree(module: str) -> ast.Module:
    path = ROOT.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    try:
        return ast.parse(file.read_bytes())
    except (OSError, SyntaxError) as error:
        raise NotLiteral(module) from error


@cache
def _imports(module: str) -> dict[str, tuple[str, str]]:
    """Return the names that a module imports from lengthwise: {name: (module, name in that module)}."""
    imported = {}
    for node in tree(module).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lengthwise") and not node.level:
            for alias in node.names:
                imported[alias.asname or alias.name] = (node.module or "", alias.name)
    return imported


def resolved(module: str, name: ast.expr) -> SourceClass | None:
    """Return the class that a name means in a module; None for one from outside of lengthwise."""
    if isinstance(name, ast.Subscript):
        name = name.value
    return find(module, name.id) if isinstance(name, ast.Name) else None


def find(module: str, name: str) -> SourceClass | None:
    for node in tree(module).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return SourceClass(module, node)
    imported = _imports(module).get(name)
    return find(*imported) if imported is not None else None


def listed(package: str, registry: str) -> list[SourceClass]:
    """Return the classes of a list, `ENCODINGS` of lengthwise.encodings for example, in its order."""
    for node in tree(package).body:
        if isinstance(node, ast.Assign) and registry in _targets(node):
            call = node.value
            if isinstance(call, ast.Call) and len(call.args) > 1 and isinstance(call.args[1], ast.Tuple):
                classes = [resolved(package, name) for name in call.args[1].elts]
                if None not in classes:
                    return [each for each in classes if each is not None]
    raise NotLiteral(registry)
