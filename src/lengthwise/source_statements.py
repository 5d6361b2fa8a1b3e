"""The top-level statements of a Python file: what they say without formatting, and which of them only stand beside a class."""

import ast
import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from lengthwise.values import folded

BUILDERS = {  # they build studies, and change nothing
    "lengthwise.studies": {"Study", "encoding", "grid", "task"},
    "lengthwise.config": {"Choice", "Curriculum", "EvaluationConfig", "ModelConfig", "Run", "TrainingConfig", "choose"},
}  # fmt: skip
BUILTINS = {"dict", "enumerate", "float", "int", "len", "list", "print", "range", "round", "set", "str", "sum", "tuple"}
DECORATORS = {"classmethod", "property", "staticmethod"}
LISTS = {"ENCODINGS", "POSITION_SCHEMES", "Registry", "TASKS"}  # through them, code finds classes that it does not name
VIEWS = {"items", "keys", "values"}  # methods without arguments
AS_SCRIPT = ("__name__ == '__main__'", "'__main__' == __name__")

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Plain = (ast.Assign, ast.AnnAssign, ast.Assert, ast.Break, ast.ClassDef, ast.Continue, ast.Expr, ast.For, ast.FunctionDef,
          ast.AsyncFunctionDef, ast.If, ast.Pass, ast.Raise, ast.Return, ast.While)  # fmt: skip
_Named = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


def parse(source: bytes) -> list[ast.stmt]:
    """The statements of a file that run when it is imported; of `if __name__ == "__main__"` the else branch.

    An import of several names from lengthwise becomes one statement per name. Raises `SyntaxError`, `ValueError`,
    `RecursionError` or `MemoryError` for what is not Python.
    """
    return [part for statement in ast.parse(source).body for part in _as_imported(statement)]


def _as_imported(statement: ast.stmt) -> list[ast.stmt]:
    if isinstance(statement, ast.If) and plain([statement.test]) in _scripts():
        return [part for inner in statement.orelse for part in _as_imported(inner)]
    if _from_lengthwise(statement):
        return [ast.ImportFrom(statement.module, [alias], 0) for alias in statement.names]  # type: ignore[attr-defined]
    return [statement]


@functools.cache
def _scripts() -> list[str]:
    return [plain([ast.parse(test, mode="eval").body]) for test in AS_SCRIPT]


def _from_lengthwise(statement: ast.stmt) -> bool:
    is_import = isinstance(statement, ast.ImportFrom) and statement.level == 0 and statement.names[0].name != "*"
    return is_import and f"{statement.module}.".startswith("lengthwise.")  # type: ignore[attr-defined]


# ---- the normalised syntax tree -----------------------------------------------------------------------------------


def plain(nodes: Sequence[ast.AST], docstrings: bool = False) -> str:
    """Return code as text, without places, docstrings (unless `docstrings`), and what differs between versions of Python."""
    words: list[str] = []
    waiting: list[object] = [list(nodes)]  # a stack, because expressions may be nested deeply
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Constant):
            value = node.value
            words.append(f"{type(value).__name__} {hex(value) if type(value) is int else ascii(value)}")
        elif isinstance(node, ast.AST):
            fields = [(name, _value(node, name)) for name in node._fields if name not in ("ctx", "type_comment")]
            fields = [(name, value) for name, value in fields if value not in (None, [])]
            words.append(f"{type(node).__name__} {len(fields)}")
            waiting += [part for name, value in reversed(fields) for part in (value, name)]
        elif isinstance(node, list):
            items = [item for item in node if docstrings or not _says_nothing(item)]
            words.append(f"list {len(items)}")
            waiting += reversed(items)
        else:
            words.append(ascii(node))
    return "\n".join(words)


def _value(node: ast.AST, name: str) -> object:
    value = getattr(node, name, None)
    if isinstance(node, ast.JoinedStr):  # some versions of Python put empty texts between its parts
        return [part for part in node.values if getattr(part, "value", None) != ""]
    return value


def _says_nothing(node: object) -> bool:
    """`pass`, docstrings, and other constants that stand alone."""
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


# ---- what stands beside a class -----------------------------------------------------------------------------------


def beside(statements: list[ast.stmt], qualname: str) -> set[ast.stmt]:
    """Return the statements of a class's file that do not count for the class.

    Such a statement only binds a name, as `_Reader.only_binds` says, and the rest of the file does not mention that name. It
    builds a study or a part of one (`grid(...)`, `TrainingConfig(...)`), defines another class derived from lengthwise's, imports
    from lengthwise, or is mentioned only by such statements. So a study's seeds and lengths do not count, and neither do another
    encoding and the functions that only this encoding calls.
    """
    reader = _Reader(statements)
    of_class = [s for s in statements if isinstance(s, ast.ClassDef) and s.name == qualname.partition(".")[0]]
    if "<locals>" in qualname or not of_class or reader.has_stars:
        return set()
    binding = [s for s in statements if s not in of_class and reader.only_binds(s)]
    reached = reader.reached([s for s in binding if reader.is_beside(s)], _uses)
    rest = [s for s in statements if s not in reached or s not in binding]
    kept = reader.reached(rest, _mentions)
    finds_classes = any(_from_lengthwise(s) and s.names[0].name in LISTS for s in kept)  # type: ignore[attr-defined]
    return set() if finds_classes else reached - kept


