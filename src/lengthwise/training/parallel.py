"""The forward and backward passes of a model on one device, or shared by several ranks with DDP or FSDP2."""

import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from lengthwise.models import Model
from lengthwise.training.ranks import ALONE, Ranks
from lengthwise.user_classes import is_builtin_class


@dataclass(frozen=True, kw_only=True)
class Optimizations:
    """What makes training faster or smaller. It changes results in the last digits only.

    `compile`: compile the model with `torch.compile`. `recompute`: keep only the inputs of the model's blocks in the
    forward pass, and compute the blocks again in the backward pass (activation checkpointing).
    """

    compile: bool = False
    recompute: bool = False


NO_OPTIMIZATIONS = Optimizations()


class Passes:
    """The passes of a model that this process trains alone.

    `forward`: the model, as training calls it. `loss_factor`: what a part's share of the loss has to be multiplied by,
    so that the gradients are those of the whole batch.
    """

    is_sharded = False  # each rank has only a part of each parameter

    def __init__(self, model: Model, ranks: Ranks, optimizations: Optimizations):
        self.model, self.ranks = model, ranks
        self.whole: list[nn.Parameter] = []  # those whose gradients this class averages, because PyTorch does not
        self.loss_factor = float(ranks.size)  # DDP and FSDP2 divide the sum of the gradients by the number of ranks
        model.recompute = optimizations.recompute
        self.forward = self.prepare(optimizations.compile)

    def prepare(self, compile_it: bool) -> Callable[..., Any]:
        """Prepare the model for the ranks and return what training calls instead of it."""
        return torch.compile(self.model, dynamic=True) if compile_it else self.model

    def micro_batch(self, is_last: bool) -> AbstractContextManager[Any]:
        """Return a context for the passes of one micro-batch. The ranks exchange gradients only in their last one."""
        return nullcontext()

    def clip(self, parameters: list[nn.Parameter], limit: float) -> Tensor:
        """Scale all gradients so that their norm is at most `limit`, and return the norm before. Collective."""
        self.average_whole_gradients()
        return nn.utils.clip_grad_norm_(parameters, limit)

    def average_whole_gradients(self) -> None:
        """Average the gradients of `whole` over the ranks. A parameter without any gradient stays without."""
        shared = [p for p in self.whole if p.requires_grad]
        if not shared:
            return
        uses = torch.tensor([float(p.grad is not None) for p in shared], device=shared[0].device)
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in shared]
        flat = torch.cat([*(g.flatten() for g in gradients), uses.to(gradients[0].dtype)])
        *means, uses = self.ranks.sum(flat).split([*(g.numel() for g in gradients), len(shared)])
        for p, mean, used in zip(shared, means, uses.tolist(), strict=True):
            if used:
                p.grad = mean.view_as(p) / self.ranks.size


class Replicated(Passes):
    """DDP: every rank has the whole model and the whole optimizer."""

    def prepare(self, compile_it: bool) -> Callable[..., Any]:
        model, ddp = cast(nn.Module, super().prepare(compile_it)), nn.parallel.DistributedDataParallel
        # An encoding from outside lengthwise need not use all of its parameters in every forward pass, and DDP would
        # wait for them.
        encodings = getattr(self.model, "encodings", ())
        self.whole = [p for e in encodings if not is_builtin_class(type(e)) for p in e.parameters()]
        names = {id(p): name for name, p in model.named_parameters()}
        ddp._set_params_and_buffers_to_ignore_for_model(model, [names[id(p)] for p in self.whole])
        self.ddp = ddp(model, gradient_as_bucket_view=True)
        return self.ddp

    def micro_batch(self, is_last: bool) -> AbstractContextManager[Any]:
        return nullcontext() if is_last else self.ddp.no_sync()


class Sharded(Passes):
    """FSDP2: every rank has a part of each parameter and of its optimizer state. A block's parameters are put together
    while it is computed. The parameters of encodings are few, and their methods need them at any time, so every rank
    has all of them."""

    is_sharded = True

    def prepare(self, compile_it: bool) -> Callable[..., Any]:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FSDPModule, fully_shard

        # FSDP2 warns of in-place operations on what a block returns. The models have none.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module")
        model: Any = self.model
        self.whole = list(model.encodings.parameters()) if hasattr(model, "encodings") else []
        mesh = init_device_mesh(next(model.parameters()).device.type, (self.ranks.size,))
        for block in model.blocks:
            if compile_it:
                block.compile(dynamic=True)
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh, ignored_params=set(self.whole))
        assert isinstance(model, FSDPModule)
        self.fsdp: FSDPModule = model
        return self.model

    def micro_batch(self, is_last: bool) -> AbstractContextManager[Any]:
        self.fsdp.set_requires_gradient_sync(is_last)
        return nullcontext()

    def clip(self, parameters: list[nn.Parameter], limit: float) -> Tensor:
        self.average_whole_gradients()
        is_whole = {id(p) for p in self.whole}
        groups = [[p for p in parameters if (id(p) in is_whole) == whole] for whole in (False, True)]
        norms = [whole(nn.utils.get_total_norm(p.grad for p in group if p.grad is not None)) for group in groups]
        norm = torch.stack(norms).norm()
        for group in groups:
            nn.utils.clip_grads_with_norm_(group, limit, norm)
        return norm


SHARDINGS: dict[str, type[Passes]] = {"ddp": Replicated, "fsdp": Sharded}


def passes(model: Model, ranks: Ranks = ALONE, optimizations: Optimizations = NO_OPTIMIZATIONS) -> Passes:
    """Return the passes of a model, after preparing it for these ranks. Collective."""
    return (Passes if ranks.size == 1 else SHARDINGS[ranks.sharding])(model, ranks, optimizations)


def whole(t: Tensor) -> Tensor:
    """Return all of a tensor that FSDP2 may have divided among the ranks. Collective if it has."""
    return cast(Any, t).full_tensor() if hasattr(t, "full_tensor") else t


def divided_like(t: Tensor, target: Tensor) -> Tensor:
    """Return this rank's part of a tensor, if FSDP2 has divided the target, or else the tensor itself."""
    if not hasattr(target, "full_tensor") or hasattr(t, "full_tensor"):
        return t
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(target, DTensor)
    return distribute_tensor(t.to(target.device), target.device_mesh, target.placements, src_data_rank=None)


def separable(parameters: Iterable[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Return the parameters that FSDP2 has divided and the others, because an optimizer cannot update both together."""
    groups: tuple[list[nn.Parameter], list[nn.Parameter]] = [], []
    for p in parameters:
        groups[hasattr(p, "full_tensor")].append(p)
    return [group for group in groups if group]
