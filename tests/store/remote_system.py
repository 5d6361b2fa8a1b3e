"""A file system for fsspec that fails when it is told to: `flaky:///folder` is the folder on this machine."""

from collections.abc import Callable
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.local import LocalFileSystem

OPERATIONS = ("ls", "put_file", "get_file", "rm_file", "rm", "cat_file", "glob")


class FlakySystem(LocalFileSystem):  # type: ignore[misc]
    """Calls `problem`, which may raise an error, before every operation on a file: `problem("put_file", path)`."""

    protocol = "flaky"
    cachable = False
    problem: ClassVar[Callable[[str, str], None] | None] = None

    def __init__(self, **options: Any):
        super().__init__(**options | {"auto_mkdir": True})


def _method(operation: str) -> Any:
    def method(self: FlakySystem, path: Any, *arguments: Any, **options: Any) -> Any:
        if FlakySystem.problem is not None:
            FlakySystem.problem(operation, str(path))
        return getattr(LocalFileSystem, operation)(self, path, *arguments, **options)

    return method


for operation in OPERATIONS:
    setattr(FlakySystem, operation, _method(operation))

fsspec.register_implementation("flaky", FlakySystem, clobber=True)
