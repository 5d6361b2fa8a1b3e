"""A hash of the source of a class from outside the package, and of what that source refers to."""

import ast
import builtins
import hashlib
import json
import symtable
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lengthwise.values import ConfigError

OWN = "lengthwise"  # never followed, because its classes have versions
INSTALLED = {"site-packages", "dist-packages"}
COMPILED = (".pyc", ".so", ".pyd")
DYNAMIC = {"globals", "eval", "exec", "__import__", "importlib", "import_module"}  # names that give access to any other
CHANGING = {  # methods that change their object, as do those of tensors that end with an underscore
    "add", "append", "appendleft", "clear", "discard", "extend", "extendleft", "insert", "pop", "popitem", "popleft", "register",
    "remove", "reverse", "rotate", "setdefault", "sort", "update",
}  # fmt: skip

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Import = ast.Import | ast.ImportFrom
Path_ = tuple[str, ...]  # attributes after a name: ("nn", "Linear") of torch.nn.Linear


def code_hash(make: type) -> str:
    """Return 16 hex digits that change when the source of a class changes.

    The hash covers the class statement and everything that it names, directly or indirectly, in its own file or in modules of the
    same folder or package: base classes, decorators, functions, constants. It also covers the top-level statements of these
    modules, and of all modules of the folder that they import, if they may change one of those: `Windowed.size = 3`, a call of a
    function that fills a table, a function that a decorator adds to a table, a class that `__init_subclass__`, a metaclass or
    `__subclasses__` finds. In unclear cases the statements are included. Comments, blank lines, docstrings, other definitions of
    the files, `if __name__ == "__main__"` blocks, lengthwise and installed libraries are not included. The hash is computed from a
    normalised syntax tree, so it is the same in every process, on every machine with the same files, and with every supported
    Python.

    If names cannot be followed, all top-level statements of that module are included: for a class that is defined inside a function
    or created by a call, for code that uses `globals`, `eval`, `exec` or `importlib`, and for a module that is passed as a value.

    Not covered: files and environment variables that code reads at run time; modules in folders that code adds to `sys.path` at run
    time; modules that are not reached by such imports, such as a script that imports the class and then changes it; changes by
    functions that are called later.

    Raise `ConfigError` if there is no source, as for a class defined in a notebook.
    """
    module = sys.modules.get(make.__module__)
    file = getattr(module, "__file__", None)
    if file is None or file.endswith(COMPILED) or not Path(file).is_file():
        raise ConfigError(
            f"{make.__name__} has no source file, so changes of its code cannot be detected; define it in a Python file, or give "
            "the class a version (version = 1) and raise it with every change"
        )
    package = getattr(module, "__package__", None)
    try:
        sources = _Sources.around(Path(file).resolve(), package.split(".") if package else [])
        walk = _Walk(sources)
        walk.take_class(sources.own, make.__qualname__)
        text = json.dumps([walk.parts(), own_bases(make)], ensure_ascii=True, sort_keys=True)
    except RecursionError:
        raise ConfigError(
            f"the source of {make.__name__}, or of code that it uses, has an expression or a chain of elif that is too long to "
            "hash; split it, or give the class a version (version = 1) and raise it with every change"
        ) from None
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def own_bases(make: type) -> dict[str, int]:
    """Return the versions of the lengthwise classes that a class derives from."""
    return {
        base.__name__: base.version
        for base in make.__mro__
        if base.__module__.startswith(f"{OWN}.") and hasattr(base, "version")
    }


