"""A hash of the source of a class from outside the package, and of what that source refers to."""

import ast
import builtins
import hashlib
import json
import symtable
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lengthwise.values import ConfigError

OWN = "lengthwise"  # never followed: what it computes is counted by versions
INSTALLED = {"site-packages", "dist-packages"}
COMPILED = (".pyc", ".so", ".pyd")
DYNAMIC = {"globals", "eval", "exec", "__import__", "importlib", "import_module"}  # names that can reach any other
INERT = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assert)

Path_ = tuple[str, ...]  # attributes after a name: ("nn", "Linear") of torch.nn.Linear


def code_hash(make: type) -> str:
    """Return 16 hex digits that change when the source of a class changes.

    The hash covers the class statement and everything that it names, directly or through others, in its own file or in modules
    of the same folder or package: base classes, decorators, functions, constants, and statements at the top level of a module
    that act on one of these (`Windowed.size = 3`). Comments, blank lines, docstrings, other definitions of the same files,
    `if __name__ == "__main__"` blocks, lengthwise and installed libraries do not count. It is computed from a normalised syntax
    tree, so it is the same in every process, on every machine that has the same files, and on every supported Python.

    Where names cannot be followed, everything at the top level of that module counts: for a class defined inside a function or
    made by a call, for code that uses `globals`, `eval`, `exec` or `importlib`, and for a module that is itself passed on as a
    value. Not covered is what code reads when it runs (files, environment variables, values assigned from elsewhere).

    Raises `ConfigError` where there is no source, as for a class typed into a notebook.
    """
    module = sys.modules.get(make.__module__)
    file = getattr(module, "__file__", None)
    if file is None or file.endswith(COMPILED) or not Path(file).is_file():
        raise ConfigError(
            f"{make.__name__} has no source file, so changes of its code cannot be noticed; define it in a Python file, or give "
            "the class a version (version = 1) and raise it with every change"
        )
    package = getattr(module, "__package__", None)
    sources = _Sources.around(Path(file).resolve(), package.split(".") if package else [])
    walk = _Walk(sources)
    walk.take_class(sources.own, make.__qualname__)
    text = json.dumps([walk.parts(), _own_bases(make)], ensure_ascii=True, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _own_bases(make: type) -> dict[str, int]:
    """The versions of the lengthwise classes that a class derives from."""
    return {
        base.__name__: base.version
        for base in make.__mro__
        if base.__module__.startswith(f"{OWN}.") and hasattr(base, "version")
    }


# ---- modules ------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Module:
    """A source file and its top-level statements."""

    name: str  # dotted, from the folder that all names start in
    is_package: bool
    statements: list[ast.stmt]
    bindings: dict[str, list[ast.stmt]] = field(default_factory=dict)
    stars: list[ast.ImportFrom] = field(default_factory=list)
    taken: set[int] = field(default_factory=set)  # indices of the statements that count

    @classmethod
    def read(cls, name: str, file: Path) -> "_Module":
        tree = ast.Module([], []) if file.is_dir() else _parsed(file)
        module = cls(
            name, file.is_dir() or file.name == "__init__.py", [s for s in tree.body if not _only_as_script(s)]
        )
        for statement in module.statements:
            for bound in _bound(statement):
                module.bindings.setdefault(bound, []).append(statement)
            module.stars += [n for n in ast.walk(statement) if isinstance(n, ast.ImportFrom) and n.names[0].name == "*"]
        return module

    def absolute(self, node: ast.ImportFrom) -> str:
        """The full name of the module that a statement imports from."""
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        package = parts[: len(parts) - node.level + (1 if self.is_package else 0)]
        return ".".join([*package, *([node.module] if node.module else [])])


def _parsed(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read as Python any more ({error}); mend it, and repeat") from error


def _only_as_script(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.If)
        and isinstance(statement.test, ast.Compare)
        and isinstance(statement.test.left, ast.Name)
        and statement.test.left.id == "__name__"
    )


@dataclass
class _Sources:
    """The modules that may be followed: those under one folder, of an installed package that package alone."""

    folder: Path
    only: str | None
    own: _Module
    modules: dict[str, _Module | None] = field(default_factory=dict)

    @classmethod
    def around(cls, file: Path, package: list[str]) -> "_Sources":
        above = [parent.name for parent in file.parents][: len(package)]
        if above != package[::-1]:  # a name that the folders do not have, such as that of a module run by a tool
            package = []
        folder = file.parents[len(package)]
        names = [*package, *([] if file.name == "__init__.py" else [file.stem])]
        name = ".".join(names) or file.parent.name
        only = name.partition(".")[0] if INSTALLED & set(folder.parts) else None
        own = _Module.read(name, file)
        return cls(folder, only, own, {name: own})

    def find(self, name: str) -> _Module | None:
        """The module of a full name; None where it is not one of these."""
        if name not in self.modules:
            file = self._file(name)
            self.modules[name] = None if file is None else _Module.read(name, file)
        return self.modules[name]

    def _file(self, name: str) -> Path | None:
        """Its file, or its folder where that has no `__init__.py`; None where there is neither."""
        top, *_ = name.split(".")
        if not all(part.isidentifier() for part in name.split(".")) or top == OWN or self.only not in (None, top):
            return None
        place = self.folder.joinpath(*name.split("."))
        loaded = getattr(sys.modules.get(top), "__file__", None)
        if loaded is not None and not Path(loaded).resolve().is_relative_to(self.folder):
            return None  # such a file lies here too, but another one was imported
        for file in (place / "__init__.py", place.with_name(f"{place.name}.py")):
            if file.is_file():
                return file
        return place if place.is_dir() and top in sys.modules else None


# ---- names in a statement -----------------------------------------------------------------------------------------


def _tables(statement: ast.stmt) -> Iterator[symtable.SymbolTable]:
    source = ast.unparse(ast.Module([statement], []))
    waiting = [symtable.symtable(source, "<source>", "exec")]
    while waiting:
        table = waiting.pop()
        yield table
        waiting += table.get_children()


def _bound(statement: ast.stmt) -> set[str]:
    """The names that a top-level statement gives the module."""
    top = next(_tables(statement))
    return {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned() or symbol.is_imported()}


def _referenced(statement: ast.stmt) -> set[str]:
    """The names of the module that a statement uses, wherever inside."""
    top, *inner = _tables(statement)
    used = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_referenced()}
    return used | {s.get_name() for table in inner for s in table.get_symbols() if s.is_global()}


