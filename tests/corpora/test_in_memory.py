import hashlib
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.config import ConfigError
from lengthwise.corpora import in_memory
from lengthwise.corpora.documents import Document
from lengthwise.corpora.in_memory import Corpus, read, remove_duplicates

documents = st.dictionaries(st.text(min_size=1), st.binary(min_size=1, max_size=50), min_size=2, max_size=12)


def folder(path, **files):
    for name, data in files.items():
        file = path / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return path


def names(found):
    return [document.name for document in found.documents]


def test_a_folder_is_read_sorted_by_path_as_bytes(tmp_path):
    folder(tmp_path, b=b"\x00\xff", a__z=b"\r\n", a__b__c=b"x", B=b"caf\xe9", empty=b"")
    found = read(str(tmp_path), "**/*")
    assert [(d.name, d.data) for d in found.documents] == [
        ("B", b"caf\xe9"), ("a/b/c", b"x"), ("a/z", b"\r\n"), ("b", b"\x00\xff"),
    ]  # fmt: skip
    assert found.name == tmp_path.name
    assert found.size == 9


def test_the_glob_chooses_and_hidden_files_do_not_count(tmp_path):
    files = {"a.txt": b"11", "b.md": b"2", "c__d.txt": b"3", ".git__x.txt": b"4", ".h.txt": b"5", "c__.x__y.txt": b"6"}
    folder(tmp_path, **files)
    assert names(read(str(tmp_path), "**/*")) == ["a.txt", "b.md", "c/d.txt"]
    assert names(read(str(tmp_path), "**/*.txt")) == ["a.txt", "c/d.txt"]
    assert names(read(str(tmp_path), "*.txt")) == ["a.txt"]


