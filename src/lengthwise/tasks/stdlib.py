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

Extraction takes about a second; the result lies in the user's cache folder (`LENGTHWISE_CACHE` says another), one file
per interpreter, written atomically, checked by SHA-256 when read, and made again when damaged or when a file of the
standard library changes. Where nothing can be written, it works without.
"""

import hashlib
import json
import os
import platform
import sys
import sysconfig
import tempfile
import warnings
from importlib import import_module
from pathlib import Path

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
    cache = cache_file(root, files)
    parts = load(cache) if cache else None
    if parts is None:
        parts = extract(root, files)
        if cache:
            save(cache, parts)
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


def cache_folder() -> Path | None:
    """The user's cache folder for this package, or None where there is none."""
    try:
        if own := os.environ.get("LENGTHWISE_CACHE"):
            return Path(own).expanduser()
        if sys.platform == "win32":
            return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "lengthwise" / "Cache"
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "lengthwise"
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lengthwise"
    except RuntimeError:  # no home
        return None


def cache_file(root: Path, files: dict[str, os.stat_result]) -> Path | None:
    """One name per interpreter, state of its files, and text of the code that extracts."""
    folder = cache_folder()
    if folder is None:
        return None
    state = hashlib.sha256(json.dumps([sys.version, str(root)]).encode())
    for name, status in files.items():
        state.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    for code in (__file__, extraction.__file__):
        try:
            state.update(Path(code).read_bytes())
        except OSError:
            return None
    return folder / f"python-{platform.python_version()}-{state.hexdigest()[:16]}.corpus"


def save(file: Path, parts: list[Part]) -> None:
    """SHA-256 of all that follows; a line of JSON (names, origins, sizes); the bytes. Quiet where it cannot write."""
    header = json.dumps([[name, origin, len(data)] for name, origin, data in parts]).encode() + b"\n"
    body = header + b"".join(data for _, _, data in parts)
    scratch = None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=file.name, suffix=".tmp", delete=False) as out:
            scratch = out.name
            out.write(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
        os.replace(scratch, file)
    except OSError:
        if scratch:
            Path(scratch).unlink(missing_ok=True)


def load(file: Path) -> list[Part] | None:
    """What `save` wrote; None if it is not there or not what was written."""
    try:
        digest, _, body = file.read_bytes().partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != digest:
            return None
        start = body.index(b"\n") + 1
        parts = []
        for name, origin, size in json.loads(body[:start]):
            parts.append((name, origin, body[start : start + size]))
            start += size
        return parts
    except (OSError, ValueError):
        return None
