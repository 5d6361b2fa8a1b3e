"""Question 10: do parameters learn, survive, and count as declared?"""

import safetensors.torch
import torch

from lengthwise.conformance.answers import NotApplicable, Wrong, question
from lengthwise.conformance.batch_scenarios import observe
from lengthwise.conformance.cases import EncodingCase, numbers, tokens


@question(10, "gradients", "Every parameter gets gradients, and counts as declared under sharing")
def gradients(case: EncodingCase, backend: str) -> str:
    encoding = case.build()
    parameters = dict(encoding.named_parameters())
    if not parameters:
        raise NotApplicable("it has no parameters")
    # On what it says, before softmax: what is the same for a whole row of logits changes no weight.
    seen = observe(encoding)
    for n, x in enumerate(seen):
        if x.requires_grad:
            (x * numbers(101 + n, *x.shape)).sum().backward(retain_graph=True)
    for name, parameter in parameters.items():
        if parameter.grad is None or not parameter.grad.any():
            raise Wrong(f"{name} gets no gradient")
        if not torch.isfinite(parameter.grad).all():
            raise Wrong(f"the gradient of {name} is not finite")
    one = sum(p.numel() for p in parameters.values())
    for share in (True, False, None):
        model = case.decoder(backend, share=share)
        # Three documents of tokens, so that every position of what is short has been used.
        model(tokens(102, 2, 24)).square().mean().backward()
        for name, parameter in model.named_parameters():
            if parameter.grad is None or not torch.isfinite(parameter.grad).all():
                raise Wrong(f"in a model (share_encoding={share}), {name} gets no finite gradient")
        shared = case.make.shared_across_layers if share is None else share
        modules = 1 if shared or case.make.acts_on_embedding() else model.config.num_layers
        count = sum(p.numel() for n, p in model.named_parameters() if n.startswith("encodings."))
        if count != modules * one:
            raise Wrong(f"share_encoding={share} makes {count} parameters; {modules} modules of {one} were declared")
    return f"{one} parameters"


@question(10, "saving", "Parameters survive save and load, and nothing else is needed")
def saving(case: EncodingCase, backend: str) -> None:
    for share in (True, False):
        model, other = (case.decoder(backend, seed=seed, share=share) for seed in (0, 1))
        ids = tokens(103, 2, 17)
        with torch.no_grad():
            wanted = model(ids)
            if any(p.requires_grad for p in model.encodings.parameters()) and torch.equal(other(ids), wanted):
                raise Wrong("two seeds give the same model")
            stored = safetensors.torch.save({n: t.contiguous() for n, t in model.state_dict().items()})
            other.load_state_dict(safetensors.torch.load(stored))
            if not torch.equal(other(ids), wanted):
                raise Wrong(f"loaded weights give other logits (share_encoding={share})")