# ---- modules ------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Module:
    """A source file and its top-level statements."""

    name: str  # dotted, relative to the folder in which all names start
    is_package: bool
    statements: list[ast.stmt]
    bindings: dict[str, list[ast.stmt]] = field(default_factory=dict)
    stars: list[ast.ImportFrom] = field(default_factory=list)

    @classmethod
    def read(cls, name: str, file: Path) -> "_Module":
        tree = ast.Module([], []) if file.is_dir() else _parsed(file)
        module = cls(name, file.is_dir() or file.name == "__init__.py", [s for t in tree.body for s in _as_imported(t)])
        for statement in module.statements:
            for bound in _bound(statement):
                module.bindings.setdefault(bound, []).append(statement)
            module.stars += [n for n in ast.walk(statement) if isinstance(n, ast.ImportFrom) and n.names[0].name == "*"]
        return module

    def absolute(self, node: ast.ImportFrom) -> str:
        """Return the full name of the module that a statement imports from."""
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        package = parts[: len(parts) - node.level + (1 if self.is_package else 0)]
        return ".".join([*package, *([node.module] if node.module else [])])

    def imported(self) -> list[str]:
        """Return the full names that are imported with the module, in order. Some of them may not be modules."""
        names: list[str] = []
        for node in (node for statement in self.statements for node in _run_at_once(statement)):
            if isinstance(node, ast.Import):
                names += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = self.absolute(node)
                names += [base, *(f"{base}.{alias.name}" for alias in node.names if alias.name != "*")]
        parts = [name.split(".") for name in names]  # a package is imported before what is in it
        return list(dict.fromkeys(".".join(part[:n]) for part in parts for n in range(1, len(part) + 1)))


def _parsed(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        raise ConfigError(f"{file} is no longer valid Python ({error}); fix it, and run the command again") from error


def _as_imported(statement: ast.stmt) -> list[ast.stmt]:
    """Return the statements that run when the module is imported: for `if __name__ == "__main__"`, the else branch."""
    if isinstance(statement, ast.If) and ast.unparse(statement.test) in _AS_SCRIPT:
        return statement.orelse
    return [statement]


_AS_SCRIPT = ("__name__ == '__main__'", "'__main__' == __name__")


@dataclass
class _Sources:
    """The modules that may be followed: those in the class's folder, or in the packages that contain it. For an installed package,
    only those of that package."""

    folder: Path
    only: str | None
    own: _Module
    modules: dict[str, _Module | None] = field(default_factory=dict)

    @classmethod
    def around(cls, file: Path, package: list[str]) -> "_Sources":
        above = [parent.name for parent in file.parents][: len(package)]
        if above != package[::-1]:  # the package's name differs from the folders, as for a module run by a tool
            package = []
        folder = file.parents[len(package)]
        names = [*package, *([] if file.name == "__init__.py" else [file.stem])]
        name = ".".join(names) or file.parent.name
        only = name.partition(".")[0] if INSTALLED & set(folder.parts) else None
        own = _Module.read(name, file)
        return cls(folder, only, own, {name: own})

    def find(self, name: str) -> _Module | None:
        """Return the module with a full name, or None if it is not one of these."""
        if name not in self.modules:
            file = self._file(name)
            self.modules[name] = None if file is None else _Module.read(name, file)
        return self.modules[name]

    def imported(self) -> list[_Module]:
        """Return all known modules, and all that they import, directly or indirectly."""
        waiting = [module for module in self.modules.values() if module is not None]
        found = dict.fromkeys(waiting)
        while waiting:
            for name in waiting.pop().imported():
                if (module := self.find(name)) is not None and module not in found:
                    found[module] = None
                    waiting.append(module)
        return list(found)

    def _file(self, name: str) -> Path | None:
        """Return the module's file, or its folder if that has no `__init__.py`, or None if there is neither."""
        top, *_ = name.split(".")
        if not all(part.isidentifier() for part in name.split(".")) or top == OWN or self.only not in (None, top):
            return None
        loaded = getattr(sys.modules.get(top), "__file__", None)
        for folder in self._roots():
            if loaded is not None and not Path(loaded).resolve().is_relative_to(folder):
                continue  # a module of this name may be here too, but another one was imported
            path = folder.joinpath(*name.split("."))
            for file in (path / "__init__.py", path.with_name(f"{path.name}.py")):
                if file.is_file():
                    return file
            if path.is_dir():
                return path
        return None

    def _roots(self) -> Iterator[Path]:
        """Yield the folders in which names may start: this one, and if it belongs to an unnamed package, the package's parent."""
        yield self.folder
        above = self.folder
        while (above / "__init__.py").is_file():
            above = above.parent
        if above != self.folder:
            yield above


# ---- names in a statement -----------------------------------------------------------------------------------------


def _tables(statement: ast.stmt) -> Iterator[symtable.SymbolTable]:
    source = ast.unparse(ast.Module([statement], []))
    waiting = [symtable.symtable(source, "<source>", "exec")]
    while waiting:
        table = waiting.pop()
        yield table
        waiting += table.get_children()


def _bound(statement: ast.stmt) -> set[str]:
    """Return the names that a top-level statement defines."""
    top = next(_tables(statement))
    return {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned() or symbol.is_imported()}


def _referenced(statement: ast.stmt) -> set[str]:
    """Return the module-level names that a statement uses, at any depth."""
    top, *inner = _tables(statement)
    used = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_referenced()}
    return used | {s.get_name() for table in inner for s in table.get_symbols() if s.is_global()}


