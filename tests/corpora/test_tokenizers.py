"""Tokenizers: what they share, and what their files may contain."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.config import ConfigError
from lengthwise.corpora.tokenizers import ByteTokenizer, FileTokenizer, open_tokenizer
from tests.corpora.small_tokenizers import byte_level, saved, word_level


def test_bytes() -> None:
    tokenizer = open_tokenizer("bytes")
    assert isinstance(tokenizer, ByteTokenizer)
    assert (tokenizer.vocab_size, tokenizer.target_size, tokenizer.bos, tokenizer.eos) == (257, 256, 256, None)
    (tokens,) = tokenizer.encode([b"a\xff"])
    assert tokens.tolist() == [97, 255]
    assert tokens.dtype == tokenizer.dtype == np.uint8
    assert tokenizer.decode([256, 97, 255]) == b"<BOS>a\xff"
    assert tokenizer.files() == {}


def test_a_file_and_its_folder(tmp_path: Path) -> None:
    folder = saved(tmp_path / "words", word_level())
    for name in (folder, folder / "tokenizer.json"):
        tokenizer = open_tokenizer(str(name))
        assert [t.tolist() for t in tokenizer.encode([b"the cat\nsat", b"", b"dog"])] == [[0, 1, 2], [], [5]]
        assert (tokenizer.vocab_size, tokenizer.target_size, tokenizer.bos, tokenizer.eos) == (6, 6, 3, 4)
        assert tokenizer.dtype == np.uint8
        assert tokenizer.decode([3, 0, 1]) == b"<BOS>the cat"
    assert open_tokenizer(str(folder)).sha256 == open_tokenizer(str(folder / "tokenizer.json")).sha256
    assert tokenizer.name == "words/tokenizer.json"


def test_the_configuration_names_the_special_tokens(tmp_path: Path) -> None:
    as_text = {"bos_token": "</s>", "eos_token": None}
    as_object = {"bos_token": {"content": "[UNK]", "__type": "AddedToken"}, "eos_token": "gone"}
    found = [open_tokenizer(str(saved(tmp_path / str(n), word_level(), c))) for n, c in enumerate([as_text, as_object])]
    assert [(t.bos, t.eos, t.vocab_size) for t in found] == [(4, None, 6), (5, None, 6)]
    assert found[0].sha256 != found[1].sha256


def test_without_a_special_token_bos_follows_the_vocabulary(tmp_path: Path) -> None:
    tokenizer = open_tokenizer(str(saved(tmp_path / "t", byte_level())))
    assert (tokenizer.vocab_size, tokenizer.target_size, tokenizer.bos, tokenizer.eos) == (257, 256, 256, None)
    assert tokenizer.dtype == np.uint8
    assert tokenizer.decode([*tokenizer.encode(["für".encode()])[0], 256]) == "für<BOS>".encode()


@given(st.text())
def test_byte_level_text_comes_back(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.getbasetemp() / "byte-level"
    if not folder.exists():
        saved(folder, byte_level())
    tokenizer = open_tokenizer(str(folder))
    (tokens,) = tokenizer.encode([text.encode()])
    assert len(tokens) == len(text.encode())
    assert tokenizer.decode(tokens).decode() == text


def test_unused_ids_count(tmp_path: Path) -> None:
    """An embedding needs a row for the largest ID, however few tokens there are."""
    model = {"type": "WordLevel", "vocab": {"the": 0, "[UNK]": 300}, "unk_token": "[UNK]"}
    tokenizer = open_tokenizer(str(saved(tmp_path / "t", word_level(model=model, added_tokens=[]))))
    assert tokenizer.encode([b"the dog"])[0].tolist() == [0, 300]
    assert (tokenizer.vocab_size, tokenizer.bos) == (302, 301)
    assert tokenizer.dtype == np.dtype("<u2")


def test_no_document_contains_special_tokens_and_none_is_cut_or_padded(tmp_path: Path) -> None:
    changes = {
        "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        "padding": {
            "strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 5, "pad_type_id": 0,
            "pad_token": "[UNK]",
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [3], "tokens": ["<s>"]}},
        },
    }  # fmt: skip
    tokenizer = open_tokenizer(str(saved(tmp_path / "t", word_level(**changes))))
    assert tokenizer.encode([b"the cat sat the"])[0].tolist() == [0, 1, 2, 0]
    level = byte_level()
    level["added_tokens"] = [{**word_level()["added_tokens"][0], "id": 256}]
    tokenizer = open_tokenizer(str(saved(tmp_path / "b", level)))
    assert tokenizer.bos == 256 == tokenizer.vocab_size - 1
    assert len(tokenizer.encode([b"a<s>b"])[0]) == 5  # its letters, not the token


def test_its_files_open_the_same_tokenizer(tmp_path: Path) -> None:
    tokenizer = open_tokenizer(str(saved(tmp_path / "t", word_level(), {"bos_token": "</s>"})))
    copy = tmp_path / "copy"
    copy.mkdir()
    for name, content in tokenizer.files().items():
        (copy / name).write_bytes(content)
    again = open_tokenizer(str(copy))
    assert (again.sha256, again.bos, again.vocab_size) == (tokenizer.sha256, tokenizer.bos, tokenizer.vocab_size)


def test_invalid_utf8_is_refused_unless_tokens_are_bytes(tmp_path: Path) -> None:
    tokenizer = open_tokenizer(str(saved(tmp_path / "t", word_level())))
    with pytest.raises(ConfigError, match=r"not UTF-8 text \(byte 0xff at offset 4\)") as caught:
        tokenizer.encode([b"the", b"cat \xff"])
    assert caught.value.index == 1


def test_names_that_are_no_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "binary.json").write_bytes(b"\x00\xff")
    config = saved(tmp_path / "config", word_level())
    (config / "tokenizer_config.json").write_text("[")
    cases = {
        "byte": "there is no tokenizer 'byte'; did you mean 'bytes'",
        str(tmp_path / "gone"): "there is no tokenizer",
        str(tmp_path / "gone.json"): "No such file",
        str(tmp_path / "empty"): "has no tokenizer.json",
        str(tmp_path / "list.json"): "is not a tokenizer.json",
        str(tmp_path / "binary.json"): "is not a tokenizer.json",
        str(config): "is not a JSON object",
    }
    for name, says in cases.items():
        with pytest.raises(ConfigError, match=says) as caught:
            open_tokenizer(name)
        assert "\n" not in str(caught.value)


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[data\]'"):
        FileTokenizer("t", json.dumps(word_level()).encode())
