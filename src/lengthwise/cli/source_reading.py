"""Read what `lengthwise list` shows about our own classes from their source, because importing PyTorch takes a second or more.

Only literals and metrics are read: docstrings, defaults of keyword-only arguments, and class attributes. Where a default is
anything else, the reader gives up and the caller imports the module. A test compares every class with what importing it says.
"""

import ast
import inspect
from collections.abc import Iterator
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
        """The keyword-only arguments of `__init__` with a default, and the default; fields of a dataclass are such arguments.

        `**arguments: Unpack[Names]` stands for those arguments of the base class that the `TypedDict` Names has.
        """
        classes = self.linearization()
        for place, of_class in enumerate(classes):
            for node in of_class.definition.body:
                if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                    pairs = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
                    own = {a.arg: literal(default, of_class.module) for a, default in pairs if default is not None}
                    if node.args.kwarg is None:
                        return own
                    names = {*_unpacked(of_class.module, node.args.kwarg.annotation), *own}
                    return {k: v for k, v in classes[place + 1].settings.items() if k in names} | own
            if of_class._is_dataclass():
                return {k: v for base in reversed(classes[place:]) if base._is_dataclass() for k, v in base._fields()}
        return {}

    def _is_dataclass(self) -> bool:
        return any(ast.unparse(decorator).startswith("dataclass") for decorator in self.definition.decorator_list)

    def _fields(self) -> Iterator[tuple[str, Any]]:
        for node in self.definition.body:
            if (
                isinstance(node, ast.AnnAssign)
                and node.value
                and not ast.unparse(node.annotation).startswith("ClassVar")
            ):
                yield _targets(node)[0], literal(node.value, self.module)

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


def _unpacked(module: str, annotation: ast.expr | None) -> list[str]:
    """Return the names of the TypedDict in `Unpack[TypedDict]`."""
    if not isinstance(annotation, ast.Subscript):
        raise NotLiteral("arguments with any name")
    names = resolved(module, annotation.slice)
    if names is None:
        raise NotLiteral(ast.unparse(annotation))
    fields = [
        node for each in names.linearization() for node in each.definition.body if isinstance(node, ast.AnnAssign)
    ]
    return [name for node in fields for name in _targets(node)]


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
