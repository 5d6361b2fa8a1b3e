"""Files of runs: a key becomes a path in one place, which never leads out of the results folder."""

from pathlib import Path

import pytest

from lengthwise.store import StoreError, delete_run, run_folder
from lengthwise.values import ConfigError

KEY = "0123456789abcdef"
NO_KEYS = ["", "a1", "../../victim", "/etc/passwd", KEY.upper(), KEY + "0", KEY + "\n", "g" * 16, "0123456789abcde/"]


@pytest.mark.parametrize("key", NO_KEYS)
def test_only_keys_become_paths(tmp_path: Path, key: str) -> None:
    for use in (run_folder, delete_run):
        with pytest.raises(StoreError, match="must be a run key of 16 hex digits") as caught:
            use(tmp_path, key)
        assert str(caught.value).isascii()


def test_a_run_s_folder_is_made_and_deleted_in_the_results(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, KEY)
    assert folder == tmp_path / "runs" / KEY
    delete_run(tmp_path, KEY)  # nothing is there yet
    folder.mkdir(parents=True)
    (folder / "weights.safetensors").write_text("x")
    delete_run(tmp_path, KEY)
    assert list((tmp_path / "runs").iterdir()) == []


def test_the_results_folder_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real" / "runs" / KEY).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    delete_run(tmp_path / "link", KEY)
    assert not (tmp_path / "real" / "runs" / KEY).exists()


@pytest.mark.parametrize("link", ["runs", f"runs/{KEY}"])
def test_links_in_it_lead_nowhere(tmp_path: Path, link: str) -> None:
    victim = tmp_path / "victim"
    (victim / KEY).mkdir(parents=True)
    (victim / "diary.txt").write_text("dear diary")
    results = tmp_path / "results"
    (results / link).parent.mkdir(parents=True)
    (results / link).symlink_to(victim)
    with pytest.raises(
        StoreError, match="must not be a link, because runs are written and deleted only inside the results folder"
    ):
        run_folder(results, KEY)
    if link == "runs":
        with pytest.raises(StoreError, match="must not be a link"):
            delete_run(results, KEY)
    else:
        delete_run(results, KEY)
        assert not (results / link).is_symlink()
    assert (victim / KEY).is_dir()
    assert (victim / "diary.txt").read_text() == "dear diary"


def test_an_address_is_no_folder() -> None:
    with pytest.raises(ConfigError) as caught:
        run_folder("postgresql://user:secret@localhost/db", KEY)
    assert "secret" not in str(caught.value)
    assert "user" not in str(caught.value)
