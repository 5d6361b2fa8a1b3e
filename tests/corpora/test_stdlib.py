import os
import sys
import sysconfig
import types
from pathlib import Path

import pytest

from lengthwise.config import ConfigError
from lengthwise.corpora import extraction, in_memory, stdlib


@pytest.fixture(scope="module")
def everything():
    return in_memory.read("python", "")


def test_three_domains_of_real_size(everything):
    sizes = dict.fromkeys(stdlib.DOMAINS, 0)
    for document in everything.documents:
        sizes[document.name.partition("/")[0]] += len(document.data)
    assert 300_000 < sizes["manual"] < 800_000
    assert 2_000_000 < sizes["docstrings"] < 6_000_000
    assert 8_000_000 < sizes["source"] < 20_000_000
    assert max(len(d.data) for d in everything.documents if d.name.startswith("manual/")) > 32_768
    assert not any(stdlib.MANUAL in document.name for document in everything.documents)  # it is there as topics


@pytest.mark.medium
@pytest.mark.parametrize("domain", stdlib.DOMAINS)
def test_each_domain_by_itself(everything, domain):
    alone = in_memory.read(f"python:{domain}", "")
    assert {d.name.partition("/")[0] for d in alone.documents} == {domain}
    assert alone.sha256 != everything.sha256
    assert alone.python == everything.python


def test_no_file_is_in_both_splits(everything):
    train, test = everything.split(0.1)
    where = {document.data: document.origin for document in everything.documents}
    origins = [{where[data] for data in side} for side in (train, test)]
    assert origins[0].isdisjoint(origins[1])
    assert sum(map(len, test)) == pytest.approx(0.1 * everything.size, rel=0.1)
    # a module's docstrings lie where its source lies
    split = {data: n for n, side in enumerate((train, test)) for data in side}
    side = {document.name: split[document.data] for document in everything.documents}
    assert side["docstrings/json/decoder.py"] == side["source/json/decoder.py"]


def test_no_paragraph_of_the_manual_is_in_both_splits():
    train, test = in_memory.read("python:manual", "").split(0.1)
    paragraphs = [
        {p.strip() for data in side for p in data.decode().split("\n\n") if len(p.strip()) >= stdlib.MIN_PARAGRAPH}
        for side in (train, test)
    ]
    assert len(paragraphs[1]) > 50
    assert paragraphs[0].isdisjoint(paragraphs[1])


def test_topics_that_stand_in_another_are_left_out_and_relatives_stay_together(monkeypatch):
    a, b, c, d, e, f = (f"{letter * 50}" for letter in "abcdef")
    topics = {
        "whole": "\n\n".join([a, b, c, d]),
        "section": "\n\n".join([b, c]),  # all of it stands in the whole
        "half": "\n\n".join([a, e]),
        "relative": "\n\n".join([d, e, f]),  # one paragraph in three
        "alone": f + "!",
        "short": "too short to tell",
    }
    module = types.ModuleType("topics")
    module.topics = topics
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", module)
    origin = stdlib.MANUAL + "#"
    assert [(document.name, document.origin) for document in stdlib.manual()] == [
        ("manual/alone", origin + "alone"),
        ("manual/relative", origin + "whole"),
        ("manual/short", origin + "short"),
        ("manual/whole", origin + "whole"),
    ]


def test_tests_and_other_people_s_packages_are_left_out():
    found = list(stdlib.modules(Path(sysconfig.get_path("stdlib"))))
    assert found == sorted(found)
    assert {"argparse.py", "json/decoder.py", "unittest/mock.py"} <= set(found)
    parts = {part for name in found for part in name.split("/")}
    assert not parts & {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
    assert not any(name.startswith("_sysconfigdata") for name in parts)


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A standard library of three modules, and its cache."""
    root = tmp_path / "lib"
    for name, text in (("a.py", '"""A."""\n'), ("p/b.py", "# b\nx = 1\n"), ("p/tests/t.py", "# no\n"), ("n.txt", "no")):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(root))
    monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path / "cache"))
    return root


def source_of(parts):
    return {document.name: document.data for document in parts if not document.name.startswith("manual/")}


WANT = {
    "docstrings/a.py": b"A.\n", "docstrings/p/b.py": b"b\n",
    "source/a.py": b'"""A."""\n', "source/p/b.py": b"# b\nx = 1\n",
}  # fmt: skip


def test_the_second_time_comes_from_the_cache(tiny, monkeypatch):
    first = stdlib.read(stdlib.DOMAINS)
    assert source_of(first[1]) == WANT
    monkeypatch.setattr(stdlib, "extract", None)  # cannot be called
    assert stdlib.read(stdlib.DOMAINS) == first
    assert source_of(stdlib.read(("source",))[1]).keys() == {"source/a.py", "source/p/b.py"}


@pytest.mark.parametrize("damage", ["cut", "garbage"])
def test_a_damaged_cache_is_made_again(tiny, tmp_path, damage):
    first = stdlib.read(stdlib.DOMAINS)
    (file,) = (tmp_path / "cache").iterdir()
    good = file.read_bytes()
    file.write_bytes(good[:-7] if damage == "cut" else b"\x80\n[]\n\xff")
    assert stdlib.read(stdlib.DOMAINS) == first
    assert file.read_bytes() == good
    assert [f.name for f in file.parent.iterdir()] == [file.name]  # nothing left lying


def test_a_changed_library_is_extracted_anew(tiny):
    stdlib.read(stdlib.DOMAINS)
    (tiny / "a.py").write_text('"""Another."""\n')
    assert source_of(stdlib.read(stdlib.DOMAINS)[1])["docstrings/a.py"] == b"Another.\n"


def test_changed_extraction_code_is_noticed(tiny, tmp_path, monkeypatch):
    files = stdlib.modules(tiny)
    before = stdlib.cache_name(tiny, files)
    other = tmp_path / "extraction.py"
    other.write_text("# another version\n")
    monkeypatch.setattr(extraction, "__file__", str(other))
    assert stdlib.cache_name(tiny, files) != before


def test_it_works_where_nothing_can_be_written(tiny, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path / "file" / "below"))
    with pytest.warns(UserWarning, match="Not a directory"):
        assert source_of(stdlib.read(stdlib.DOMAINS)[1]) == WANT

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(UserWarning, match="No space left on device"):
        assert source_of(stdlib.read(stdlib.DOMAINS)[1]) == WANT
    assert not list((tmp_path / "cache").iterdir())


def test_a_python_without_its_sources_says_so(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match=r"lacks the source files .* 'docstrings'; give a file or a folder"):
        stdlib.read(("docstrings",))


def test_a_python_without_its_manual_says_so(tiny, monkeypatch):
    monkeypatch.setattr(stdlib, "manual", list)
    with pytest.raises(ConfigError, match=r"lacks pydoc_data/topics.py"):
        stdlib.read(stdlib.DOMAINS)
    assert stdlib.read(("source",))