def test_a_folder_that_may_not_be_entered_is_not_passed_over(tmp_path, monkeypatch):
    folder(tmp_path, a__x=b"11", b__x=b"22", b__c__x=b"33", b__c__d__x=b"44", b__0hidden=b"1")
    scandir = os.scandir

    def refuse(path):
        if os.fspath(path) == str(tmp_path / "b" / "c"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    for glob in ("**/*", "b/**/x"):
        with pytest.raises(ConfigError) as caught:
            read(str(tmp_path), glob)
        assert str(caught.value).startswith(f"cannot read the folder {tmp_path / 'b' / 'c'}: Permission denied; "), glob
    assert names(read(str(tmp_path), "a/*")) == ["a/x"]
    assert names(read(str(tmp_path), "b/*")) == ["b/0hidden", "b/x"]


def test_equal_files_count_once():
    found = remove_duplicates([Document(n, n, d) for n, d in (("a", b"x"), ("b", b"y"), ("c", b"x"), ("d", b""))])
    assert [document.name for document in found] == ["a", "b"]


def test_a_changed_file_is_read_again(tmp_path):
    file = tmp_path / "a"
    file.write_bytes(b"one")
    before = read(str(file), "")
    assert read(str(file), "") is before
    file.write_bytes(b"two")
    os.utime(file, ns=(1, 1))
    assert read(str(file), "").documents[0].data == b"two"


def test_the_hash_covers_names_and_bytes_and_their_borders():
    def sha(*pairs):
        return Corpus("", tuple(Document(name, name, data) for name, data in pairs)).sha256

    base = sha(("a", b"1"), ("b", b"2"))
    others = [
        sha(("a", b"1"), ("b", b"3")),
        sha(("a", b"1"), ("c", b"2")),
        sha(("b", b"2"), ("a", b"1")),
        sha(("a", b"1")),
        sha(("a", b"1"), ("b", b"2"), ("c", b"3")),
        sha(("a1", b""), ("b", b"2")),
    ]
    assert len({base, *others}) == 7
    assert re.fullmatch("[0-9a-f]{64}", base)
    assert base == sha(("a", b"1"), ("b", b"2"))
    assert sha(("a", b"1")) == sha(("renamed", b"1"))  # a single file's name splits nothing


@pytest.mark.medium
@given(documents, st.floats(0.01, 0.99))
def test_every_file_is_in_exactly_one_split_and_both_have_one(files, validation):
    made = Corpus("", remove_duplicates(Document(name, name, data) for name, data in sorted(files.items())))
    if len(made.documents) < 2:
        return
    train, test = made.split(validation)
    assert train
    assert test
    assert sorted(train + test) == sorted(document.data for document in made.documents)
    held = sum(map(len, test))
    smallest = min(len(document.data) for document in made.documents)
    assert held <= max(1.5 * validation * made.size, smallest)


@pytest.mark.medium
@given(st.lists(st.integers(1, 1000), min_size=200, max_size=200), st.sampled_from([0.05, 0.1, 0.3]))
def test_the_share_is_kept_among_many_files(sizes, validation):
    made = Corpus("", tuple(Document(str(n), str(n), bytes(size)) for n, size in enumerate(sizes)))
    assert sum(map(len, made.split(validation)[1])) == pytest.approx(validation * made.size, abs=1000)


def test_files_are_held_out_in_the_order_of_the_hash_of_their_names():
    """The same files on every machine, in other versions too."""
    files = [Document(f"é/{n}.txt", f"é/{n}.txt", b"%03d" % n) for n in range(40)]
    want = sorted(files, key=lambda file: hashlib.sha256(file.name.encode()).hexdigest())[:4]
    assert set(Corpus("", tuple(files)).split(0.1)[1]) == {file.data for file in want}


def test_documents_of_one_origin_stay_together():
    made = Corpus("", tuple(Document(f"{k}/{n}", str(n), b"%d%s" % (n, k.encode())) for k in "ab" for n in range(50)))
    train, test = made.split(0.2)
    assert not {data[:-1] for data in train} & {data[:-1] for data in test}
    assert len(test) > 4


def test_one_huge_file_is_not_held_out():
    files = [Document(str(n), str(n), bytes(10)) for n in range(5)] + [Document("big", "big", bytes(900))]
    train, test = Corpus("", tuple(files)).split(0.05)
    assert bytes(900) in train
    assert len(test) == 5


@given(st.binary(min_size=2, max_size=300), st.floats(0.01, 0.99))
def test_a_single_file_is_cut_without_loss(data, validation):
    (train,), (test,) = Corpus("", (Document("a", "a", data),)).split(validation)
    assert train
    assert test
    assert train + test == data


def test_a_single_file_is_cut_at_a_line_break_near_the_share():
    lines = b"".join(b"line %d\n" % n for n in range(1000))
    (train,), (test,) = Corpus("", (Document("a", "a", lines),)).split(0.1)
    assert train.endswith(b"\n")
    assert len(test) == pytest.approx(0.1 * len(lines), abs=20)
    (train,), (test,) = Corpus("", (Document("a", "a", "é".encode() * 505),)).split(0.1)
    train.decode(), test.decode()  # not inside a character


class TestBadInput:
    """One line each: what it got, why that cannot be, what to do."""

    def refused(self, path, glob, *says):
        with pytest.raises(ConfigError) as caught:
            read(str(path), glob)
        message = str(caught.value)
        assert "\n" not in message
        for word in says:
            assert word in message

    def test_missing(self, tmp_path):
        self.refused(tmp_path / "no", "*", "there is no text at", str(tmp_path / "no"), "give")

    def test_no_path(self):
        self.refused(" ", "*", "the text must be a file, a folder")

    def test_empty_file(self, tmp_path):
        (tmp_path / "a").touch()
        self.refused(tmp_path / "a", "*", "is empty", "give more")

    def test_a_folder_of_empty_files(self, tmp_path):
        folder(tmp_path, a=b"", b=b"")
        self.refused(tmp_path, "*", "is empty")

    def test_a_folder_without_matches(self, tmp_path):
        folder(tmp_path, a=b"x")
        self.refused(tmp_path, "*.txt", "no file in", "'*.txt'", "change the glob")

    @pytest.mark.parametrize("glob", ["", "../*"])
    def test_a_glob_that_leads_elsewhere(self, tmp_path, glob):
        folder(tmp_path, inner__a=b"x", b=b"y")
        self.refused(tmp_path / "inner", glob, "the glob", repr(glob))

    def test_an_unreadable_file(self, tmp_path, monkeypatch):
        folder(tmp_path, a=b"x", b=b"y")

        def denied(self):
            raise PermissionError(13, "Permission denied", str(self))

        monkeypatch.setattr("pathlib.Path.read_bytes", denied)
        self.refused(tmp_path, "*", "cannot read", str(tmp_path / "a"), "Permission denied")

    def test_something_that_is_no_file(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        self.refused(tmp_path / "pipe", "*", "neither a file nor a folder")
        self.refused(tmp_path, "*", "no file in")  # and in a folder it is passed over

    def test_more_than_fits(self, tmp_path, monkeypatch):
        monkeypatch.setattr(in_memory, "MAX_BYTES", 10)
        folder(tmp_path, a=b"123456", b=b"abcdef")
        self.refused(tmp_path, "*", "got 12", "at most 10 bytes")

    def test_an_unknown_part_of_the_built_in_text(self):
        self.refused("python:manuel", "", "'manuel'", "did you mean 'manual'")
