"""Workers in a job array of a Slurm cluster, submitted by submitit.

A job is a slot: a worker that trains one run after the other. Near its time limit, and when Slurm preempts it, it saves a
checkpoint, releases its run and is queued again. The workers need no connection to this process, which only shows their progress.
"""

import hashlib
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise.child_processes import python_command
from lengthwise.config import ConfigError, ExecutorConfig, Slurm
from lengthwise.store import ResultsFolder, Store
from lengthwise.studies.compute import Compute
from lengthwise.studies.events import Event, Note
from lengthwise.studies.executors.base import WorkerError
from lengthwise.studies.executors.watching import RemoteExecutor, require_consistent
from lengthwise.studies.worker import Flag, Spec, work
from lengthwise.values import install_extra, unlisted

SIGNAL_SECONDS = 90  # before the time limit of a job, when it is asked to save its progress
QUEUE_SECONDS = 5.0  # between two questions about the jobs
KILL_SECONDS = 600.0  # that a job which Slurm ends waits for its end
PYTHON = shlex.join(python_command())  # of the jobs
MAX_REQUEUES = 100_000
MAX_FRUITLESS = 2  # submissions in a row after which no run has ended and none has advanced


class SlurmExecutor(RemoteExecutor):
    stop_seconds = 120.0

    def __init__(self, config: Slurm, spec: Spec, store: Store, emit: Callable[[Event], None]):
        super().__init__(config, spec, store, emit)
        self.name = job_name(spec.study, self.spec.results_id or "")
        # If the results are at an address, this is in the cache folder, which the nodes must see.
        self.folder = store.files.path.resolve() / "slurm" / self.name
        self.jobs: dict[str, str] = {}  # states of the jobs in the queue
        self.next_question = 0.0
        self.empty = 0  # answers in a row without a job
        self.fruitless = 0
        self.progress = (0, 0)

    @classmethod
    def require_usable(cls, config: ExecutorConfig, compute: Compute, store: str | None) -> None:
        assert isinstance(config, Slurm)
        for program in ("sbatch", "squeue", "scancel", "srun"):
            if shutil.which(program) is None:
                raise ConfigError(
                    f"there is no {program} on this machine; run this command on a login node of a Slurm cluster, or use "
                    "--on local"
                )
        require_submitit()
        require_consistent(config.gpus, compute, store)
        if config.partition is not None:
            partitions = sorted({line.rstrip("*") for line in _output(["sinfo", "--noheader", "--format=%R"]).split()})
            for name in config.partition.split(","):
                if name not in partitions:
                    raise ConfigError(f"Slurm has no partition {unlisted(name, partitions)}")

    def workers(self, unfinished: int) -> int:
        return int(min(self.config.slots, unfinished))

    def start(self, workers: int) -> None:
        self.jobs = self._ask()
        if self.jobs:
            jobs, them = ("1 job", "it") if len(self.jobs) == 1 else (f"{len(self.jobs)} jobs", "them")
            self.emit(Note(text=f"found {jobs} of an earlier command in the queue; this command follows {them}"))
        self._submit(workers - len(self.jobs))

    def _submit(self, number: int) -> None:
        if number < 1:
            return
        from submitit import SlurmExecutor as Submitter

        require_private(self.folder.parent)
        require_private(self.folder)
        submitter = Submitter(self.folder, max_num_timeout=MAX_REQUEUES, python=PYTHON)
        submitter.update_parameters(**parameters(self.config, self.spec.compute, self.name))
        try:
            with submitter.batch():
                jobs = [submitter.submit(Slot(self.spec)) for _ in range(number)]
        except Exception as error:  # submitit raises errors of many kinds; the last line is that of sbatch
            lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
            raise WorkerError(f"Slurm refused the jobs: {lines[-1].removeprefix('sbatch: error: ')}") from error
        first = jobs[0].job_id.partition("_")[0]
        count = f"{number} job{'s' if number > 1 else ''}"
        self.emit(Note(text=f"{count} submitted to Slurm as {first} ({self.name}); logs in {self.folder}"))
        self.jobs |= {job.job_id: "PENDING" for job in jobs}
        self.next_question = time.monotonic() + QUEUE_SECONDS

    def poll(self, seconds: float) -> None:
        self.watcher.look()
        if time.monotonic() >= self.next_question:
            self._follow()
        if self.stopping.is_set():
            time.sleep(seconds)
        else:
            self.stopping.wait(seconds)

    def _follow(self) -> None:
        """Learn which jobs are left. If none is and the study is unfinished, submit new ones as long as they achieve something."""
        try:
            self.jobs = self._ask()
        except WorkerError as error:  # the controller may be restarting
            self.emit(Note(text=f"{error}; the jobs continue, and this command asks again"))
            self.next_question = time.monotonic() + 6 * QUEUE_SECONDS
            return
        self.next_question = time.monotonic() + (1.0 if self.stopping.is_set() else QUEUE_SECONDS)
        self.empty = 0 if self.jobs else self.empty + 1  # a job that is queued again is absent for a moment
        self.watcher.look(now=True)
        if self.empty < 2 or self.stopping.is_set() or not self.watcher.unfinished:
            return
        progress = (self.watcher.ended, sum(row.step for row in self.watcher.last.values()))
        self.fruitless = 0 if progress != self.progress else self.fruitless + 1
        self.progress = progress
        if self.fruitless >= MAX_FRUITLESS:
            raise WorkerError(
                f"the jobs of Slurm ended before the study was finished; their logs are in {self.folder}{self._last_words()}"
            )
        self._submit(self.workers(self.watcher.unfinished))

    def _last_words(self) -> str:
        """Return the last line of the newest log, as a part of a sentence."""
        logs = sorted(self.folder.glob("*_log.out"), key=lambda path: path.stat().st_mtime)
        lines = logs[-1].read_text(errors="replace").strip().splitlines() if logs else []
        return f"; the last line is: {lines[-1]}" if lines else ", unless the nodes do not share this folder"

    def _ask(self) -> dict[str, str]:
        """Return the states of the jobs with our name, by job ID."""
        queue = ["squeue", "--noheader", "--array", f"--user={os.getuid()}", f"--name={self.name}", "--format=%i|%T"]
        rows = (line.split("|") for line in _output(queue).splitlines())
        return {row[0]: row[1] for row in rows if len(row) == 2}

    @property
    def active(self) -> bool:
        if self.stopping.is_set():
            return any(state != "COMPLETING" for state in self.jobs.values())
        return super().active

    def stop(self) -> None:
        """Cancel the jobs that wait, and ask the others to end with SIGINT, after which they are not queued again."""
        self.stopping.set()
        self.next_question = 0.0
        if self.jobs:
            name = f"--name={self.name}"
            _output(["scancel", f"--user={os.getuid()}", name, "--state=PENDING"], check=False)
            _output(["scancel", f"--user={os.getuid()}", name, "--signal=INT"], check=False)

    def kill(self) -> None:
        _output(["scancel", f"--user={os.getuid()}", f"--name={self.name}"], check=False)


