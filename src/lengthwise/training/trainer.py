"""The state of a training, its step, and its result."""

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lengthwise.config import Run
from lengthwise.models import Model
from lengthwise.positions import position_scheme_for
from lengthwise.tasks.base import Batch, Task, generator
from lengthwise.tasks.splits import shuffled
from lengthwise.training.checkpoint import flatten, load_model, load_optimizer, optimizer_tensors, split, whole_tensors
from lengthwise.training.numerics import seed_step
from lengthwise.training.optimizer import learning_rate, make_optimizer
from lengthwise.training.parallel import NO_OPTIMIZATIONS, Optimizations, passes
from lengthwise.training.progress import TrainingError
from lengthwise.training.ranks import ALONE, Ranks
from lengthwise.training.stopwatch import Stopwatch
from lengthwise.training.tracked import TrackedNumbers

MAX_CURVE_ROWS = 200  # approximate
SMOOTHED_STEPS = 20


@dataclass(frozen=True)
class Trained:
    """The result of a finished training."""

    model: nn.Module
    task: Task
    curve: list[dict[str, float]]  # step, loss, learning_rate, gradient_norm, tokens_per_second
    seconds: float  # of training, over all interruptions
    parameters: int
    backend: str  # attention backends that were used, such as "sdpa"
    loop_overhead: float  # share of the time outside of forward, backward and optimizer
    tracked: dict[str, Any]  # the development of the encodings' numbers, see `TrackedNumbers.result`
    peak_memory: int | None = None  # bytes, since the last interruption; see `PeakMemory`

    @property
    def steps(self) -> int:
        """Return the number of training steps, which `StopWhenLearned` makes smaller than that of the run."""
        return int(self.curve[-1]["step"]) if self.curve else 0


def fixed_numbers(run: Run, step: int) -> list[int]:
    """Return the numbers of the fixed training examples that a step uses: the next ones in the random order of its
    epoch.

    A step at the end of an epoch also uses the first ones of the next epoch.
    """
    size = run.training.train_examples
    assert size is not None
    indices = torch.arange(run.training.batch_size) + step * run.training.batch_size
    epochs = indices // size
    numbers = torch.empty_like(indices)
    for epoch in epochs.unique().tolist():
        in_epoch = epochs == epoch
        numbers[in_epoch] = shuffled(indices[in_epoch] % size, size, generator(run.data_seed, "epoch", epoch))
    return numbers.tolist()


