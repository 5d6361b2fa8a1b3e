"""Questions 6 and 7: does every setting have an effect, and does nothing else depend on position?"""

import torch
from torch import nn

from lengthwise.attention import KVCache
from lengthwise.conformance.answers import Failure, NotApplicable, question
from lengthwise.conformance.batch_scenarios import observe, same
from lengthwise.conformance.cases import EncodingCase, alternatives, tokens
from lengthwise.encodings import NoPE


@question(6, "settings", "Changing any setting changes the effect", on_backend=False, variants=False)
def settings_matter(case: EncodingCase, backend: str) -> str:
    values_of = alternatives(case)
    if not values_of:
        raise NotApplicable("it has no settings")
    default = case.build()
    before = observe(default)
    for name, values in values_of.items():
        if not values:
            raise Failure(f"no other value of {name} is accepted; list some in the class variable `alternatives`")
        for value in values:
            other = case.changed(name, value).build()
            shapes = [[(n, tuple(p.shape)) for n, p in e.named_parameters()] for e in (default, other)]
            if same(observe(other), before) and shapes[0] == shapes[1] and default.max_length == other.max_length:
                raise Failure(f"{name}={value!r} has no effect")
    return ", ".join(values_of)


@question(6, "instances", "Two instances do not affect each other", on_backend=False, variants=False)
def instances_are_independent(case: EncodingCase, backend: str) -> None:
    first = case.build()
    before = observe(first)
    for other_case in case.variants():
        for seed in (0, 1):
            other = other_case.build(seed=seed)
            pointers = [{p.data_ptr() for p in encoding.state_dict().values()} for encoding in (first, other)]
            if pointers[0] & pointers[1]:
                raise Failure(f"two instances ({other_case.label}) share a tensor")
            _exercise(other)
            if not same(observe(first), before):
                raise Failure(f"using another instance ({other_case.label}) changes this one")
    if not same(observe(case.build()), before):
        raise Failure("an instance that is created after others were used differs from one that was created before")


def _exercise(encoding: nn.Module) -> None:
    """Run the encoding, train it for one large step, and cast it to float32."""
    loss = sum((x.square().sum() for x in observe(encoding, seed=9)), torch.zeros(()))  # type: ignore[arg-type]
    parameters = list(encoding.parameters())
    if parameters:
        loss.backward()
        torch.optim.SGD(parameters, lr=0.1).step()
    encoding.float()


@question(7, "alone", "A model with this encoding has no other source of positions")
def no_other_positions(case: EncodingCase, backend: str) -> None:
    model, without = case.decoder(backend, num_layers=1), EncodingCase(NoPE).decoder(backend, num_layers=1)
    other_parameters = {n: p.shape for n, p in model.named_parameters() if not n.startswith("encodings.")}
    expected = {n: p.shape for n, p in without.named_parameters()}
    if other_parameters != expected:
        names = ", ".join(sorted(set(other_parameters) ^ set(expected)))
        raise Failure(f"the model has other parameters than the encoding's: {names or 'other shapes'}")
    # Without the encoding, the last token of one layer sees an unordered set of tokens.
    model.encodings = nn.ModuleList([NoPE()])
    ids = tokens(71, 2, 12)
    with torch.no_grad():
        logits = model(ids)
        for positions in (torch.arange(12)[None] + 40, torch.arange(12)[None] * 3):
            if not torch.equal(model(ids, positions=positions), logits):
                raise Failure("without its encoding, the model still reads positions")
        reordered = torch.cat([ids[:, :-1].flip(1).roll(3, 1), ids[:, -1:]], 1)
        for cached in (False, True):
            change = float((model(reordered, cache=KVCache(1) if cached else None)[:, -1] - logits[:, -1]).abs().max())
            if not change <= 1e-12:
                raise Failure(f"without its encoding, the model still depends on the order of tokens ({change:.3g})")
