import ast
import io
import json
import sysconfig
import tokenize
from pathlib import Path

import pytest

from lengthwise.corpora import extraction, stdlib

SOURCE = b'''#!/usr/bin/env python
# A file about
#   indented words

"""The module's docstring # is no comment.

    It has two lines, and "quotes", and a \\\\ backslash."""
import os  # after code

x = "no docstring"
"neither"


class A(
    object,  # inside brackets
):  # after the header
    # before the docstring
    r\'\'\'Raw \\n docstring.\'\'\'

    async def f(self, a={"k": lambda: 1}):
        "One line with \\x41 escape."; return "#no"

    def g(self):
        b"bytes"
        def h(): return "same line"
        "after a one-line function"

    def i(self):
        f"not {x}"

    def j(self):
        "abc" % x
'''


def test_docstrings_and_comments_in_their_order():
    assert extraction.prose(SOURCE).decode().split("\n\n") == [
        "!/usr/bin/env python\nA file about\n  indented words",
        "The module's docstring # is no comment.",
        'It has two lines, and "quotes", and a \\ backslash.',
        "after code",
        "inside brackets",
        "after the header",
        "before the docstring",
        "Raw \\n docstring.",
        "One line with A escape.\n",
    ]


@pytest.mark.parametrize(
    "source",
    [b"", b"x = 1\n", b"'''open", b"\\", b'"a" "b"\n', b'def f(:\n)("', b"\xff\xfe\x00", b'"""\xff"""', b"\r\r\n'"],
)
def test_what_is_no_module_gives_no_prose(source):
    assert extraction.prose(source) == b""


def test_windows_line_ends_and_a_byte_order_mark():
    source = b'\xef\xbb\xbf"""Doc.\r\n\r\n    More.\r\n"""\r\n# one\r\n# two\r\n'
    assert extraction.prose(source) == b"Doc.\n\nMore.\n\none\ntwo\n"


def written(source: bytes) -> list[str]:
    """Docstrings as `ast` sees them, in order."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text and text.strip():
                found.append((node.body[0].lineno, text))
    return [text for _, text in sorted(found)]


def agrees(monkeypatch, every):
    """The cheap extraction finds what `ast` and `tokenize` find, in every n-th module of the standard library."""
    root = Path(sysconfig.get_path("stdlib"))
    docstrings: list[bytes] = []
    real = extraction.docstring_of

    def spy(literal, prefix):
        docstrings.extend(found := real(literal, prefix))
        return found

    monkeypatch.setattr(extraction, "docstring_of", spy)
    for name in list(stdlib.modules(root))[::every]:
        source = (root / name).read_bytes()
        docstrings.clear()
        extraction.prose(source)
        assert [d.decode() for d in docstrings] == written(source), name
        tokens = tokenize.tokenize(io.BytesIO(source).readline)
        comments = [t.string for t in tokens if t.type == tokenize.COMMENT]
        assert [m["comment"].decode() for m in extraction.TOKEN.finditer(source) if m["comment"]] == comments, name


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore")
def test_it_finds_what_the_parser_finds(monkeypatch):
    agrees(monkeypatch, 12)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_it_finds_what_the_parser_finds_everywhere(monkeypatch):
    agrees(monkeypatch, 1)


def test_comments_and_docstrings_of_a_real_module_are_all_there():
    source = Path(json.decoder.__file__).read_bytes()
    text = extraction.prose(source).decode()
    assert all(docstring in text for docstring in written(source))
    assert "Use a slice to prevent IndexError from being raised" in text