class Trainer:
    """The state of a training: the model, the optimizer, and the measurements of every step. Checkpoints store it.

    A step never waits for the device: losses and gradient norms are written into a tensor on the device, which is read
    when the curve, a progress report or a checkpoint needs them.
    """

    def __init__(
        self,
        run: Run,
        model: Model,
        task: Task,
        device: torch.device,
        *,
        ranks: Ranks = ALONE,
        optimizations: Optimizations = NO_OPTIMIZATIONS,
    ):
        self.run, self.model, self.task, self.device, self.ranks = run, model, task, device, ranks
        self.passes = passes(model, ranks, optimizations)
        self.scheme = position_scheme_for(task, run.training.positions)
        self.optimizer = make_optimizer(model, run.training)
        self.parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        steps = run.training.steps
        self.loss_and_norm = torch.full((2, steps), math.nan, device=device)  # loss and gradient norm of every step
        self.token_slots = np.zeros(steps, np.int64)  # in every step's batch
        self.stopwatch = Stopwatch(device, steps)
        self.steps_per_row = max(1, math.ceil(steps / MAX_CURVE_ROWS))  # of the curve
        self.tracked = TrackedNumbers(model, steps, self.steps_per_row, device)
        self.steps_done = 0
        self.steps_checked = 0  # steps whose loss and gradient norm are known to be finite
        self.scores: list[float] = []  # at the training length, for `StopWhenLearned`
        self.is_learned = False

    @property
    def is_finished(self) -> bool:
        return self.is_learned or self.steps_done == self.run.training.steps

    def batch(self) -> Batch:
        """Return the batch of the next step. It depends only on the run and the step."""
        config, g = self.run.training, generator(self.run.data_seed, "train", self.steps_done)
        shortest, longest = config.min_length or config.train_length, config.train_length
        if config.train_examples is not None:
            numbers = fixed_numbers(self.run, self.steps_done)
            return self.task.fixed_examples(self.run.data_seed, numbers, shortest, longest)
        if config.curriculum is None:
            return self.task.training_batch(g, config.batch_size, shortest, longest)
        length = config.curriculum.length_at(self.steps_done, longest)
        all_dims = self.task.curriculum_dims
        dims = None if all_dims is None else config.curriculum.dims_at(self.steps_done, all_dims)
        return self.task.training_batch(g, config.batch_size, length, length, dims=dims)

    def positions(self, batch: Batch) -> Tensor | None:
        """Return the position IDs of the next step's batch, or None for 0, 1, 2, ..., from the run and the step."""
        g = generator(self.run.seed, "layout", self.steps_done)
        return self.scheme.positions(batch.inputs, None, g, training=True)

    def step(self) -> None:
        """Train one step: sample, forward and backward of the micro-batches, clip, update. Collective."""
        config = self.run.training
        if self.steps_done == 0:
            self.tracked.record(0)
        batch = self.batch()
        all_positions = self.positions(batch)  # drawn for the whole batch, so that its division does not change them
        scored = int(batch.scored.sum())
        if not scored:
            raise TrainingError(f"{self.name}: at step {self.steps_done + 1} the batch has no target that is scored")
        numbers, slices = zip(*self.ranks.micro_batches(config), strict=True)
        micro_batches = [batch[rows] for rows in slices]
        positions_of_each = [None if all_positions is None else all_positions[rows] for rows in slices]
        shares = [int(micro_batch.scored.sum()) / scored for micro_batch in micro_batches]
        if self.device.type != "cpu":
            micro_batches = [self.to_device(micro_batch) for micro_batch in micro_batches]
            positions_of_each = [None if p is None else p.to(self.device, non_blocking=True) for p in positions_of_each]
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(config, self.steps_done)
        with self.stopwatch:
            losses = []
            for n, micro_batch, positions, share in zip(numbers, micro_batches, positions_of_each, shares, strict=True):
                if share or self.ranks.size > 1:  # the other ranks wait for the gradients of every rank
                    self.seed_dropout(n)
                    with self.passes.micro_batch(is_last=n == numbers[-1]):
                        losses.append(self.forward_and_backward(micro_batch, positions, share))
            loss = self.ranks.sum(losses[0] if len(losses) == 1 else torch.stack(losses).sum())
            norm = self.passes.clip(self.parameters, config.clip)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        self.loss_and_norm[0, self.steps_done] = loss
        self.loss_and_norm[1, self.steps_done] = norm
        self.token_slots[self.steps_done] = batch.targets.numel()
        self.steps_done += 1
        self.tracked.record(self.steps_done)

    def stop_if_learned(self) -> None:
        """Score the model if `StopWhenLearned` is due, and end the training if it has learned. Collective."""
        stop = self.run.training.stop
        if stop is None or self.steps_done % stop.every or self.is_finished:
            return
        self.scores.append(self.score(stop.examples))
        sign = 1 if self.task.metric.better == "higher" else -1
        last = self.scores[-stop.times :]
        learned = len(last) == stop.times and all(sign * score >= sign * stop.score for score in last)
        (self.is_learned,) = self.ranks.flags_of_first(learned)
        if self.is_learned:
            self.tracked.end(self.steps_done)

    @torch.no_grad()
    def score(self, count: int) -> float:
        """Return the mean score of new training examples of the training length. They depend only on the run and the
        step.

        Collective. For a task with one score for all examples together, it is the mean over forward passes.
        """
        config = self.run.training
        g = generator(self.run.data_seed, "stop", self.steps_done)
        examples = self.task.sample(g, count, config.train_length, "train")
        positions = self.scheme.positions(examples.inputs, None, g, training=False)
        self.model.eval()
        total = 0.0
        for start in range(0, len(examples), config.batch_size):
            rows = slice(start, start + config.batch_size)
            micro_batch = examples[rows].to(self.device)
            position_ids = {} if positions is None else {"positions": positions[rows].to(self.device)}
            total += float(self.task.score(self.model(micro_batch.inputs, **position_ids), micro_batch).sum())
        self.model.train()
        return total / len(examples)

    def forward_and_backward(self, micro_batch: Batch, positions: Tensor | None, share: float) -> Tensor:
        """Add the gradients of a micro-batch. Return its share of the loss, which is the mean over all scored slots."""
        with self.autocast():
            logits = self.passes.forward(micro_batch.inputs, positions=positions)
            loss = self.task.loss(logits, micro_batch) * share if share else 0.0 * logits.sum()
        (loss * self.passes.loss_factor if self.ranks.size > 1 else loss).backward()
        return loss.detach()

    def seed_dropout(self, micro_batch: int) -> None:
        """Seed dropout for a micro-batch, so that it does not depend on the rank that processes it."""
        numbers = (self.steps_done, micro_batch) if micro_batch else (self.steps_done,)
        seed_step(generator(self.run.seed, "dropout", *numbers).initial_seed(), self.device)

    def to_device(self, batch: Batch) -> Batch:
        return (batch.map(Tensor.pin_memory) if self.device.type == "cuda" else batch).to(self.device)

    def autocast(self) -> AbstractContextManager[Any]:
        """Return a context for mixed precision with bfloat16, if the run has it; the default is that on CUDA only."""
        precision = self.run.training.precision or ("bfloat16" if self.device.type == "cuda" else "float32")
        return torch.autocast(self.device.type, dtype=torch.bfloat16) if precision == "bfloat16" else nullcontext()

    @property
    def name(self) -> str:
        return f"run {self.run.key} ({self.run.label}, {self.run.task.label}, seed {self.run.seed})"

    def loss(self) -> float:
        """Return the mean loss of the last `SMOOTHED_STEPS` steps in nats. Waits for the device.

        The loss of one batch says little, because all its examples have one length, drawn at random.
        """
        return float(self.loss_and_norm[0, max(0, self.steps_done - SMOOTHED_STEPS) : self.steps_done].mean())

    def require_finite(self) -> None:
        """Raise `TrainingError` for the first step whose loss or gradient norm is not finite. Waits for the device."""
        unchecked = self.loss_and_norm[:, self.steps_checked : self.steps_done].cpu()
        bad = (~unchecked.isfinite()).any(0).nonzero()
        if len(bad):
            column = int(bad[0])
            loss, norm = (float(x) for x in unchecked[:, column])
            problem = f"the loss is {loss}" if not math.isfinite(loss) else f"the gradient's norm is {norm}"
            config = self.run.training
            if self.steps_checked + column == 0 and not math.isfinite(loss):
                raise TrainingError(
                    f"{self.name}: {problem} at step 1, before any update, so a class or its input gives numbers that "
                    "are not finite; `lengthwise check NAME` tests an encoding, `lengthwise sample NAME` shows a task"
                )
            raise TrainingError(
                f"{self.name}: at step {self.steps_checked + column + 1} of {config.steps} {problem}; "
                f"try a lower learning_rate (now {config.learning_rate:g}), a longer warmup or a smaller clip"
            )
        self.steps_checked = self.steps_done

    def require_finite_weights(self, tensors: dict[str, Tensor]) -> None:
        """Raise `TrainingError` if a parameter is not finite, which a step can cause although its gradients are."""
        parameters = {name for name, _ in self.model.named_parameters()}
        for name, t in tensors.items():
            if name.removeprefix("model/") in parameters and not bool(t.isfinite().all()):
                raise TrainingError(
                    f"{self.name}: after step {self.steps_done} the weights {name.removeprefix('model/')} are not "
                    "finite; try a lower learning_rate, or drop the run and train it again"
                )

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the tensors and further state of a checkpoint. Collective.

        Random generators are not included, because every step seeds its own (see `batch` and `step`).
        """
        history = {
            "measured": self.loss_and_norm[:, : self.steps_done],
            "places": torch.from_numpy(self.token_slots[: self.steps_done]),
            "seconds": torch.from_numpy(self.stopwatch.steps[: self.steps_done]),
        }
        if self.tracked.numbers:
            history["tracked"] = self.tracked.recorded(self.steps_done)
        optimizer = optimizer_tensors(self.optimizer, self.model)
        total, busy = self.stopwatch.totals()
        tensors = flatten(model=whole_tensors(self.model), optimizer=optimizer, history=history)
        scores = {"scores": self.scores} if self.run.training.stop is not None else {}
        return tensors, {"seconds": total, "busy": busy, **scores}

    def restore(self, tensors: dict[str, Tensor], state: dict[str, Any], path: Path) -> None:
        """Continue from a checkpoint. Raises `CheckpointError` if its tensors are not those of the model."""
        groups, step = split(tensors), state["step"]
        history = groups["history"]
        load_model(self.model, groups["model"], path)
        load_optimizer(self.optimizer, self.model, groups["optimizer"])
        self.steps_done = step
        self.loss_and_norm[:, :step] = history["measured"].to(self.device)
        self.token_slots[:step] = history["places"].numpy()
        if self.tracked.numbers:
            self.tracked.restore(history["tracked"])
        self.stopwatch.restore(history["seconds"].numpy(), state["seconds"], state["busy"])
        self.scores = list(state.get("scores", ()))
        self.steps_checked = step

    def curve(self, after: int = 0) -> list[dict[str, float]]:
        """Return one row for every `steps_per_row` steps: the means over them, and the learning rate of the last.

        The last row may have fewer steps if they are the last of the training. `after`: the step of an earlier row, to
        return only those that follow it.
        """
        rows = []
        complete = self.steps_done if self.is_finished else self.steps_done - self.steps_done % self.steps_per_row
        loss_and_norm = self.loss_and_norm[:, :complete].cpu().double() if after < complete else None
        for begin in range(after, complete, self.steps_per_row):
            assert loss_and_norm is not None
            end = min(begin + self.steps_per_row, complete)
            loss, norm = (float(x) for x in loss_and_norm[:, begin:end].mean(1))
            seconds = float(self.stopwatch.steps[begin:end].sum())
            row = {"step": end, "loss": loss, "learning_rate": learning_rate(self.run.training, end - 1)}
            tokens = float(self.token_slots[begin:end].sum())
            rows.append({**row, "gradient_norm": norm, "tokens_per_second": tokens / seconds if seconds else 0.0})
        return rows

    def result(self) -> Trained:
        total, busy = self.stopwatch.totals()
        parameters = sum(p.numel() for p in self.model.parameters())
        backend = ",".join(sorted(self.model.backends_used))
        overhead = max(0.0, 1.0 - busy / total) if total else 0.0
        tracked = self.tracked.result()
        return Trained(self.model, self.task, self.curve(), total, parameters, backend, overhead, tracked)
