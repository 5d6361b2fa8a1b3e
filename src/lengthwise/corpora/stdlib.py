"""Real text that every machine has: the manual, docstrings and source of Python's standard library.

There are three domains. Each consists of documents; those with the same origin are always in the same split.

- `manual`: the language manual in `pydoc_data.topics`, English prose, one document per topic. A topic is left out if at
  least half of its paragraphs occur in a longer topic (most such topics are sections of another). Topics that still
  share a paragraph have one origin.
- `docstrings`: one document per module: its docstrings and comments in their order (see `extraction.prose`).
- `source`: one document per module: the bytes of the file, with docstrings and comments. Its origin is that of the
  module's docstrings document.

The modules are all `.py` files of the running interpreter's standard library, by sorted path, without `site-packages`,
tests, `_sysconfigdata*` (which describes one machine) and `pydoc_data/topics.py` (which is the manual). The same Python
version gives the same text, except for a distributor's changes. Another version gives another text, and its scores are
not comparable.

Extraction takes about a second. The result is stored in the cache folder (cache_folder.py), one file per interpreter,
and is computed again if it is damaged or a file of the standard library changes.
"""

import hashlib
import json
import os
import platform
import sys
import sysconfig
from importlib import import_module
from pathlib import Path

from lengthwise import cache_folder
from lengthwise.corpora import extraction
from lengthwise.corpora.documents import Document
from lengthwise.values import ConfigError, near_miss

DOMAINS = ("manual", "docstrings", "source")

SKIP_FOLDERS = {"site-packages", "dist-packages", "__pycache__", "idle_test"}
SKIP_STARTS = ("test", "config-", ".")
SKIP_FILES = ("_sysconfigdata", "sitecustomize", "usercustomize")
MANUAL = "pydoc_data/topics.py"
MIN_PARAGRAPH = 40  # characters; shorter paragraphs are too common to show that two topics share text


def domains(path: str) -> tuple[str, ...]:
    """Return the domains that "python" or "python:NAME" stands for."""
    name = path.partition(":")[2]
    if path == "python":
        return DOMAINS
    if name not in DOMAINS:
        raise ConfigError(
            f"the built-in text has no part {name!r}{near_miss(name, DOMAINS)}; available: {', '.join(DOMAINS)}; "
            'write "python" for all three'
        )
    return (name,)


def read(selected: tuple[str, ...]) -> tuple[str, list[Document]]:
    """Return the Python version and the documents of the selected domains, in the order of `DOMAINS`."""
    root = Path(sysconfig.get_path("stdlib"))
    files = modules(root)
    name = cache_name(root, files)
    cached = cache_folder.load(name)
    documents = None if cached is None else unpack(cached)
    if documents is None:
        documents = extract(root, files)
        cache_folder.store(name, pack(documents))
    for domain in selected:
        if not any(document.name.startswith(f"{domain}/") for document in documents):
            missing = MANUAL if domain == "manual" else "the source files of its standard library"
            raise ConfigError(f"this Python lacks {missing}, so it has no text {domain!r}; give a file or a folder")
    return platform.python_version(), [d for d in documents if d.name.partition("/")[0] in selected]


def modules(root: Path) -> dict[str, os.stat_result]:
    """Return the relative paths of the standard library's modules, sorted, with their file status."""
    status = {}
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in SKIP_FOLDERS and not name.startswith(SKIP_STARTS)]
        for name in files:
            file = Path(folder, name)
            if name.endswith(".py") and not name.startswith(SKIP_FILES) and file.is_file():
                status[file.relative_to(root).as_posix()] = file.stat()
    return dict(sorted(status.items()))


def extract(root: Path, files: dict[str, os.stat_result]) -> list[Document]:
    """Return all documents of all domains."""
    prose, source = [], []
    for name in files:
        if name == MANUAL:
            continue
        data = (root / name).read_bytes()
        prose.append(Document(f"docstrings/{name}", name, extraction.prose(data)))
        source.append(Document(f"source/{name}", name, data))
    return [document for document in [*manual(), *prose, *source] if document.data]


def manual() -> list[Document]:
    """Return one document per topic of the language manual; none if this Python has no manual."""
    try:
        topics: dict[str, str] = dict(import_module("pydoc_data.topics").topics)
    except (ImportError, AttributeError):
        return []
    paragraphs = {
        name: {p.strip() for p in text.split("\n\n") if len(p.strip()) >= MIN_PARAGRAPH}
        for name, text in topics.items()
    }
    longest_first = sorted(topics, key=lambda name: (-len(topics[name]), name))
    selected: list[str] = []
    topic_of: dict[str, str] = {}  # the topic that a paragraph occurs in
    group_of: dict[str, str] = {}  # for each topic, the longest one of those that share paragraphs
    for name in longest_first:
        shared = paragraphs[name] & topic_of.keys()
        if 2 * len(shared) >= max(len(paragraphs[name]), 1):
            continue
        groups = {group_of[topic_of[paragraph]] for paragraph in shared}
        longest = min([name, *groups], key=longest_first.index)
        group_of = {topic: longest if group in groups else group for topic, group in group_of.items()} | {name: longest}
        topic_of |= dict.fromkeys(paragraphs[name], name)
        selected.append(name)
    return [
        Document(f"manual/{name}", f"{MANUAL}#{group_of[name]}", topics[name].encode()) for name in sorted(selected)
    ]


# ---- the cache --------------------------------------------------------------------------------------------------


def cache_name(root: Path, files: dict[str, os.stat_result]) -> str:
    """Return the cache file's name, which depends on the interpreter, its files, and the code of the extraction."""
    state = hashlib.sha256(json.dumps([sys.version, str(root)]).encode())
    for name, status in files.items():
        state.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    for code in (__file__, extraction.__file__):
        state.update(Path(code).read_bytes())
    return f"python-{platform.python_version()}-{state.hexdigest()[:16]}.corpus"


def pack(documents: list[Document]) -> bytes:
    """Return one line of JSON (names, origins, sizes), followed by the bytes of all documents."""
    header = json.dumps([[d.name, d.origin, len(d.data)] for d in documents]).encode() + b"\n"
    return header + b"".join(document.data for document in documents)


def unpack(data: bytes) -> list[Document] | None:
    """Invert `pack`. Returns None for bytes that `pack` did not write."""
    header, _, body = data.partition(b"\n")
    documents, start = [], 0
    try:
        for name, origin, size in json.loads(header):
            documents.append(Document(name, origin, body[start : start + size]))
            start += size
    except ValueError:
        return None
    return documents
