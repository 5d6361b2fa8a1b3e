"""Question 10: do all parameters get gradients, are they saved, and is their number the declared one?"""

import safetensors.torch
import torch

from lengthwise.conformance.answers import Failure, NotApplicable, question
from lengthwise.conformance.batch_scenarios import observe
from lengthwise.conformance.cases import EncodingCase, numbers, tokens


@question(10, "gradients", "Every parameter gets gradients, and layers share as many as declared")
def gradients(case: EncodingCase, backend: str) -> str:
    encoding = case.build()
    parameters = dict(encoding.named_parameters())
    if not parameters:
        raise NotApplicable("it has no parameters")
    # Before softmax, because a bias that is the same for a whole row of logits changes no weight.
    for n, x in enumerate(observe(encoding)):
        if x.requires_grad:
            (x * numbers(101 + n, *x.shape)).sum().backward(retain_graph=True)
    for name, parameter in parameters.items():
        if parameter.grad is None or not parameter.grad.any():
            raise Failure(f"{name} gets no gradient")
        if not torch.isfinite(parameter.grad).all():
            raise Failure(f"the gradient of {name} is not finite")
    per_module = sum(p.numel() for p in parameters.values())
    for share in (True, False, None):
        model = case.decoder(backend, share=share)
        model(tokens(102, 2, 24)).square().mean().backward()
        for name, parameter in model.named_parameters():
            if parameter.grad is None or not torch.isfinite(parameter.grad).all():
                raise Failure(f"in a model (share_encoding={share}), {name} gets no finite gradient")
        shared = case.cls.shared_across_layers if share is None else share
        modules = 1 if shared or case.cls.acts_on_embedding() else model.config.num_layers
        count = sum(p.numel() for n, p in model.named_parameters() if n.startswith("encodings."))
        if count != modules * per_module:
            declared = f"{modules} modules of {per_module} parameters as declared"
            raise Failure(f"share_encoding={share} must give {declared}, got {count} parameters")
    return f"{per_module} parameters"


@question(10, "saving", "Saving and loading the parameters restores the model")
def saving(case: EncodingCase, backend: str) -> None:
    for share in (True, False):
        model, other = (case.decoder(backend, seed=seed, share=share) for seed in (0, 1))
        ids = tokens(103, 2, 17)
        with torch.no_grad():
            expected = model(ids)
            if any(p.requires_grad for p in model.encodings.parameters()) and torch.equal(other(ids), expected):
                raise Failure("two seeds give the same model")
            stored = safetensors.torch.save({n: t.contiguous() for n, t in model.state_dict().items()})
            other.load_state_dict(safetensors.torch.load(stored))
            if not torch.equal(other(ids), expected):
                raise Failure(f"loaded weights give other logits (share_encoding={share})")
