"""The folders of runs: a key becomes a path in one place, which never leads out of the results folder."""

from pathlib import Path

import pytest

from lengthwise.store import ResultsFolder, StoreError

KEY = "0123456789abcdef"
NO_KEYS = ["", "a1", "../../victim", "/etc/passwd", KEY.upper(), KEY + "0", KEY + "\n", "g" * 16, "0123456789abcde/"]


@pytest.mark.parametrize("key", NO_KEYS)
def test_only_keys_become_paths(tmp_path: Path, key: str) -> None:
    files = ResultsFolder(tmp_path)
    for use in (files.run_folder, files.delete):
        with pytest.raises(StoreError, match="must be a run key of 16 hex digits") as caught:
            use(key)
        assert str(caught.value).isascii()


def test_a_run_s_folder_is_deleted(tmp_path: Path) -> None:
    files = ResultsFolder(tmp_path)
    folder = files.run_folder(KEY)
    assert folder == tmp_path / "runs" / KEY
    files.delete(KEY)  # nothing is there yet
    folder.mkdir(parents=True)
    (folder / "weights.safetensors").write_text("x")
    assert files.trained([KEY, "f" * 16]) == {KEY}
    files.delete(KEY)
    assert list((tmp_path / "runs").iterdir()) == []


def test_the_identifier_stays(tmp_path: Path) -> None:
    files = ResultsFolder(tmp_path / "results")
    assert files.identifier(create=False) is None
    assert not files.path.exists()
    first = files.identifier(create=True)
    assert first and files.identifier(create=True) == files.identifier(create=False) == first
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StoreError, match=r"cannot be used \(.*\); give another results folder"):
        ResultsFolder(tmp_path / "file").identifier(create=False)
