"""`lengthwise copy-study`: copy a study of Lengthwise into a file, to change it."""

import ast

from lengthwise.cli.output_file import new_file
from lengthwise.config import ConfigError


def command(study: str, file: str, /, *, force: bool = False) -> int:
    """Copy a study of Lengthwise into a file, to change it and run it.

    Neighbouring files that the study imports are copied beside it.

    Example: lengthwise copy-study quickstart my.py; lengthwise run my.py

    Args:
        study: The study, as `lengthwise list studies --available` prints it: quickstart or nope/small.
        file: The new file.
        force: Overwrite files.
    """
    from lengthwise.studies.shipped import shipped_studies, unknown_study

    studies = shipped_studies()
    if study not in studies:
        raise ConfigError(unknown_study(study) or f"{study} is a file already; copy it as any other file")
    path = studies[study].path
    text = path.read_text(encoding="utf-8")
    target = new_file(file, force, "FILE")
    if target.suffix != ".py":
        raise ConfigError(f"FILE must end with .py, got {file!r}; write for example {target.with_suffix('.py')}")
    imported = {name.partition(".")[0] for name in _imports(text)}
    neighbours = [neighbour for neighbour in sorted(path.parent.glob("*.py")) if neighbour.stem in imported]
    for neighbour in neighbours:
        new_file(str(target.with_name(neighbour.name)), force, "FILE")
    target.write_text(text.replace(f"lengthwise run {study}", f"lengthwise run {file}"), encoding="utf-8")
    for neighbour in neighbours:
        target.with_name(neighbour.name).write_bytes(neighbour.read_bytes())
        print(f"Copied {target.with_name(neighbour.name)}, which {file} imports.")
    print(
        f"Copied {file}. Give the study a name of its own, so that its results stay apart; then: lengthwise run {file}"
    )
    return 0


def _imports(text: str) -> list[str]:
    nodes = list(ast.walk(ast.parse(text)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return names + [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
