"""AdamW, what it decays, and the learning rate of every step."""

import math

import torch
from torch import nn

from lengthwise.config import TrainingConfig


def decayed(model: nn.Module) -> tuple[list[str], list[str]]:
    """The names of the parameters with and without weight decay.

    Decayed are the matrices of linear maps. Not decayed: vectors (norms, biases), embedding tables (an output head
    tied to one included), everything inside a position encoding, whose numbers mean distances or slopes, and what a module
    names in `not_decayed`.
    """
    spared: set[int] = set()
    for module in model.modules():
        if isinstance(module, nn.Embedding) or getattr(module, "kind", None) == "encoding":
            spared |= {id(p) for p in module.parameters()}
        spared |= {id(getattr(module, name)) for name in getattr(module, "not_decayed", ())}
    with_decay: list[str] = []
    without: list[str] = []
    for name, p in model.named_parameters():
        if p.requires_grad:
            (without if p.ndim < 2 or id(p) in spared else with_decay).append(name)
    return with_decay, without


def make_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """AdamW over two groups, see `decayed`. Fused: 0.6 ms for 0.8 M parameters on one core; foreach: 2.9 ms."""
    parameters = dict(model.named_parameters())
    with_decay, without = decayed(model)
    groups = [
        {"params": [parameters[n] for n in with_decay], "weight_decay": config.weight_decay},
        {"params": [parameters[n] for n in without], "weight_decay": 0.0},
    ]
    kinds = {p.device.type for p in parameters.values()} | {str(p.dtype) for p in parameters.values()}
    fused = kinds <= {"cpu", "cuda", "torch.float32", "torch.float64", "torch.bfloat16"}
    groups = [g for g in groups if g["params"]]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(config.beta1, config.beta2), fused=fused)


def learning_rate(config: TrainingConfig, step: int) -> float:
    """The learning rate of a step, counted from 0: a linear warm-up to the peak, then the schedule.

    With W warm-up steps, step W has the peak; `final_learning_rate` is the share of it that the last step comes down
    to (a constant schedule stays at the peak).
    """
    warm = round(config.warmup * config.steps)
    if step < warm:
        return config.learning_rate * (step + 1) / (warm + 1)
    if config.schedule == "constant":
        return config.learning_rate
    done = (step - warm) / max(1, config.steps - 1 - warm)
    share = 0.5 * (1 + math.cos(math.pi * done)) if config.schedule == "cosine" else 1 - done
    return config.learning_rate * (config.final_learning_rate + (1 - config.final_learning_rate) * share)
