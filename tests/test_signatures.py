"""No function of the library has more than 10 parameters: arguments that belong together are grouped in a dataclass.

`self`, `cls` and `**unknown` do not count. Triton kernels (`triton.jit`) and operators of torch.library (`custom_op`,
`register_fake`) may have more, because their signatures must be flat.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "lengthwise"
LIMIT = 10
FLAT = ("jit", "custom_op", "register_fake")  # decorators of triton and torch.library

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def must_be_flat(function: ast.AST) -> bool:
    """Whether a decorator makes the function a Triton kernel, or an operator of torch.library or a part of one."""
    names = [
        ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
        for decorator in getattr(function, "decorator_list", [])
    ]
    return any(name.rpartition(".")[2] in FLAT for name in names)


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[str]:
    """The names of the parameters that count."""
    given = function.args
    names = [argument.arg for argument in (*given.posonlyargs, *given.args)]
    if names and names[0] in ("self", "cls"):
        del names[0]
    return [*names, *([given.vararg.arg] if given.vararg else []), *(argument.arg for argument in given.kwonlyargs)]


def too_long(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, FUNCTIONS) and not must_be_flat(node) and len(parameters(node)) > LIMIT:
            name = getattr(node, "name", "a lambda")
            yield f"line {node.lineno}: {name} has {len(parameters(node))} parameters: {', '.join(parameters(node))}"


def test_no_function_has_more_than_ten_parameters() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) > 100
    found = [f"{path.relative_to(SOURCE)}, {line}" for path in files for line in too_long(path.read_text("utf-8"))]
    assert not found, "group arguments in a dataclass, as attention.TokenInfo does:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def f(a, b, c, d, e, f, g, h, i, j): ...", False),
        ("def f(a, b, c, d, e, f, g, h, i, j, k): ...", True),
        ("def f(a, b, /, c, d, e, f, g, *, h, i, j, **unknown): ...", False),
        ("def f(a, b, /, c, d, e, f, g, *, h, i, j, k, **unknown): ...", True),
        ("def f(a, b, c, d, e, f, g, h, i, j, *k): ...", True),
        ("class A:\n    def f(self, a, b, c, d, e, f, g, h, i, j): ...", False),
        ("class A:\n    @classmethod\n    async def f(cls, a, b, c, d, e, f, g, h, i, j, k): ...", True),
        ("f = lambda a, b, c, d, e, f, g, h, i, j, k: a", True),
        ("@functools.cache\ndef f(a, b, c, d, e, f, g, h, i, j, k): ...", True),
        ("@triton.jit\ndef f(a, b, c, d, e, f, g, h, i, j, k): ...", False),
        ("@torch.library.custom_op('a::f', mutates_args=())\ndef f(a, b, c, d, e, f, g, h, i, j, k): ...", False),
        ("@operator.register_fake\ndef f(a, b, c, d, e, f, g, h, i, j, k): ...", False),
    ],
)
def test_which_functions_are_found(code: str, found: bool) -> None:
    assert bool(list(too_long(code))) == found
