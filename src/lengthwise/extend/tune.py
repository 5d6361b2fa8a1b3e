"""Train a model on windows of a text with transformers' Trainer, which continues interrupted trainings."""

import json
import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, SequentialSampler
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments
from transformers.pytorch_utils import Conv1D

from lengthwise import cache_folder
from lengthwise.config import ConfigError
from lengthwise.evaluation.pretrained.transformers_calls import offline, silent
from lengthwise.machine_memory import is_out_of_memory
from lengthwise.measurements.retention import Tuning

Show = Callable[[str, float, float], None]  # receives a description, the finished part and the total
STATE = "trainer_state.json"  # the last file that the Trainer writes into a checkpoint
SECONDS = "seconds.json"
LOGGED = 50  # losses of a training, about
ENCODINGS = ("position_encodings", "encodings")  # names of the modules with our encodings
TRAINED_LAYERS = (nn.Linear, Conv1D)


class Windows(Dataset[dict[str, Tensor]]):
    """The rows of all batches, in order. A row depends on the seed and its number alone."""

    def __init__(self, tokens: Sequence[int], prefix: Sequence[int], tuning: Tuning, seed: int):
        self.tokens, self.prefix = torch.tensor(tokens, dtype=torch.int32), torch.tensor(list(prefix), dtype=torch.long)
        self.rows, self.seed, self.size = tuning.rows, seed, tuning.length - len(prefix)
        if len(tokens) < self.size:
            raise ConfigError(
                f"--tune has {len(tokens):,} tokens, fewer than the {tuning.length:,} of --length; name a longer text, "
                "or a shorter --length"
            )

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        start = Random(f"{self.seed} {row}").randrange(len(self.tokens) - self.size + 1)
        ids = torch.cat([self.prefix, self.tokens[start : start + self.size].long()])
        return {"input_ids": ids, "labels": ids}


@dataclass(frozen=True)
class Tuned:
    """A trained model, the seconds of its training in all its calls, and (step, mean loss) of its steps."""

    model: Any
    seconds: float
    losses: list[tuple[int, float]]


class _InOrder(Trainer):  # type: ignore[misc]
    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return SequentialSampler(self.train_dataset if train_dataset is None else train_dataset)


@dataclass
class _Watch(TrainerCallback):  # type: ignore[misc]
    """Shows the progress, keeps the time beside each checkpoint, and ends a training that diverges."""

    name: str
    show: Show
    before: float
    start: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        return self.before + time.perf_counter() - self.start

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.show(f"{self.name}: training", state.global_step, state.max_steps)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if not math.isfinite((logs or {}).get("loss", 0.0)):
            raise ConfigError(
                f"the loss of {self.name} is not finite after {state.global_step:,} steps; take a smaller "
                "--learning-rate, or more --warmup, and another --out"
            )

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        path = Path(args.output_dir) / f"checkpoint-{state.global_step}" / SECONDS
        cache_folder.write(path, json.dumps(round(self.seconds, 3)).encode())


def tune(model: Any, name: str, windows: Windows, tuning: Tuning, work: Path, bfloat16: bool, show: Show) -> Tuned:
    """Train a model in place, and return it. It has float32 weights; `bfloat16` computes in mixed precision.

    `work`: the folder of the checkpoints. The newest complete one is continued. LoRA is merged into the weights at the
    end. Raises `ConfigError` if memory runs out, and if the loss is not finite.
    """
    torch.manual_seed(windows.seed)
    with silent(stderr=False):
        trained = model if tuning.lora is None else _with_lora(model, tuning.lora)
    checkpoint = newest_checkpoint(work)
    before = 0.0
    if checkpoint is not None and (checkpoint / SECONDS).exists():
        before = float(json.loads((checkpoint / SECONDS).read_text(encoding="ascii")))
    watch = _Watch(name, show, before)
    trained.train()
    trained.config.use_cache, cached = False, trained.config.use_cache
    try:
        with offline(), silent(stderr=False):
            trainer = _InOrder(
                trained,
                _arguments(tuning, windows.seed, work, model.device, bfloat16),
                train_dataset=windows,
                callbacks=[watch],
            )
            trainer.remove_callback(PrinterCallback)
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise ConfigError(
            f"out of memory while {name} was trained on {tuning.batch_size} × {tuning.length:,} tokens; take a smaller "
            "--batch-size with --accumulate, --recompute, --lora, or a shorter --length, and another --out"
        ) from None
    finally:
        trained.config.use_cache = cached
    losses = [(int(entry["step"]), float(entry["loss"])) for entry in trainer.state.log_history if "loss" in entry]
    seconds = watch.seconds
    del trainer
    if tuning.lora is not None:
        trained = trained.merge_and_unload()
    return Tuned(trained.eval(), seconds, losses)


def newest_checkpoint(work: Path) -> Path | None:
    """Return the newest complete checkpoint, and delete those that an interruption has left incomplete."""
    complete = []
    for path in work.glob("checkpoint-*"):
        try:
            complete.append((int(json.loads((path / STATE).read_text())["global_step"]), path))
        except (OSError, ValueError):
            shutil.rmtree(path)
    return max(complete)[1] if complete else None


def _arguments(tuning: Tuning, seed: int, work: Path, device: torch.device, bfloat16: bool) -> Any:
    arguments = TrainingArguments(
        str(work),
        max_steps=tuning.steps,
        per_device_train_batch_size=tuning.batch_size,
        gradient_accumulation_steps=tuning.accumulate,
        learning_rate=tuning.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=tuning.warmup,
        optim="adamw_torch",
        save_steps=tuning.save_every,
        save_total_limit=2,
        logging_steps=max(1, tuning.steps // LOGGED),
        logging_nan_inf_filter=False,
        gradient_checkpointing=tuning.recompute,
        gradient_checkpointing_kwargs={"use_reentrant": False} if tuning.recompute else None,
        seed=seed,
        bf16=bfloat16,
        use_cpu=device.type == "cpu",
        dataloader_pin_memory=device.type != "cpu",
        remove_unused_columns=False,
        report_to=[],
        disable_tqdm=True,
    )
    if arguments.device.type == "cuda":
        arguments._n_gpu = 1  # otherwise all GPUs of the machine would share each batch
    return arguments


def _with_lora(model: Any, rank: int) -> Any:
    """Return the model with LoRA on its linear layers. The parameters of encodings are trained as they are."""
    import peft

    head = model.get_output_embeddings()
    encodings = {
        name: module
        for name, module in model.named_modules()
        if name.rpartition(".")[0].rpartition(".")[2] in ENCODINGS and name.rpartition(".")[2].isdigit()
    }
    layers = [
        name
        for name, module in model.named_modules()
        if isinstance(module, TRAINED_LAYERS)
        and module is not head
        and not any(name.startswith(f"{encoding}.") for encoding in encodings)
    ]
    trained = [name for name, module in encodings.items() if any(True for _ in module.parameters())]
    config = peft.LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        target_modules=layers,
        modules_to_save=trained or None,
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in model.modules()),
    )
    return peft.get_peft_model(model, config)
