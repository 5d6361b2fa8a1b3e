"""Which file system has a path. SQLite loses data on those of a network."""

import re
from pathlib import Path

from lengthwise.store.errors import StoreError
from lengthwise.values import EXAMPLE

# File systems over a network, by their names in Linux. There, SQLite's processes cannot share the memory of its
# write-ahead log, and its locks are unreliable: https://sqlite.org/wal.html, "WAL does not work over a network
# filesystem".
_NETWORK = {"afs", "beegfs", "ceph", "cifs", "gfs2", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "panfs", "pvfs2"}
_NETWORK |= {"smb3", "smbfs"}
_NETWORK |= {f"fuse.{name}" for name in (*_NETWORK, "gcsfuse", "juicefs", "rclone", "s3fs", "sshfs")}


def require_local(path: Path) -> None:
    """Raise `StoreError` for a database file on a network file system. Only Linux tells."""
    if (kind := _file_system(path)) in _NETWORK:
        raise StoreError(
            f"{path} is on a network file system ({kind}), where SQLite loses data; give a results folder on a local "
            f"disk, or a database server with --store {EXAMPLE}"
        )


def _file_system(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str | None:
    """Return the type of the file system that has the path, or None if it is unknown."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    target, kind, depth = path.resolve(), None, -1
    for line in lines:  # "device /mount/point type options 0 0", see proc_pid_mounts(5)
        _, escaped, own, *_ = line.split(" ")
        point = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), escaped))
        if len(point.parts) >= depth and target.is_relative_to(point):  # a later mount hides an earlier one
            kind, depth = own, len(point.parts)
    return kind
