"""Folders that appear complete, or not at all."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from lengthwise.new_folder import new_folder

WRITER = "import sys, time; from lengthwise.new_folder import new_folder\n"
WRITER += "with new_folder(sys.argv[1]) as draft: (draft / 'part').touch(); print(flush=True); time.sleep(60)"


def test_the_draft_of_a_killed_process_is_deleted_by_the_next_call(tmp_path: Path) -> None:
    """One that belongs to a living process stays, and so does everything else."""
    (tmp_path / ".out.notes").mkdir()
    processes = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "out")], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    try:
        for process in processes:
            assert process.stdout is not None and process.stdout.readline()
        drafts = set(tmp_path.glob(".out.*.draft"))
        assert len(drafts) == 2
        os.kill(processes[0].pid, signal.SIGKILL)
        processes[0].wait()
        with new_folder(tmp_path / "out") as draft:
            (draft / "whole").touch()
        left = set(tmp_path.glob(".out.*.draft"))
        assert len(left) == 1 and left < drafts and (left.pop() / "part").exists()
    finally:
        for process in processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["whole"] and (tmp_path / ".out.notes").exists()


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
