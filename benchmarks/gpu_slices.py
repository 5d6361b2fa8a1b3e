"""The slices of gpu_day.py: each yields measurements as a name and a function that returns figures.

Nothing is computed before a function is called, so that the names alone can be printed.
"""

import functools
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from gpu_attention import attention, network_and_decoding, peak, ratio
from gpu_block_sizes import block_sizes
from gpu_setting import Figures, Measurement, OutOfTime, Setting
from torch import Tensor, nn

ROOT = Path(__file__).parents[1]
TRAINED = ("FIRE", "ALiBi", "T5", "RoPE", "NoPE")
STEPS = ("NoPE", "RoPE", "ALiBi", "T5", "KerpleLog", "Sandwich", "FIRE", "Shaw:values=false", "Sinks")


def run_command(*words: str) -> Figures:
    """Run a command of lengthwise, show its output, and return its end."""
    lines: list[str] = []
    command = [sys.executable, "-m", "lengthwise", *words]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(f"    {line}", end="", flush=True)
            lines.append(line.rstrip())
    figures: Figures = {"exit code": process.returncode, "output": lines[-60:]}
    if process.returncode:
        figures["error"] = (
            f"exit code {process.returncode}: {next((line for line in reversed(lines) if line.strip()), '')}"
        )
    return figures


def agreement(setting: Setting) -> Iterator[Measurement]:
    """All forms in three dtypes against the reference; then `lengthwise check`, which records that they agree.

    Each form is printed when it was compared. Compiled kernels are kept in the folder, so nothing is compiled again.
    """
    from lengthwise.conformance import gpu_kernels, gpu_table

    forms = gpu_kernels.FORMS[:13:6] if setting.tiny else gpu_kernels.FORMS

    def show(form: gpu_kernels.Form, comparison: gpu_kernels.Comparison) -> None:
        print(f"    {form}: {comparison.failure or f'{comparison.error:.1e}'}", flush=True)

    def compare() -> Figures:
        comparisons = gpu_table.compare(torch.device(setting.device), show, forms)
        figures: Figures = {"largest error": max(one.error for one in comparisons.values())}
        figures["errors"] = {str(form): one.error for form, one in comparisons.items()}
        failures = [f"{form}: {one.failure}" for form, one in comparisons.items() if one.failure]
        return figures | ({"error": "; ".join(failures)} if failures else {})

    yield f"agreement of {len(forms)} forms", compare
    words = ("check", "--device", setting.device) if setting.device != "cpu" else ("check", "nope")
    yield f"lengthwise {' '.join(words)}", lambda: run_command(*words)


def autocast(setting: Setting) -> AbstractContextManager[Any]:
    return torch.autocast(torch.device(setting.device).type, dtype=torch.bfloat16)


class Sizes:
    """Those of a Transformer with about 125 million parameters, and of a batch for measuring a step."""

    def __init__(self, setting: Setting):
        self.width, self.layers, self.heads, self.d_ff, self.vocabulary = 768, 12, 12, 2048, 50_304
        self.batch, self.length = 16, 1024
        if setting.tiny:
            self.width, self.layers, self.heads, self.d_ff, self.vocabulary = 32, 1, 2, 64, 300
            self.batch, self.length = 2, 32

    def decoder(self, setting: Setting, name: str, backend: str = "auto", length: int | None = None) -> nn.Module:
        from lengthwise.config import ModelConfig
        from lengthwise.encodings import ENCODINGS
        from lengthwise.models import Decoder

        torch.manual_seed(0)
        config = ModelConfig.llama(
            d_model=self.width, num_layers=self.layers, num_heads=self.heads, d_ff=self.d_ff, tie_embeddings=True
        )
        vocabulary = {"vocab_size": self.vocabulary, "output_size": self.vocabulary}
        model = Decoder(
            config, ENCODINGS.parse(name), **vocabulary, train_length=length or self.length, backend=backend
        )
        return model.to(setting.device)

    def llama(self, setting: Setting) -> nn.Module:
        """The same in transformers, with its own RoPE and SDPA."""
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=self.vocabulary, hidden_size=self.width, intermediate_size=self.d_ff,
            num_hidden_layers=self.layers, num_attention_heads=self.heads, num_key_value_heads=self.heads,
            max_position_embeddings=self.length, tie_word_embeddings=True, use_cache=False, bos_token_id=0,
            eos_token_id=None, pad_token_id=None, attn_implementation="sdpa",
        )  # fmt: skip
        return LlamaForCausalLM(config).to(setting.device)


