"""Files that others name: only regular ones are opened, and no more is read than a file of their kind can have."""

import errno
import os
import stat
from pathlib import Path


def read(path: Path, most: int) -> bytes:
    """Return the content of a regular file of at most `most` bytes.

    Raises `OSError`, with its `strerror`, for a folder, a pipe, which would block, a device, which may not end, and a file that
    is larger.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    with open(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())  # of what was opened, which cannot be exchanged any more
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        content = file.read(status.st_size + 1) if status.st_size <= most else b""
        if status.st_size < len(content) <= most:  # a file of /proc says that it has 0 bytes
            content += file.read(most + 1 - len(content))
    if max(status.st_size, len(content)) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
    return content
