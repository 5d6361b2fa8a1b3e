"""The studies that come with Lengthwise, in a clone and in an installed package."""

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise.values import near_miss

LIST = "lengthwise list studies --available"
_STUDY = re.compile(r"^(?:study = |def study\()", re.M)  # other files are imported by studies


@dataclass(frozen=True)
class ShippedStudy:
    """A study file. `summary` and `cost` are those of its docstring; `options` are those of `--set`, with defaults."""

    path: Path
    documentation: str
    summary: str
    cost: str
    options: dict[str, Any]


def folder() -> Path:
    """Return the folder of the studies: in an installed package (see pyproject.toml), or at the top of a clone."""
    package = Path(__file__).parents[1]
    installed = package / "study_files"
    return installed if installed.is_dir() else package.parents[1] / "studies"


def shipped_studies() -> dict[str, ShippedStudy]:
    """Return the studies by name, which is the path in their folder without `.py`: `quickstart`, `nope/small`."""
    root, studies = folder(), {}
    for path in [*sorted(root.glob("*.py")), *sorted(root.glob("*/*.py"))]:
        text = path.read_text(encoding="utf-8")
        if _STUDY.search(text):
            module = ast.parse(text)
            documentation = ast.get_docstring(module) or ""
            cost = re.search(r"^Cost: (.*?)(?=^[A-Z]\w+: |\n\n|\Z)", documentation, re.M | re.S)
            studies[path.relative_to(root).with_suffix("").as_posix()] = ShippedStudy(
                path,
                documentation,
                _one_line(documentation.partition("\n\n")[0]),
                _one_line(cost[1] if cost else ""),
                _options(module),
            )
    return studies


def _options(module: ast.Module) -> dict[str, Any]:
    """Return the parameters of the function `study` with their defaults, without running the file."""
    for statement in module.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "study":
            defaults = zip(statement.args.args, statement.args.defaults, strict=True)
            return {parameter.arg: ast.literal_eval(default) for parameter, default in defaults}
    return {}


def _one_line(text: str) -> str:
    return " ".join(text.split())


def unknown_study(name: str) -> str | None:
    """Return the message about a name that is no study of Lengthwise; None for the path of a Python file."""
    near = near_miss(name.removeprefix("studies/").removesuffix(".py"), shipped_studies())
    if name.endswith(".py") and not near:
        return None
    return f"there is no study {name!r}{near}; give the path of a Python file, or a name that `{LIST}` prints"