class Step:
    """One training step of a model on random tokens: forward pass, cross-entropy, backward pass, AdamW."""

    def __init__(self, setting: Setting, model: nn.Module, sizes: Sizes):
        self.setting, self.model = setting, model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
        generator = torch.Generator().manual_seed(1)
        self.tokens = torch.randint(1, sizes.vocabulary, (sizes.batch, sizes.length + 1), generator=generator).to(
            setting.device
        )

    def loss(self, tokens: Tensor) -> Tensor:
        with autocast(self.setting):
            logits = self.model(tokens[:, :-1])
        logits = getattr(logits, "logits", logits)
        return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())

    def __call__(self, tokens: Tensor | None = None) -> None:
        self.loss(self.tokens if tokens is None else tokens).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def steps_in_turn(setting: Setting, base: Step, other: Step) -> Figures:
    figures = ratio(base, other, 2 if setting.tiny else 5)
    tokens = base.tokens[:, 1:].numel()
    figures["tokens a second"] = 1000 * tokens / figures["ms"]
    if setting.device != "cpu":
        figures["MiB"] = peak(other)
    return figures


def training_step(setting: Setting) -> Iterator[Measurement]:
    """A training step of a 125M model with each encoding, relative to Llama in transformers with SDPA."""
    sizes = Sizes(setting)

    def compare(name: str) -> Figures:
        return steps_in_turn(setting, base(), Step(setting, sizes.decoder(setting, name), sizes))

    @functools.cache
    def base() -> Step:
        return Step(setting, sizes.llama(setting), sizes)

    for name in ("NoPE", "FIRE") if setting.tiny else STEPS:
        yield f"{name}, of transformers", functools.partial(compare, name)


def use_encodings(setting: Setting) -> Iterator[Measurement]:
    """`use` on Llama of transformers: a training step relative to the same model without it, and generation."""
    sizes = Sizes(setting)

    @functools.cache
    def base() -> Step:
        return Step(setting, sizes.llama(setting), sizes)

    def compare(name: str | None) -> Figures:
        from lengthwise.huggingface import use

        model = use(sizes.llama(setting), name)
        figures = steps_in_turn(setting, base(), Step(setting, model, sizes))
        model.eval()
        new = model.generate(base().tokens[:1, :16], max_new_tokens=8, do_sample=False, use_cache=True)
        whole = model(new, use_cache=False).logits[0, 15:-1].argmax(-1)
        figures["generated tokens as without a cache"] = int((whole == new[0, 16:]).sum())
        return figures

    for name in (None, "fire") if setting.tiny else (None, "fire", "t5", "alibi", "kerple-log"):
        yield f"use(model, {name or 'its own RoPE'})", functools.partial(compare, name)


def quickstart(setting: Setting) -> Iterator[Measurement]:
    """The study quickstart; its runs stay in the folder, and an interrupted one continues."""
    study = ["benchmarks/stand_in.py", "--set", "runs=2", "--set", "seconds=0"] if setting.tiny else ["quickstart"]
    results = str(setting.folder.absolute() / "quickstart")
    words = ["run", *study, "--device", setting.device, "--workers", "1" if setting.tiny else "2", "--results"]
    yield f"lengthwise {' '.join(words)} quickstart", lambda: run_command(*words, results)


def reach(setting: Setting) -> Iterator[Measurement]:
    """`lengthwise reach` on a small Llama with random weights, with its own encoding and others in its place."""
    lengths = "64,128" if setting.tiny else "1k,4k,16k"
    tasks = "text" if setting.tiny else "text,needle"
    words = ["--lengths", lengths, "--tasks", tasks, "--methods", "own,yarn:factor=4", "--examples", "2"]
    words += ["--device", setting.device, "--targets", "16"]

    def run() -> Figures:
        folder, text = setting.folder.absolute() / "model", setting.folder.absolute() / "text.txt"
        small_model(folder, 128 if setting.tiny else 4096)
        text.write_bytes(python_text())
        out = str(setting.folder.absolute() / "model.reach.jsonl")
        return run_command("reach", str(folder), "--text", str(text), "--out", out, *words)

    yield f"lengthwise reach model {' '.join(words)}", run


def small_model(folder: Path, length: int) -> None:
    """Write a Llama with random weights and a tokenizer of bytes."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    if folder.exists():
        return
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(["<s>", *letters])}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=257, hidden_size=128, intermediate_size=256, num_attention_heads=4, num_hidden_layers=2,
        max_position_embeddings=length, bos_token_id=0, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    new = folder.with_suffix(".new")
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>").save_pretrained(new)
    transformers.LlamaForCausalLM(config).save_pretrained(new)
    new.rename(folder)


def python_text() -> bytes:
    """Return the source of Python's standard library, which every machine has."""
    from lengthwise.corpora import stdlib

    return b"\n".join(document.data for document in stdlib.read(("source",))[1])


