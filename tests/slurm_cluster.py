"""A Slurm cluster of one node for tests: the fixture `slurm`, to be imported by the conftest of a folder.

It takes part where Slurm's programs are installed (Debian: `apt install slurm-wlm`) and the tests run as root: its
daemons are started in a temporary folder with ports of their own. The partition `high` preempts the jobs of the
partition `low`.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

CONFIGURATION = """
ClusterName=lengthwise
SlurmctldHost={host}
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=2,bf_interval=2,requeue_delay=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=10
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName={host} CPUs=4 State=UNKNOWN
PartitionName=low Nodes={host} Default=YES MaxTime=INFINITE State=UP PriorityTier=1 OverSubscribe=NO
PartitionName=high Nodes={host} MaxTime=INFINITE State=UP PriorityTier=10 OverSubscribe=NO PreemptMode=OFF
"""


def unsupported_reason() -> str | None:
    """The reason why Slurm takes no part."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    for program in ("slurmctld", "slurmd", "munged", "sbatch"):
        if shutil.which(program, path=path) is None:
            return f"Slurm: {program} is not installed"
    if os.getuid() != 0:
        return "Slurm: its daemons need root"
    return None


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="session")
def slurm() -> Iterator[Path]:
    """The folder of a running cluster; SLURM_CONF names it to Slurm's programs."""
    folder = Path(tempfile.mkdtemp(prefix="lengthwise-slurm-"))
    (folder / "state").mkdir()
    (folder / "spool").mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    folder.chmod(0o755)
    host = socket.gethostname().partition(".")[0]
    ports = {"controller": free_port(), "node": free_port()}
    configuration = folder / "slurm.conf"
    configuration.write_text(CONFIGURATION.format(host=host, folder=folder, **ports))
    old = {name: os.environ.get(name) for name in ("SLURM_CONF", "PATH")}
    os.environ["SLURM_CONF"] = str(configuration)
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:/usr/sbin"
    munge = ["munged", "--foreground", "--force", f"--socket={folder}/munge.socket", f"--key-file={key}"]
    munge += [f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed"]
    try:
        with ExitStack() as daemons:
            for command in (munge, ["slurmctld", "-D"], ["slurmd", "-D"]):
                process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                daemons.callback(process.wait)
                daemons.callback(process.terminate)
            end = time.monotonic() + 60
            while (state := node_state()) not in ("idle", "idle*"):
                assert time.monotonic() < end, f"the node is {state}: {(folder / 'slurmctld.log').read_text()[-2000:]}"
                time.sleep(0.5)
            yield folder
            subprocess.run(["scancel", "--user=root", "--signal=KILL", "--full"], check=False, capture_output=True)
            subprocess.run(["scancel", "--user=root"], check=False, capture_output=True)
    finally:
        for name, value in old.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
        shutil.rmtree(folder, ignore_errors=True)


def node_state() -> str:
    asked = subprocess.run(["sinfo", "--noheader", "--format=%t"], capture_output=True, text=True, check=False)
    return (asked.stdout.split() or ["unknown"])[0]


REASON = unsupported_reason()
needs_slurm = pytest.mark.skipif(bool(REASON), reason=REASON or "")
