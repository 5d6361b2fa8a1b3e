"""Folders that appear complete, or not at all."""

import os
import stat
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from lengthwise.new_folder import new_folder


def test_nothing_is_left_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError), new_folder(tmp_path / "out"):
        raise KeyError
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o700), (0o022, 0o755), (0o002, 0o775)])
def test_a_folder_has_the_permissions_that_the_umask_leaves(umask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        with new_folder(tmp_path / "out") as draft:
            (draft / "a").mkdir()
            save_file({"x": torch.ones(1)}, draft / "a" / "b")  # which gives access to the owner alone
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("out", "out/a", "out/a/b")] == [
        mode,
        mode,
        mode & 0o666,
    ]