class _Uses(ast.NodeVisitor):
    """Collects how each name is used: the paths of attributes after it, () if the object itself is used."""

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


def _reaches_any(names: set[str], paths: Mapping[str, set[Path_]]) -> bool:
    """Return whether code can access names that do not occur in it."""
    return bool(names & DYNAMIC) or any(path[:1] == ("modules",) for path in paths.get("sys", ()))


def _run_at_once(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a statement that run when its module is imported, which excludes the bodies of functions."""
    yield node
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, _Function | ast.Lambda):
        body = node.body if isinstance(node.body, list) else [node.body]
        children = [child for child in children if child not in body]
    for child in children:
        yield from _run_at_once(child)


def _changes(nodes: Iterable[ast.AST]) -> bool:
    """Return whether code may change objects that it did not create, other than attributes of `self`."""
    for node in nodes:
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            if _root(node) != "self":
                return True
        elif isinstance(node, ast.Global):
            return True
        elif isinstance(node, ast.Call):
            if _calls_changing(node) or (isinstance(node.func, ast.Name) and node.func.id in {"setattr", "delattr"}):
                return True
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _root(node.value.func) != "super":
            return True
    return False


def _calls_changing(node: ast.AST) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    if not isinstance(called, ast.Attribute) or _root(called) == "self":
        return False
    return called.attr in CHANGING or (called.attr.endswith("_") and not called.attr.startswith("_"))


def _root(node: ast.AST) -> str | None:
    """Return the first name of an expression: `a` for `a.b[0].c()`."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _only_binds(statement: ast.stmt) -> bool:
    """Return whether the only purpose of a statement is to define names."""
    return isinstance(statement, _Function | ast.ClassDef | _Import | ast.Assign | ast.AnnAssign | ast.Assert)


def _decorators(nodes: Iterable[ast.AST]) -> list[ast.expr]:
    return [d for node in nodes if isinstance(node, _Function | ast.ClassDef) for d in node.decorator_list]


# ---- following them -----------------------------------------------------------------------------------------------


class _Walk:
    """Collects the statements that a class depends on."""

    def __init__(self, sources: _Sources, deep: bool = True):
        self.sources, self.deep = sources, deep  # if not deep: only direct references
        self.taken: dict[_Module, set[int]] = {}  # indices of the included statements
        self.imports: set[str] = set()  # imported objects and their names in each module
        self.acting: set[str] = set()  # modules that change others when they are imported
        self.followed: set[tuple[str, str, frozenset[Path_]]] = set()

    def take_class(self, module: _Module, qualname: str) -> None:
        name = qualname.partition(".")[0]
        if "<locals>" in qualname or name not in module.bindings:
            self.take_all(module)
        else:
            self.follow(module, name, {()})
        reach = _Reach(self.sources)
        while self._take_acting(reach):
            pass

    def parts(self) -> list[Any]:
        """Return the data to hash: the statements of each module in order, sorted by module."""
        found = []
        for module in self.sources.modules.values():
            if module is not None and self.taken.get(module):
                found.append([self.label(module), [_plain(module.statements[n]) for n in sorted(self.taken[module])]])
        order = set()
        for module in self.sources.imported() if self.acting else ():
            if names := [name for name in module.imported() if name in self.acting]:
                order.add(f"{self.label(module)}: runs {', '.join(names)}")
        return [sorted(found, key=lambda part: part[0]), sorted(self.imports | order)]

    def label(self, module: _Module) -> str:
        """Return a module's name, but "" for the class's own module, so that its file may be renamed."""
        return "" if module is self.sources.own else module.name

    def take(self, module: _Module, statement: ast.stmt) -> None:
        place = module.statements.index(statement)
        taken = self.taken.setdefault(module, set())
        if place in taken:
            return
        taken.add(place)
        if not self.deep:
            return
        names, paths = _referenced(statement), _Uses(statement).paths
        if _reaches_any(names, paths):
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
        """Include the statements that define a name in a module. Return whether the name may be defined."""
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
        if name in module.bindings or (name.startswith("__") and name.endswith("__")):
            return True
        found = hasattr(builtins, name)
        for star in module.stars:  # the name may come from any of them
            self.imports.add(f"{self.label(module)}: {module.absolute(star)}.*")
            source = self.sources.find(module.absolute(star))
            found = source is None or self.follow(source, name, paths) or found
        if not found:
            self.take_all(module)  # the name exists at run time, but its origin is unknown
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
        """Include the statements that `module.a.b` refers to."""
        if path and path[0] in module.bindings:
            self.follow(module, path[0], {path[1:]})
        elif path and (inner := self.sources.find(f"{module.name}.{path[0]}")) is not None:
            self.follow_path(inner, path[1:])
        elif path and module.stars:
            self.follow(module, path[0], {path[1:]})
        else:
            self.take_all(module)

    def _take_acting(self, reach: "_Reach") -> bool:
        """Include statements that change included ones. Return whether there were any."""
        found = [
            (module, statement)
            for module in self.sources.imported()
            for n, statement in enumerate(module.statements)
            if n not in self.taken.get(module, ()) and reach.acts(module, statement, self.statements())
        ]
        for module, statement in found:
            self.take(module, statement)
            self.acting.add(module.name)
        return bool(found)

    def statements(self) -> set[ast.stmt]:
        return {module.statements[n] for module, taken in self.taken.items() for n in taken}


class _Reach:
    """Determines which statements a top-level statement may change when its module is imported."""

    def __init__(self, sources: _Sources):
        self.sources = sources
        self.known: dict[tuple[bool, tuple[ast.AST, ...]], set[ast.stmt]] = {}
        self.home: dict[ast.stmt, _Module] = {}

    def acts(self, module: _Module, statement: ast.stmt, taken: set[ast.stmt]) -> bool:
        """Return whether a statement may change an included one, rather than only defining names itself."""
        if isinstance(statement, ast.Import | ast.ImportFrom):
            return False
        nodes = list(_run_at_once(statement))
        if self._is_found_as_subclass(module, nodes, taken):
            return True
        if self._changes(module, statement, nodes):
            return bool(self.of(module, statement) & taken)
        if _only_binds(statement) and not any(_calls_changing(node) for node in nodes):
            return False
        data = {s for s in taken if not isinstance(s, _Function | ast.ClassDef)}
        return bool(self.of(module, statement) & data or self.of(module, statement, deep=False) & taken)

    def of(self, module: _Module, *nodes: ast.AST, deep: bool = True) -> set[ast.stmt]:
        """Return the statements that some code refers to; if `deep`, also indirectly."""
        if (deep, nodes) not in self.known:
            walk = _Walk(self.sources, deep)
            for node in nodes:
                statement = node if isinstance(node, ast.stmt) else ast.Expr(node)  # type: ignore[arg-type]
                names, paths = _referenced(statement), _Uses(statement).paths
                if _reaches_any(names, paths):
                    walk.take_all(module)
                for name in sorted(names):
                    walk.follow(module, name, paths.get(name, {()}))
            self.known[deep, nodes] = walk.statements()
            self.home.update((s, m) for m in walk.taken for s in m.statements)
        return self.known[deep, nodes]

    def _changes(self, module: _Module, statement: ast.stmt, nodes: list[ast.AST]) -> bool:
        """Return whether code that runs on import changes anything, also by called functions, decorators or base classes."""
        if _changes(n for n in nodes if not isinstance(n, ast.Expr) and not _calls_changing(n)):
            return True
        if self.of(module, *_decorators(nodes)):
            return True
        called = (s for s in self._called(module, statement, nodes) if isinstance(s, _Function | ast.ClassDef))
        return any(_changes(ast.walk(s)) for s in called) or any(self._notices(module, node) for node in nodes)

    def _called(self, module: _Module, statement: ast.stmt, nodes: Iterable[ast.AST]) -> set[ast.stmt]:
        """Return the statements that define called functions, and those that they call in turn."""
        found: set[ast.stmt] = set()
        waiting = [(module, statement, nodes)]
        while waiting:
            module, statement, nodes = waiting.pop()
            names, paths = _referenced(statement), _Uses(statement).paths
            called = {_root(node.func) or "" for node in nodes if isinstance(node, ast.Call)}
            # Data may be a table of functions.
            is_data = bool(found) and not isinstance(statement, _Function | ast.ClassDef)
            for name in sorted(names if is_data else names & called):
                walk = _Walk(self.sources, deep=False)
                walk.follow(module, name, paths.get(name, {()}))
                for home, places in walk.taken.items():
                    new = {home.statements[n] for n in places} - found
                    new = {s for s in new if name in called or not isinstance(s, ast.ClassDef)}
                    found |= new
                    waiting += [(home, s, list(ast.walk(s))) for s in new]
        return found

    def _notices(self, module: _Module, node: ast.AST) -> bool:
        """Return whether a class statement runs code of a base class or a metaclass."""
        if not isinstance(node, ast.ClassDef):
            return False
        if self.of(module, *(k.value for k in node.keywords if k.arg == "metaclass")):
            return True
        bases = [s for s in self.of(module, *node.bases) if isinstance(s, ast.ClassDef)]
        return any(
            any(isinstance(part, _Function) and part.name == "__init_subclass__" for part in base.body)
            or self.of(self.home[base], *(k.value for k in base.keywords if k.arg == "metaclass"))
            for base in bases
        )

    def _is_found_as_subclass(self, module: _Module, nodes: list[ast.AST], taken: set[ast.stmt]) -> bool:
        """Return whether the nodes contain a class that `__subclasses__` finds."""
        bases = [base for node in nodes if isinstance(node, ast.ClassDef) for base in node.bases]
        return bool(self.of(module, *bases) & taken) and any(
            getattr(node, "attr", None) == "__subclasses__" for statement in taken for node in ast.walk(statement)
        )


# ---- the normalised syntax tree -------------------------------------------------------------------------------------


def _plain(node: Any) -> Any:
    """Return a syntax tree as JSON data, without line numbers, docstrings, and differences between versions of Python."""
    if isinstance(node, ast.Constant):
        value = node.value
        return [type(value).__name__, hex(value) if type(value) is int else repr(value)]
    if isinstance(node, ast.JoinedStr):  # some versions of Python insert empty strings between its parts
        return ["JoinedStr", [_plain(part) for part in node.values if getattr(part, "value", None) != ""]]
    if isinstance(node, ast.AST):
        fields = {name: _plain(value) for name, value in ast.iter_fields(node) if name not in ("ctx", "type_comment")}
        return [type(node).__name__, {name: value for name, value in fields.items() if value not in (None, [])}]
    if isinstance(node, list):
        return [_plain(item) for item in node if not _has_no_effect(item)]
    return node


def _has_no_effect(node: Any) -> bool:
    """Return whether a statement is `pass`, a docstring, or another constant expression."""
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
