"""Workers in a job array of a Slurm cluster.

A job is a slot: a worker that trains one run after the other. Near its time limit, and when Slurm preempts it, it saves
a checkpoint, releases its run and is queued again. The workers need no connection to this process, which only shows
their progress.
"""

import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from lengthwise.config import ConfigError, ExecutorConfig, Slurm
from lengthwise.store import ResultsFolder, Store
from lengthwise.studies.compute import Compute
from lengthwise.studies.events import Event, Note
from lengthwise.studies.executors.base import WorkerError
from lengthwise.studies.executors.watching import RemoteExecutor, require_consistent
from lengthwise.studies.spec import Spec
from lengthwise.studies.worker_process import worker_command
from lengthwise.values import unlisted

SIGNAL_SECONDS = 90  # before the time limit of a job, when it is asked to save its progress
QUEUE_SECONDS = 5.0  # between two questions about the jobs
KILL_SECONDS = 600.0  # that a job which Slurm ends waits for its end
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
                    f"there is no {program} on this machine; run this command on a login node of a Slurm cluster, or "
                    "use --on local"
                )
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
        text = self.spec.to_json()
        file = self.folder / f"worker-{hashlib.sha256(text.encode()).hexdigest()[:8]}.json"
        self.folder.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        try:
            submitted = _output(
                ["sbatch", "--parsable"], stdin=batch_script(self.config, self.spec.compute, self.name, file, number)
            )
        except WorkerError as error:
            raise WorkerError(f"Slurm refused the jobs: {str(error).removeprefix('sbatch failed: ')}") from error
        first = submitted.strip().partition(";")[0]
        count = f"{number} job{'s' if number > 1 else ''}"
        self.emit(Note(text=f"{count} submitted to Slurm as {first} ({self.name}); logs in {self.folder}"))
        self.jobs |= {f"{first}_{n}": "PENDING" for n in range(number)}
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
        """Ask which jobs are left. If none is, submit new ones for the rest, as long as they achieve something."""
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
                "the jobs of Slurm ended before the study was finished; their logs are in "
                f"{self.folder}{self._last_words()}"
            )
        self._submit(self.workers(self.watcher.unfinished))

    def _last_words(self) -> str:
        """Return the last line of the newest log, as a part of a sentence."""
        logs = sorted(self.folder.glob("*_log.out"), key=lambda path: path.stat().st_mtime)
        lines = logs[-1].read_text(errors="replace").strip().splitlines() if logs else []
        lines = [line for line in lines if not line.startswith("srun: ")]
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


def end_job(number: int) -> None:
    """Wait for Slurm to end this job, which has received a signal with this number; queue it again at its time limit.

    If it ended itself, it would not be queued again.
    """
    if number not in (signal.SIGUSR2, signal.SIGTERM) or "SLURM_ARRAY_JOB_ID" not in os.environ:
        return
    for received in (signal.SIGUSR2, signal.SIGTERM):
        signal.signal(received, signal.SIG_IGN)
    if number == signal.SIGUSR2:
        job = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
        _output(["scontrol", "requeue", job], check=False)
    time.sleep(KILL_SECONDS)


def job_name(study: str, identifier: str) -> str:
    """Return the name of the jobs of a study in a results folder, by which the same command finds them again."""
    digest = hashlib.sha256(f"{identifier} {study}".encode()).hexdigest()[:8]
    return f"lengthwise-{re.sub('[^A-Za-z0-9]+', '-', study).strip('-')[:24]}-{digest}"


def batch_script(config: Slurm, compute: Compute, name: str, file: Path, slots: int) -> str:
    """Return the script of a job array. `file`: the `Spec` of its workers, in the folder of their logs."""
    log = file.parent / "%A_%a_log.out"
    options = {
        "job-name": name,
        "array": f"0-{slots - 1}%{config.slots}",
        "nodes": 1,
        "time": config.minutes,
        "partition": config.partition,
        "cpus-per-task": compute.threads * compute.devices_per_run,
        "gpus-per-node": int(config.gpus) or None,
        "mem": config.memory,
        "signal": f"USR2@{SIGNAL_SECONDS}",
        "output": log,
        "open-mode": "append",
        "requeue": True,
        **config.sbatch_options,
    }
    chosen = {option: value for option, value in options.items() if value is not None}
    lines = [
        f"#SBATCH --{option}{'' if value is True else f'={shlex.quote(str(value))}'}"
        for option, value in chosen.items()
    ]
    command = shlex.join(worker_command(str(file), compute.devices_per_run))
    return "\n".join(["#!/bin/bash", *lines, "", f"srun --unbuffered --output={shlex.quote(str(log))} {command}", ""])


def script(config: Slurm, compute: Compute, study: str, results: ResultsFolder) -> str:
    """Return the script that sbatch would get."""
    name = job_name(study, results.identifier(create=False) or "")
    return batch_script(config, compute, name, results.path.resolve() / "slurm" / name / "worker.json", config.slots)


def _output(command: list[str], check: bool = True, stdin: str | None = None) -> str:
    """Return what a program of Slurm prints. Raises `WorkerError`."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, input=stdin)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WorkerError(f"{command[0]} failed: {error}") from error
    if done.returncode and check:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise WorkerError(f"{command[0]} failed: {lines[-1].removeprefix(f'{command[0]}: error: ')}")
    return done.stdout