def fox_and_shaw(setting: Setting) -> Iterator[Measurement]:
    """FoX, and Shaw with vectors added to values: agreement with the reference, and a step relative to NoPE."""
    sizes = Sizes(setting)

    def agreement_of(name: str) -> Figures:
        """The largest differences of a model's loss and gradients, relative to the largest gradient of each
        parameter.
        """
        losses, gradients = [], []
        for backend in ("fused", "reference"):
            model = sizes.decoder(setting, name, backend)
            step = Step(setting, model, sizes)
            loss = step.loss(step.tokens[:2, :257])
            loss.backward()
            losses.append(loss.item())
            gradients.append([p.grad.float() for p in model.parameters()])
        errors = [float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)) for a, b in zip(*gradients, strict=True)]
        return {"loss": losses[0], "difference": losses[0] - losses[1], "gradients": max(errors),
                "median gradient": statistics.median(errors)}  # fmt: skip

    @functools.cache
    def base() -> Step:
        return Step(setting, sizes.decoder(setting, "NoPE"), sizes)

    def compare(name: str) -> Figures:
        return steps_in_turn(setting, base(), Step(setting, sizes.decoder(setting, name), sizes))

    for name in ("FoX", "Shaw"):
        yield f"{name}, a model by `fused` and by `reference`", functools.partial(agreement_of, name)
        yield f"{name}, a training step of NoPE", functools.partial(compare, name)


class Training:
    """Models that differ in their encoding alone, trained in turn on the same bytes."""

    def __init__(self, setting: Setting):
        self.setting, self.sizes, self.done = setting, Sizes(setting), 0
        self.length, self.batch = (16, 2) if setting.tiny else (512, 64)
        self.sizes.vocabulary = 256
        text = torch.frombuffer(bytearray(python_text()), dtype=torch.uint8)
        cut = len(text) * 9 // 10
        self.text, self.held_out = text[:cut], text[cut:]
        self.steps = {
            name: Step(setting, self.sizes.decoder(setting, name, length=self.length), self.sizes)
            for name in (TRAINED[:2] if setting.tiny else TRAINED)
        }

    def windows(self, text: Tensor, rows: int, length: int, seed: int) -> Tensor:
        starts = torch.randint(len(text) - length, (rows, 1), generator=torch.Generator().manual_seed(seed))
        return text[starts + torch.arange(length + 1)].long().to(self.setting.device)

    def train_to(self, steps: int) -> None:
        while self.done < steps:
            if self.setting.seconds_left() <= 0:
                raise OutOfTime
            tokens = self.windows(self.text, self.batch, self.length, self.done)
            for step in self.steps.values():
                step.optimizer.param_groups[0]["lr"] = 6e-4 * min(1.0, (self.done + 1) / 50)
                step(tokens)
            self.done += 1

    @torch.no_grad()
    def cross_entropy(self, step: Step, length: int) -> float:
        """Nats per byte of held-out text, over the last quarter of the training length, with all that comes before."""
        tokens = self.windows(self.held_out, 4 if self.setting.tiny else 32, 4 * self.length, 0)[:, -length - 1 :]
        with autocast(self.setting):
            logits = step.model(tokens[:, :-1])
        last = self.length // 4
        return F.cross_entropy(logits[:, -last:].flatten(0, 1).float(), tokens[:, -last:].flatten()).item()

    def figures(self, steps: int) -> Figures:
        self.train_to(steps)
        scores: Figures = {"tokens": steps * self.batch * self.length}
        for name, step in self.steps.items():
            scores[name] = {f"{times}x": self.cross_entropy(step, times * self.length) for times in (1, 2, 4)}
        return scores


def train(setting: Setting) -> Iterator[Measurement]:
    """Training of a 125M model with five encodings on as many tokens as fit, evaluated to 4 times the length.

    A later call trains anew and reaches further only with more time.
    """
    begin = functools.cache(lambda: Training(setting))
    for steps in (1, 2) if setting.tiny else range(50, 5001, 50):
        yield f"nats per byte after {steps} steps", functools.partial(lambda n: begin().figures(n), steps)


SLICES: dict[str, Callable[[Setting], Iterator[Measurement]]] = {
    "agreement": agreement,
    "attention": attention,
    "network-decoding": network_and_decoding,
    "steps": training_step,
    "quickstart": quickstart,
    "reach": reach,
    "use": use_encodings,
    "fox-shaw": fox_and_shaw,
    "train": train,
    "block-sizes": block_sizes,
}
