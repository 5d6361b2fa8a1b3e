"""The gallery in docs/encodings/: up to date, its examples run, its pictures are readable on light and dark ground."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
import torch

from lengthwise.encodings import ENCODINGS

DOCS = Path(__file__).parent.parent / "docs"
FOLDER = DOCS / "encodings"
PAGES = sorted(
    path for path in FOLDER.glob("*.md") if path.name not in ("README.md", "names.md", "layers.md", "not-included.md")
)
OURS = [make for make in ENCODINGS if make.__module__.startswith("lengthwise.")]


@pytest.fixture(scope="module")
def gallery() -> ModuleType:
    sys.path.insert(0, str(DOCS))
    try:
        spec = importlib.util.spec_from_file_location("gallery", DOCS / "gallery.py")
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules["gallery"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(DOCS))
    return module


@pytest.mark.medium
def test_the_gallery_is_up_to_date(gallery, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gallery.py", "--check"])
    assert gallery.main() == 0, capsys.readouterr().out


def test_a_stale_page_is_found(gallery, tmp_path, monkeypatch):
    pages, pictures = (
        {name: (folder / name).read_text(encoding="utf-8") for name in names.split()}
        for folder, names in (
            (FOLDER, "rope.md t5.md fire.md"),
            (FOLDER / "pictures", "rope.svg alibi.svg fire.svg kerple_log.svg"),
        )
    )
    monkeypatch.setattr(gallery, "generate", lambda: (pages, pictures))
    (tmp_path / "docs" / "encodings" / "pictures").mkdir(parents=True)
    monkeypatch.setattr(gallery, "FOLDER", tmp_path / "docs" / "encodings")
    for name, text in pages.items():
        (gallery.FOLDER / name).write_text(text, encoding="utf-8")
    for name, svg in pictures.items():
        (gallery.FOLDER / "pictures" / name).write_text(svg, encoding="utf-8")
    assert gallery.outdated_files() == []
    (gallery.FOLDER / "rope.md").write_text(pages["rope.md"] + "\nMore.\n", encoding="utf-8")
    (gallery.FOLDER / "pictures" / "alibi.svg").unlink()
    (gallery.FOLDER / "pictures" / "fire.svg").write_text(pictures["kerple_log.svg"], encoding="utf-8")
    (gallery.FOLDER / "pictures" / "rope.svg").write_text(
        pictures["rope.svg"].replace(">pair<", ">pairs<"), encoding="utf-8"
    )
    (gallery.FOLDER / "t5.md").unlink()
    (gallery.FOLDER / "old.md").write_text("", encoding="utf-8")
    assert gallery.outdated_files() == [
        "docs/encodings/rope.md is out of date",
        "docs/encodings/t5.md is missing",
        "docs/encodings/pictures/rope.svg is out of date",
        "docs/encodings/pictures/alibi.svg is missing",
        "docs/encodings/pictures/fire.svg is out of date",
        "docs/encodings/old.md belongs to no encoding",
    ]


def test_a_picture_with_other_numbers_is_found_and_other_fonts_are_not(gallery):
    picture = (FOLDER / "pictures" / "alibi.svg").read_text(encoding="utf-8")
    line = max(re.findall(r' d="(M[^"Z]*)"', picture), key=len)
    last = re.search(r",([-\d.]+)$", line)
    moved = [f"{line[: last.start(1)]}{float(last[1]) + by}" for by in (0.3, 2)]
    assert gallery.looks_the_same(picture, picture.replace(line, moved[0])), "last digits"
    assert not gallery.looks_the_same(picture, picture.replace(line, moved[1]))
    assert gallery.looks_the_same(picture, re.sub(r'transform="translate\([^"]*"', "", picture)), "another layout"
    assert not gallery.looks_the_same(picture, picture.replace("#bf5e61", "#bf5e62"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_pages_example_runs(path):
    text = path.read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    assert len([line for line in code.splitlines() if line]) <= 5
    space: dict[str, object] = {}
    exec(code, space)
    out = space.get("out", space.get("x"))
    assert isinstance(out, torch.Tensor)
    assert bool(out.isfinite().all())


def test_the_parts_of_a_docstring(gallery):
    class Made:
        """b = -1 nats, with `c`. Beyond what is trained, past it and up to L, it
        is this; beyond the training length, as ever.

            b(0) = 1
            b(1) = 2

        Beyond the training length L, it goes
        on. Nothing else.

        Up to L it is this, and c past L.

        Source: Somebody 2020, "A
        title".
        Code: somebody/repository.
        Differs: the code is *wrong*.

        >>> 1 + 1
        2
        """

    words = gallery.docstring_parts(Made)
    assert words.formula == [
        "b = -1 nats, with `c`. Beyond what is trained, past it and up to L, it is this; beyond the training length, "
        "as ever.",
        "    b(0) = 1\n    b(1) = 2",
        "Up to L it is this, and c past L.",
    ]
    assert words.beyond == "it goes on. Nothing else."
    assert (words.source, words.code) == ('Somebody 2020, "A title".', "somebody/repository.")
    assert (words.differs, words.example) == ("the code is *wrong*.", ">>> 1 + 1\n2")
    assert gallery.escape("<q, k> * `a*b` [0, 1] ~ |x|") == r"\<q, k> \* `a*b` \[0, 1\] \~ \|x\|"


@pytest.mark.parametrize("make", OURS, ids=lambda make: make.__name__)
def test_every_docstring_has_the_parts_of_a_page(gallery, make):
    words = gallery.docstring_parts(make)
    assert words.formula
    assert words.source
    assert words.example
    assert words.beyond[-1] == "."
    assert not any("beyond the training length" in paragraph.lower() for paragraph in words.formula)
    assert not any(re.match(r"(Source|Code|Differs):", paragraph) for paragraph in words.formula)


def brightness(colour: str) -> float:
    """Relative luminance as WCAG defines it."""
    channels = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("path", sorted((FOLDER / "pictures").glob("*.svg")), ids=lambda path: path.stem)
def test_a_picture_is_read_on_light_and_on_dark_ground(path):
    assert path.stat().st_size < 64_000
    root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    shown = [
        e.get(kind) for e in root.iter() for kind in ("fill", "stroke") if e.tag.endswith(("text", "path", "line"))
    ]
    colours = {colour for colour in shown if colour and re.fullmatch("#[0-9a-f]{6}", colour)}
    assert len(colours) >= 2
    assert not {"black", "white"} & set(shown)
    assert all(element.get("fill", "").startswith("#") for element in root.iter() if element.tag.endswith("}text"))
    for colour in colours:
        for ground in ("#ffffff", "#0d1117"):
            low, high = sorted((brightness(colour), brightness(ground)))
            assert (high + 0.05) / (low + 0.05) > 3, (colour, ground)


@pytest.mark.parametrize("path", sorted((FOLDER / "pictures").glob("*.svg")), ids=lambda path: path.stem)
def test_a_pictures_ids_are_its_own(path):
    """Another encoding before it in the list changes nothing in its file."""
    text = path.read_text(encoding="utf-8")
    ids = re.findall(r' id="([^"]+)"', text)
    assert ids == [f"id{n}" for n in range(len(ids))]
    assert set(re.findall(r'(?:url\(|href=")#([^)"]+)', text)) == set(ids)
