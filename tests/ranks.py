"""Several processes that are the ranks of one run, and functions that they execute together."""

import os
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import asdict
from itertools import count
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lengthwise.config import EvaluationConfig, Run
from lengthwise.encodings import PositionEncoding
from lengthwise.evaluation import Division, evaluate
from lengthwise.forms import AttentionModifiers, ToeplitzBias
from lengthwise.span import Span
from lengthwise.studies.ranks import join
from lengthwise.training import Stopped, build, train
from lengthwise.training.parallel import Optimizations
from lengthwise.training.ranks import Ranks
from lengthwise.training.trainer import Trainer


class Either(PositionEncoding):
    """A bias by one of two parameters, which the length decides: parts of a batch may use different ones."""

    def __init__(self) -> None:
        super().__init__()
        self.even, self.odd = (torch.nn.Parameter(torch.tensor([0.3, -0.2])) for _ in range(2))

    def modifiers(self, span: Span) -> AttentionModifiers:
        weight = self.odd if span.length % 2 else self.even
        distance = torch.arange(span.distance_bound)
        return AttentionModifiers(terms=(ToeplitzBias(weight[:, None] * distance.log1p()),))


class Together:
    """Processes that execute the same functions, whose first argument is their `Ranks`. They live until `close`."""

    def __init__(self, size: int):
        context = get_context("spawn")
        self.folder = tempfile.TemporaryDirectory()
        self.members = []
        for rank in range(size):
            pipe, child_pipe = context.Pipe()
            arguments = child_pipe, os.path.join(self.folder.name, "rendezvous"), rank, size
            process = context.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            child_pipe.close()
            self.members.append((process, pipe))

    def __call__(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> list[Any]:
        """Return the results by rank."""
        for _, pipe in self.members:
            pipe.send((function, arguments, options))
        results = [pipe.recv() for _, pipe in self.members]
        for rank, (is_good, result) in enumerate(results):
            assert is_good, f"rank {rank}: {result}"
        return [result for _, result in results]

    def close(self) -> None:
        for process, _ in self.members:
            process.kill()
            process.join()
        self.folder.cleanup()


def _serve(pipe: Connection, rendezvous: str, rank: int, size: int) -> None:
    torch.set_num_threads(1)
    join("cpu", torch.distributed.FileStore(rendezvous, size), rank, size, on_one_machine=True)
    while True:
        function, arguments, options = pipe.recv()
        try:
            pipe.send((True, function(Ranks(rank, size, options.pop("sharding", "ddp")), *arguments, **options)))
        except Exception:
            pipe.send((False, traceback.format_exc()))


# ---- what ranks do together ---


def steps(ranks: Ranks, runs: list[Run], number: int = 2) -> list[tuple[Tensor, dict[str, Tensor]]]:
    """Take training steps in float64. Return the loss and the norm of every step, and all tensors of a checkpoint."""
    found = []
    for run in runs:
        model, task = build(run)
        trainer = Trainer(run, model.double(), task, torch.device("cpu"), ranks=ranks)
        trainer.loss_and_norm = trainer.loss_and_norm.double()
        trainer.model.train()
        for _ in range(number):
            trainer.step()
        tensors = {name: t for name, t in trainer.state()[0].items() if not name.startswith("history/seconds")}
        found.append((trainer.loss_and_norm[:, :number].clone(), tensors))
    return found


def trained(
    ranks: Ranks, run: Run, folder: Path, stop: int | None = None, optimizations: Optimizations | None = None
) -> tuple[list[float], dict[str, Tensor]] | None:
    """Train, or stop before a step. Return the losses of the curve and the weights; None if it stopped."""
    asked = count()
    try:
        result = train(
            run,
            folder,
            ranks=ranks,
            optimizations=optimizations or Optimizations(),
            checkpoint_every=10**6,
            should_stop=lambda: next(asked) == stop,
        )
    except Stopped:
        return None
    return [row["loss"] for row in result.curve], {n: t.detach().clone() for n, t in result.model.state_dict().items()}


def scores(ranks: Ranks, run: Run, config: EvaluationConfig, batch_tokens: int) -> list[dict[str, Any]]:
    """Evaluate an untrained model."""
    model, task = build(run)
    found = evaluate(
        model,
        task,
        config,
        positions=run.training.positions,
        division=Division(batch_tokens, ranks),
    )
    return [{name: value for name, value in asdict(score).items() if name != "seconds"} for score in found]


def read_only_in_first(ranks: Ranks) -> None:
    """Let reading a checkpoint fail in every rank but the first, as on a machine that does not have the files."""
    from lengthwise.training import checkpoint

    def read(path: Path) -> Any:
        raise AssertionError(f"rank {ranks.rank} reads {path}")

    if not ranks.is_first:
        checkpoint.read = read  # type: ignore[assignment]
