"""Safe reading of files with untrusted names: only regular files, and only up to a maximal size."""

import errno
import os
import stat
from pathlib import Path


def read(path: Path, max_bytes: int) -> bytes:
    """Return the content of a regular file of at most `max_bytes` bytes.

    Raise `OSError` with a `strerror` for a larger file, a folder, a pipe (which would block) and a device (which may never end).
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    with open(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())  # of the open file, because the path may now lead to another one
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        content = file.read(status.st_size + 1) if status.st_size <= max_bytes else b""
        if status.st_size < len(content) <= max_bytes:  # files in /proc report a size of 0
            content += file.read(max_bytes + 1 - len(content))
    if max(status.st_size, len(content)) > max_bytes:
        raise OSError(errno.EFBIG, f"more than {max_bytes:,} bytes", str(path))
    return content
