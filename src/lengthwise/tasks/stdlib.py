"""Real text that every machine has: what Python's own standard library says, read from the interpreter that runs.

Three domains. Each is documents of (name, origin, bytes); documents with the same origin never go to different splits.

- `manual`: the language manual in `pydoc_data.topics`, English prose, one document per topic. A topic of which at least
  half the paragraphs stand in a longer topic is left out (most are sections of another); topics that still share a
  paragraph have one origin.
- `docstrings`: one document per module: its docstrings and comments in their order (see `extraction.prose`).
- `source`: one document per module: the bytes of the file, docstrings and comments included. It has its docstrings
  document's origin.

Modules are all `.py` files of the standard library, by sorted path, without `site-packages`, tests, `_sysconfigdata*`
(which describes one machine) and `pydoc_data/topics.py` (which is the manual). The same Python version gives the same
text, up to what a distributor changed; another version gives another text, and its scores cannot be compared.

Extraction takes about a second; the result lies in the cache folder (cache_folder.py), one file per interpreter, and is made
again when it is damaged or a file of the standard library changes.
"""

import hashlib
import json
import os
import platform
import sys
import sysconfig
import warnings
from importlib import import_module
from pathlib import Path

from lengthwise import cache_folder
from lengthwise.config import ConfigError, near_miss
from lengthwise.tasks import extraction

DOMAINS = ("manual", "docstrings", "source")
Part = tuple[str, str, bytes]  # name, origin, bytes

SKIP_FOLDERS = {"site-packages", "dist-packages", "__pycache__", "idle_test"}
SKIP_STARTS = ("test", "config-", ".")
SKIP_FILES = ("_sysconfigdata", "sitecustomize", "usercustomize")
MANUAL = "pydoc_data/topics.py"
PARAGRAPH = 40  # characters; shorter ones say too little to tell two topics apart


def domains(path: str) -> tuple[str, ...]:
    """The domains that "python" or "python:NAME" means."""
    name = path.partition(":")[2]
    if path == "python":
        return DOMAINS
    if name not in DOMAINS:
        raise ConfigError(
            f"the built-in text has no part {name!r}{near_miss(name, DOMAINS)}; there are: {', '.join(DOMAINS)}; "
            'write "python" for all three'
        )
    return (name,)


def read(wanted: tuple[str, ...]) -> tuple[str, list[Part]]:
    """(Python version, documents of the domains in the order of `DOMAINS`), from the cache if there is a good one."""
    root = Path(sysconfig.get_path("stdlib"))
    files = modules(root)
    name = cache_name(root, files)
    kept = cache_folder.load(name) if name else None
    parts = None if kept is None else unpack(kept)
    if parts is None:
        parts = extract(root, files)
        if name:
            cache_folder.store(name, pack(parts))
    for domain in wanted:
        if not any(name.startswith(f"{domain}/") for name, _, _ in parts):
            lacks = MANUAL if domain == "manual" else "the source files of its standard library"
            raise ConfigError(f"this Python lacks {lacks}, so it has no text {domain!r}; give a file or a folder")
    return platform.python_version(), [part for part in parts if part[0].partition("/")[0] in wanted]


def modules(root: Path) -> dict[str, os.stat_result]:
    """Relative paths of the standard library's modules, sorted, with their status."""
    found = {}
    for folder, inner, files in os.walk(root):
        inner[:] = [name for name in inner if name not in SKIP_FOLDERS and not name.startswith(SKIP_STARTS)]
        for name in files:
            file = Path(folder, name)
            if name.endswith(".py") and not name.startswith(SKIP_FILES) and file.is_file():
                found[file.relative_to(root).as_posix()] = file.stat()
    return dict(sorted(found.items()))


def extract(root: Path, files: dict[str, os.stat_result]) -> list[Part]:
    """Every document of every domain. A file that cannot be read is left out, with a warning."""
    prose, source = [], []
    for name in files:
        if name == MANUAL:
            continue
        try:
            data = (root / name).read_bytes()
        except OSError as error:
            warnings.warn(f"left out of the built-in text: {root / name}: {error.strerror}", stacklevel=2)
            continue
        prose.append((f"docstrings/{name}", name, extraction.prose(data)))
        source.append((f"source/{name}", name, data))
    return [part for part in [*manual(), *prose, *source] if part[2]]


def manual() -> list[Part]:
    try:
        topics: dict[str, str] = dict(import_module("pydoc_data.topics").topics)
    except (ImportError, AttributeError):
        return []
    paragraphs = {
        name: {p.strip() for p in text.split("\n\n") if len(p.strip()) >= PARAGRAPH} for name, text in topics.items()
    }
    longest_first = sorted(topics, key=lambda name: (-len(topics[name]), name))
    kept: list[str] = []
    said_by: dict[str, str] = {}
    family: dict[str, str] = {}
    for name in longest_first:
        shared = paragraphs[name] & said_by.keys()
        if 2 * len(shared) >= max(len(paragraphs[name]), 1):
            continue
        relatives = {family[said_by[paragraph]] for paragraph in shared}
        head = min([name, *relatives], key=longest_first.index)
        family = {member: head if of in relatives else of for member, of in family.items()} | {name: head}
        said_by |= dict.fromkeys(paragraphs[name], name)
        kept.append(name)
    return [(f"manual/{name}", f"{MANUAL}#{family[name]}", topics[name].encode()) for name in sorted(kept)]


# ---- the cache --------------------------------------------------------------------------------------------------


def cache_name(root: Path, files: dict[str, os.stat_result]) -> str | None:
    """One name per interpreter, state of its files, and text of the code that extracts; None where that text is missing."""
    state = hashlib.sha256(json.dumps([sys.version, str(root)]).encode())
    for name, status in files.items():
        state.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    for code in (__file__, extraction.__file__):
        try:
            state.update(Path(code).read_bytes())
        except OSError:
            return None
    return f"python-{platform.python_version()}-{state.hexdigest()[:16]}.corpus"


def pack(parts: list[Part]) -> bytes:
    """A line of JSON (names, origins, sizes), and the bytes of all parts."""
    header = json.dumps([[name, origin, len(data)] for name, origin, data in parts]).encode() + b"\n"
    return header + b"".join(data for _, _, data in parts)


def unpack(data: bytes) -> list[Part] | None:
    """What `pack` was given, or None for what it cannot have made."""
    header, _, body = data.partition(b"\n")
    parts, start = [], 0
    try:
        for name, origin, size in json.loads(header):
            parts.append((name, origin, body[start : start + size]))
            start += size
    except ValueError:
        return None
    return parts
