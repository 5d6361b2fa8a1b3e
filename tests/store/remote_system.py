"""A file system for fsspec that fails when it is told to: `flaky:///folder` is the folder on this machine."""

from collections.abc import Callable
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.local import LocalFileSystem


class FlakySystem(LocalFileSystem):  # type: ignore[misc]
    """Calls `problem`, which may raise an error, before every operation on a file: `problem("put_file", path)`."""

    protocol = "flaky"
    cachable = False
    local_file = False  # files appear under their own names, as with an object store
    problem: ClassVar[Callable[[str, str], None] | None] = None

    def _meet(self, operation: str, path: Any) -> None:
        if FlakySystem.problem is not None:
            FlakySystem.problem(operation, str(path))

    def ls(self, path: Any, *arguments: Any, **options: Any) -> Any:
        self._meet("ls", path)
        return super().ls(path, *arguments, **options)

    def put_file(self, here: Any, there: Any, *arguments: Any, **options: Any) -> Any:
        self._meet("put_file", there)
        return super().put_file(here, there, *arguments, **options)

    def get_file(self, there: Any, here: Any, *arguments: Any, **options: Any) -> Any:
        self._meet("get_file", there)
        return super().get_file(there, here, *arguments, **options)

    def rm_file(self, path: Any) -> Any:
        self._meet("rm_file", path)
        return super().rm_file(path)

    def rm(self, path: Any, *arguments: Any, **options: Any) -> Any:
        self._meet("rm", path)
        return super().rm(path, *arguments, **options)

    def _open(self, path: Any, *arguments: Any, **options: Any) -> Any:
        self._meet("open", path)
        return super()._open(path, *arguments, **options)


fsspec.register_implementation("flaky", FlakySystem, clobber=True)
