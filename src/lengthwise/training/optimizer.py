"""AdamW with its weight decay groups, and the learning-rate schedule."""

import math

import torch
from torch import nn

from lengthwise.config import TrainingConfig
from lengthwise.training.parallel import separable


def decayed(model: nn.Module) -> tuple[list[str], list[str]]:
    """Return the names of the parameters with and without weight decay.

    The matrices of linear maps are decayed. Not decayed are vectors (norms, biases), embedding tables (also if an
    output head shares them), all parameters of position encodings, whose values are distances or slopes, and the
    parameters that a module lists in `not_decayed`.
    """
    excluded: set[int] = set()
    for module in model.modules():
        if isinstance(module, nn.Embedding) or getattr(module, "kind", None) == "encoding":
            excluded |= {id(p) for p in module.parameters()}
        excluded |= {id(getattr(module, name)) for name in getattr(module, "not_decayed", ())}
    with_decay: list[str] = []
    without: list[str] = []
    for name, p in model.named_parameters():
        if p.requires_grad:
            (without if p.ndim < 2 or id(p) in excluded else with_decay).append(name)
    return with_decay, without


def make_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """Return AdamW with two parameter groups, see `decayed`.

    It is fused if the devices and dtypes allow: for 0.8 M parameters on one core a step takes 0.6 ms, with foreach 2.9
    ms.
    """
    parameters = dict(model.named_parameters())
    groups = [
        {"params": group, "weight_decay": decay}
        for names, decay in zip(decayed(model), (config.weight_decay, 0.0), strict=True)
        for group in separable(parameters[name] for name in names)
    ]
    kinds = {p.device.type for p in parameters.values()} | {str(p.dtype) for p in parameters.values()}
    fused = kinds <= {"cpu", "cuda", "torch.float32", "torch.float64", "torch.bfloat16"}
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(config.beta1, config.beta2), fused=fused)


def learning_rate(config: TrainingConfig, step: int) -> float:
    """Return the learning rate of a step, counted from 0: a linear warm-up to the peak, then the schedule.

    With W warm-up steps, step W has the peak. The last step has the share `final_learning_rate` of the peak, except
    with a constant schedule, which stays at the peak.
    """
    warmup_steps = round(config.warmup * config.steps)
    if step < warmup_steps:
        return config.learning_rate * (step + 1) / (warmup_steps + 1)
    if config.schedule == "constant":
        return config.learning_rate
    progress = (step - warmup_steps) / max(1, config.steps - 1 - warmup_steps)
    share = 0.5 * (1 + math.cos(math.pi * progress)) if config.schedule == "cosine" else 1 - progress
    return config.learning_rate * (config.final_learning_rate + (1 - config.final_learning_rate) * share)