@dataclass(frozen=True)
class Slot:
    """A worker in a job, which submitit calls."""

    spec: Spec

    def __call__(self) -> None:
        stop = _Stop()
        requeue = signal.getsignal(signal.SIGUSR2)  # submitit's, which queues this job again
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):
            signal.signal(number, stop.record)
        work(self.spec, stop)
        if stop.number == signal.SIGUSR2:
            signal.signal(signal.SIGUSR2, requeue)
            os.kill(os.getpid(), signal.SIGUSR2)
        if stop.number in (signal.SIGUSR2, signal.SIGTERM):
            time.sleep(KILL_SECONDS)  # Slurm ends or preempts the job; if it ended itself, it would not be queued again

    def checkpoint(self) -> Any:
        """Return what submitit queues again."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


class _Stop:
    """The parent of the worker in a job: it passes signals on and prints events."""

    def __init__(self) -> None:
        self.stop_requested = Flag()
        self.number: int | None = None

    def record(self, number: int, _: object) -> None:
        self.number = self.number or number
        self.stop_requested.set()

    def send(self, event: Event) -> None:
        if not hasattr(event, "step"):
            print(time.strftime("%Y-%m-%d %H:%M:%S"), event, flush=True)


def job_name(study: str, identifier: str) -> str:
    """Return the name of the jobs of a study in a results folder, by which the same command finds them again."""
    digest = hashlib.sha256(f"{identifier} {study}".encode()).hexdigest()[:8]
    return f"lengthwise-{re.sub('[^A-Za-z0-9]+', '-', study).strip('-')[:24]}-{digest}"


def parameters(config: Slurm, compute: Compute, name: str) -> dict[str, Any]:
    """Return the parameters of submitit."""
    found: dict[str, Any] = {
        "job_name": name,
        "time": config.minutes,
        "partition": config.partition,
        "cpus_per_task": compute.threads * compute.devices_per_run,
        "gpus_per_node": int(config.gpus) or None,
        "mem": config.memory,
        "array_parallelism": config.slots,
        "signal_delay_s": SIGNAL_SECONDS,
        "stderr_to_stdout": True,
        "wckey": None,
        "additional_parameters": {**config.sbatch_options, "requeue": True},
    }
    return {key: value for key, value in found.items() if value is not None or key == "wckey"}


def script(config: Slurm, compute: Compute, study: str, results: ResultsFolder) -> str:
    """Return the script that sbatch would get."""
    require_submitit()
    from submitit.slurm.slurm import _make_sbatch_string

    name = job_name(study, results.identifier(create=False) or "")
    folder = results.path.resolve() / "slurm" / name
    command = f"{PYTHON} -u -m submitit.core._submit {shlex.quote(str(folder))}"
    given = parameters(config, compute, name)
    return str(_make_sbatch_string(command=command, folder=folder, map_count=config.slots, **given))


def require_private(folder: Path) -> None:
    """Create a folder for the files of jobs. Raises `WorkerError` if somebody else could write into it, since jobs execute them."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise WorkerError(
            f"{folder} must be a folder that only you can write; remove it, or give another results folder"
        )


def require_submitit() -> None:
    try:
        import submitit  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError(f"--on slurm needs the package submitit; {install_extra('slurm')}") from error


def _output(command: list[str], check: bool = True) -> str:
    """Return what a program of Slurm prints. Raises `WorkerError`."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WorkerError(f"{command[0]} failed: {error}") from error
    if done.returncode and check:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise WorkerError(f"{command[0]} failed: {lines[-1]}")
    return done.stdout