class _Uses(ast.NodeVisitor):
    """How each name is used: the attributes that follow it, () where the thing itself is."""

    def __init__(self, statement: ast.stmt):
        self.paths: dict[str, set[Path_]] = {}
        self.visit(statement)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        path: list[str] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            path.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            self.paths.setdefault(inner.id, set()).add(tuple(reversed(path)))
        else:
            self.visit(inner)

    def visit_Name(self, node: ast.Name) -> None:
        self.paths.setdefault(node.id, set()).add(())


def _acts(statement: ast.stmt) -> bool:
    """Whether a top-level statement may do something to what others define, and does not only bind names itself."""
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return any(isinstance(node, (ast.Attribute, ast.Subscript)) for t in targets for node in ast.walk(t))
    return not isinstance(statement, INERT)


# ---- following them -----------------------------------------------------------------------------------------------


class _Walk:
    """Collects the statements that a class depends on."""

    def __init__(self, sources: _Sources):
        self.sources = sources
        self.imports: set[str] = set()  # what each module calls by which name
        self.followed: set[tuple[str, str, frozenset[Path_]]] = set()

    def take_class(self, module: _Module, qualname: str) -> None:
        name = qualname.partition(".")[0]
        if "<locals>" in qualname or name not in module.bindings:
            self.take_all(module)
        else:
            self.follow(module, name, {()})
        while self._take_acting():
            pass

    def parts(self) -> list[Any]:
        """What is hashed: the statements of each module in their order; sorted by module."""
        found = []
        for module in self.sources.modules.values():
            if module is not None and module.taken:
                found.append([self.label(module), [_plain(module.statements[n]) for n in sorted(module.taken)]])
        return [sorted(found, key=lambda part: part[0]), sorted(self.imports)]

    def label(self, module: _Module) -> str:
        """A module's name; of the class's own module none, so that its file may be renamed."""
        return "" if module is self.sources.own else module.name

    def take(self, module: _Module, statement: ast.stmt) -> None:
        place = module.statements.index(statement)
        if place in module.taken:
            return
        module.taken.add(place)
        names, paths = _referenced(statement), _Uses(statement).paths
        if names & DYNAMIC:
            self.take_all(module)
        for name in sorted(names):
            self.follow(module, name, paths.get(name, {()}))
        for node in ast.walk(statement):  # imports inside functions too
            for alias in node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else ():
                bound = alias.asname or alias.name.partition(".")[0]
                self.follow_import(module, node, alias, paths.get(bound, {()}))  # type: ignore[arg-type]

    def take_all(self, module: _Module) -> None:
        for statement in module.statements:
            self.take(module, statement)

    def follow(self, module: _Module, name: str, paths: set[Path_]) -> bool:
        """Take what gives a module this name; whether anything may."""
        if (step := (module.name, name, frozenset(paths))) in self.followed:
            return name in module.bindings
        self.followed.add(step)
        for statement in module.bindings.get(name, ()):
            if not isinstance(statement, (ast.Import, ast.ImportFrom)):
                self.take(module, statement)
                continue
            for alias in statement.names:
                if (alias.asname or alias.name.partition(".")[0]) == name:
                    self.follow_import(module, statement, alias, paths)
        if name in module.bindings or hasattr(builtins, name) or (name.startswith("__") and name.endswith("__")):
            return True
        found = False
        for star in module.stars:  # the name may be of any of them
            self.imports.add(f"{self.label(module)}: {module.absolute(star)}.*")
            source = self.sources.find(module.absolute(star))
            found = source is None or self.follow(source, name, paths) or found
        if not found:
            self.take_all(module)  # it is there when the code runs, and nothing says where from
        return found

    def follow_import(
        self, module: _Module, node: ast.Import | ast.ImportFrom, alias: ast.alias, paths: set[Path_]
    ) -> None:
        if isinstance(node, ast.Import):
            bound = alias.asname or alias.name.partition(".")[0]
            self.imports.add(f"{self.label(module)}: {alias.name} as {bound}")
            target = self.sources.find(alias.name if alias.asname else bound)
            self.follow_paths(target, paths)
        elif alias.name != "*":
            base = module.absolute(node)
            self.imports.add(f"{self.label(module)}: {base}.{alias.name} as {alias.asname or alias.name}")
            source = self.sources.find(base)
            self.follow_paths(source, {(alias.name, *path) for path in paths})

    def follow_paths(self, module: _Module | None, paths: set[Path_]) -> None:
        if module is not None:
            for path in sorted(paths):
                self.follow_path(module, path)

    def follow_path(self, module: _Module, path: Path_) -> None:
        """Take what `module.a.b` refers to."""
        if path and path[0] in module.bindings:
            self.follow(module, path[0], {path[1:]})
        elif path and (inner := self.sources.find(f"{module.name}.{path[0]}")) is not None:
            self.follow_path(inner, path[1:])
        elif path and module.stars:
            self.follow(module, path[0], {path[1:]})
        else:
            self.take_all(module)

    def _take_acting(self) -> bool:
        """Take statements that act on what was taken; whether there were any."""
        before = self._count()
        for module in [m for m in self.sources.modules.values() if m is not None]:
            defined = set().union(*(_bound(module.statements[n]) for n in module.taken))
            defined |= {name for name in module.bindings if self._is_module(module, name)}
            for n, statement in enumerate(module.statements):
                if n not in module.taken and _acts(statement) and _Uses(statement).paths.keys() & defined:
                    self.take(module, statement)
        return self._count() > before

    def _is_module(self, module: _Module, name: str) -> bool:
        """Whether a name is one of the modules that are followed, which a statement may change from outside."""
        statements = [s for s in module.bindings[name] if isinstance(s, ast.Import)]
        aliases = [a for s in statements for a in s.names if (a.asname or a.name.partition(".")[0]) == name]
        return any((found := self.sources.modules.get(a.name)) is not None and found.taken for a in aliases)

    def _count(self) -> int:
        return sum(len(module.taken) for module in self.sources.modules.values() if module is not None)


# ---- the normalised syntax tree -------------------------------------------------------------------------------------


def _plain(node: Any) -> Any:
    """A syntax tree as JSON has it, without places, docstrings, and what differs between versions of Python."""
    if isinstance(node, ast.Constant):
        value = node.value
        return [type(value).__name__, hex(value) if type(value) is int else repr(value)]
    if isinstance(node, ast.JoinedStr):  # some versions of Python put empty texts between its parts
        return ["JoinedStr", [_plain(part) for part in node.values if getattr(part, "value", None) != ""]]
    if isinstance(node, ast.AST):
        fields = {name: _plain(value) for name, value in ast.iter_fields(node) if name not in ("ctx", "type_comment")}
        return [type(node).__name__, {name: value for name, value in fields.items() if value not in (None, [])}]
    if isinstance(node, list):
        return [_plain(item) for item in node if not _says_nothing(item)]
    return node


def _says_nothing(node: Any) -> bool:
    """`pass`, docstrings, and other constants that stand alone."""
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