class _Reader:
    """What the statements of a file bind, mention and call."""

    def __init__(self, statements: list[ast.stmt]):
        self.statements = statements
        nodes = [node for statement in statements for node in ast.walk(statement)]
        self.times_bound = Counter(name for node in nodes for name in _bound(node))
        self.has_stars = "*" in self.times_bound
        self.bound_by: dict[str, list[ast.stmt]] = {}
        for statement in statements:
            for name in _names(statement):
                self.bound_by.setdefault(name, []).append(statement)
        self.only = {name: found[0] for name, found in self.bound_by.items() if self.times_bound[name] == 1}
        self.known: dict[ast.stmt, bool] = {}

    def reached(self, statements: list[ast.stmt], words: Callable[[ast.stmt], set[str]]) -> set[ast.stmt]:
        """These statements, those that bind one of their words, and so on."""
        found, waiting = set(statements), list(statements)
        while waiting:
            used = words(waiting.pop())
            new = [s for s in self.statements if s not in found and used & _names(s)]
            found.update(new)
            waiting += new
        return found

    def is_beside(self, statement: ast.stmt) -> bool:
        """Whether a statement that only binds belongs to a study, or defines a class for lengthwise's lists."""
        if isinstance(statement, ast.ClassDef):
            return bool(statement.bases)
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            called = [_root(node.func) for node in ast.walk(statement) if isinstance(node, ast.Call)]
            return "__all__" in _names(statement) or any(self._is_builder(name) for name in called)
        return isinstance(statement, ast.Expr | ast.ImportFrom)

    def only_binds(self, statement: ast.stmt) -> bool:
        """Whether a statement changes nothing when it runs, but for the names that it binds.

        It may call what builds studies, some built-in functions, and functions of the file for which the same holds.
        """
        if statement not in self.known:
            self.known[statement] = False  # of a function that calls itself
            self.known[statement] = _from_lengthwise(statement) or self._are_harmless(_run_at_once(statement))
        return self.known[statement]

    def _are_harmless(self, nodes: Iterable[ast.AST]) -> bool:
        return all(self._is_harmless(node) for node in nodes)

    def _is_harmless(self, node: ast.AST) -> bool:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return all(self._is_builtin(decorator, DECORATORS) for decorator in node.decorator_list)
            case ast.ClassDef():
                hooked = [*node.decorator_list, *node.keywords]
                return not hooked and all(self._is_plain_base(base) for base in node.bases)
            case ast.Name(id=name, ctx=ast.Load()):  # not an object whose methods could do anything
                bound_by = [s for s in self.bound_by.get(name, []) if not isinstance(s, _Named)]
                return all(self.only_binds(statement) for statement in bound_by)
            case ast.Attribute() | ast.Subscript():
                return isinstance(node.ctx, ast.Load)
            case ast.Call(func=ast.Attribute(value=value, attr=name)):  # ModelConfig.t5(...)
                return (name in VIEWS and not node.args) or (isinstance(value, ast.Name) and self._is_builder(value.id))
            case ast.Call(func=ast.Name(id=name)):
                function = self.only.get(name)
                if isinstance(function, ast.FunctionDef):
                    parts = [part for statement in function.body for part in ast.walk(statement)]
                    return self.only_binds(function) and self._are_harmless(parts)
                return self._is_builder(name) or self._is_builtin(node.func, BUILTINS)
        acts = isinstance(node, ast.Call | ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr)
        return not acts and (isinstance(node, _Plain) or not isinstance(node, ast.stmt))

    def _is_builtin(self, node: ast.expr, names: set[str]) -> bool:
        return isinstance(node, ast.Name) and node.id in names and not self.times_bound[node.id]

    def _is_builder(self, name: str | None) -> bool:
        match self.only.get(name or ""):
            case ast.ImportFrom(module=str(module), names=[alias]):
                return alias.name in BUILDERS.get(module, ())
        return False

    def _is_plain_base(self, base: ast.expr) -> bool:
        """Whether a base is a class of lengthwise, or a class of the file that runs no code when others derive from it."""
        statement = self.only.get(base.id) if isinstance(base, ast.Name) else None
        if isinstance(statement, ast.ClassDef):
            hooks = {part.name for part in statement.body if isinstance(part, _Function)}
            return self.only_binds(statement) and not hooks & {"__init_subclass__", "__class_getitem__"}
        return statement is not None and _from_lengthwise(statement)


def _run_at_once(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a statement that run with it: not the bodies of functions."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        body = node.body if isinstance(node, _Function) else []
        waiting += [child for child in ast.iter_child_nodes(node) if child not in body]


def _uses(statement: ast.stmt) -> set[str]:
    """The names that a statement refers to."""
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}


def _mentions(statement: ast.stmt) -> set[str]:
    """All words of a statement, also those of attributes and strings; and as lengthwise's lists spell classes."""
    text = plain([statement])
    return set(re.findall(r"\w+", text)) | {folded(word) for word in re.findall(r"[\w-]+", text)}


def _names(statement: ast.stmt) -> set[str]:
    """The names that a statement gives its file; a class's also in the spelling of words like "log-slopes"."""
    if isinstance(statement, ast.ClassDef):
        return {statement.name, folded(statement.name)}
    if isinstance(statement, _Function):
        return {statement.name}
    nodes = list(ast.walk(statement))
    if isinstance(statement, ast.Assign | ast.AnnAssign):  # without the variables of comprehensions
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        targets = [*targets, *(node.target for node in nodes if isinstance(node, ast.NamedExpr))]
        nodes = [node for target in targets for node in ast.walk(target)]
    return {name for node in nodes for name in _bound(node)}


def _bound(node: ast.AST) -> Iterator[str]:
    """The names that a node binds somewhere."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.alias):
        yield node.asname or node.name.partition(".")[0]
    elif isinstance(node, ast.Global | ast.Nonlocal):
        yield from node.names
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.ClassDef | _Function | ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        yield from filter(None, [node.name])
    elif isinstance(node, ast.MatchMapping):
        yield from filter(None, [node.rest])


def _root(node: ast.AST) -> str | None:
    """The name that an expression begins with: `a` of `a.b[0].c()`."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None
