"""Questions 6 and 7: does everything that can be set do something, and does nothing else?"""

import torch
from torch import nn

from lengthwise.attention import KVCache
from lengthwise.conformance.answers import NotApplicable, Wrong, question
from lengthwise.conformance.batch_scenarios import observe, same
from lengthwise.conformance.cases import EncodingCase, alternatives, tokens
from lengthwise.encodings import NoPE


@question(6, "settings", "Every setting matters: changing any changes the effect", on_backend=False, variants=False)
def settings_matter(case: EncodingCase, backend: str) -> str:
    tried = alternatives(case)
    if not tried:
        raise NotApplicable("it has no settings")
    usual = case.build()
    before = observe(usual)
    for name, values in tried.items():
        if not values:
            raise Wrong(f"no other value of {name} is accepted; name some in the class variable `alternatives`")
        for value in values:
            other = case.changed(name, value).build()
            shapes = [[(n, tuple(p.shape)) for n, p in e.named_parameters()] for e in (usual, other)]
            if same(observe(other), before) and shapes[0] == shapes[1] and usual.max_length == other.max_length:
                raise Wrong(f"{name}={value!r} does nothing")
    return ", ".join(tried)


@question(6, "instances", "Two instances never disturb each other", on_backend=False, variants=False)
def instances_are_apart(case: EncodingCase, backend: str) -> None:
    mine = case.build()
    before = observe(mine)
    for other_case in case.variants():
        for seed in (0, 1):
            other = other_case.build(seed=seed)
            shared = {p.data_ptr() for p in mine.state_dict().values()} & {
                p.data_ptr() for p in other.state_dict().values()
            }
            if shared:
                raise Wrong(f"two instances ({other_case.label}) share a tensor")
            _exercise(other)
            if not same(observe(mine), before):
                raise Wrong(f"using another instance ({other_case.label}) changes this one")
    if not same(observe(case.build()), before):
        raise Wrong("an instance made after others were used differs from one made before")


def _exercise(encoding: nn.Module) -> None:
    """Use it and train it, hard."""
    loss = sum((x.square().sum() for x in observe(encoding, seed=9)), torch.zeros(()))  # type: ignore[arg-type]
    parameters = list(encoding.parameters())
    if parameters:
        loss.backward()
        torch.optim.SGD(parameters, lr=0.1).step()
    encoding.float()


@question(7, "alone", "Nothing else is on: a model with this encoding has no other position parameter")
def nothing_else_is_on(case: EncodingCase, backend: str) -> None:
    model, bare = case.decoder(backend, num_layers=1), EncodingCase(NoPE).decoder(backend, num_layers=1)
    own = {n: p.shape for n, p in model.named_parameters() if not n.startswith("encodings.")}
    expected = {n: p.shape for n, p in bare.named_parameters()}
    if own != expected:
        raise Wrong(
            f"parameters beside the encoding's: {', '.join(sorted(set(own) ^ set(expected))) or 'other shapes'}"
        )
    # With the encoding taken out, one layer's last token sees a set: no order, no position.
    model.encodings = nn.ModuleList([NoPE()])
    ids = tokens(71, 2, 12)
    with torch.no_grad():
        usual = model(ids)
        for positions in (torch.arange(12)[None] + 40, torch.arange(12)[None] * 3):
            if not torch.equal(model(ids, positions=positions), usual):
                raise Wrong("without its encoding, the model still reads positions")
        mixed = torch.cat([ids[:, :-1].flip(1).roll(3, 1), ids[:, -1:]], 1)
        for cached in (False, True):
            off = float((model(mixed, cache=KVCache(1) if cached else None)[:, -1] - usual[:, -1]).abs().max())
            if not off <= 1e-12:
                raise Wrong(f"without its encoding, the model still knows the order of what it read ({off:.3g})")
