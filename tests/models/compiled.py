"""Compiled models beside the same models without compilation. test_compile.py runs this file in processes of its own,
for the checks of shapes that functions of the package have while testing break under torch.compile; by hand:

    python tests/models/compiled.py '{"names": ["FIRE", "RoPE"], "given": "documents", "backend": "inductor"}'

One line of JSON for each model: how many graphs there were after each length, where a graph broke and why, and how far
the output and the gradients are from those without compilation, each against the largest of its kind.
"""

import json
import os
import sys
import warnings
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch._dynamo as dynamo
from torch import Tensor

import lengthwise
from lengthwise.config import ModelConfig
from lengthwise.encodings import ENCODINGS
from lengthwise.models import Decoder

LENGTHS = (17, 33, 50, 64, 100)
SETTINGS: dict[str, Any] = {
    "names": [], "given": "tokens", "backend": "eager", "attention": "auto", "lengths": LENGTHS, "dynamic": None,
    "fullgraph": False, "layers": 1, "training": True, "whose": "ours",
}  # fmt: skip


def places(given: str, tokens: int) -> dict[str, Tensor]:
    """What is given beside the tokens, for two rows."""
    documents = torch.stack([torch.arange(tokens) // (tokens // 3 + 1), torch.arange(tokens) // (tokens // 2 + 1)])
    positions = 2 * torch.arange(tokens)[None] + torch.tensor([[0], [5]])
    return {
        "tokens": {},
        "documents": {"documents": documents},
        "padding": {"documents": -(torch.arange(tokens) < tokens // 3).long()[None]},
        "positions": {"positions": positions},
        "positions and documents": {"positions": positions, "documents": documents},
    }[given]


def answers(model: Any, parameters: list[Tensor], tokens: Tensor, training: bool, **given: Tensor) -> list[Tensor]:
    """The output, and the gradients of all parameters."""
    with torch.set_grad_enabled(training):
        out = model(tokens, **given)
        return [out, *(torch.autograd.grad(out.square().mean(), parameters) if training else ())]


def apart(got: list[Tensor], wanted: list[Tensor]) -> float:
    """The largest difference, of the output over the largest output, of gradients over the largest gradient."""
    most = [max(float(x.detach().abs().max()) for x in some) for some in (wanted[:1], wanted[1:]) if some]
    off = [float((a - b).detach().abs().max()) for a, b in zip(got, wanted, strict=True)]
    return max(off[0] / most[0], *(x / most[1] for x in off[1:]), 0.0)


class Another(torch.nn.Module):
    """One layer of somebody else's: no blocks of ours, but `attend`; grouped queries."""

    def __init__(self, name: str):
        super().__init__()
        self.embedding, self.maps = torch.nn.Embedding(11, 32), torch.nn.Linear(32, 64)
        self.encoding = ENCODINGS.parse(name).build(num_heads=2, head_dim=16, d_model=32, train_length=40)
        self.backends_used: set[str] = set()

    def forward(self, tokens: Tensor, **given: Any) -> Tensor:
        x = self.embedding(tokens)
        q, k, v = (y.unflatten(-1, (-1, 16)).transpose(1, 2) for y in self.maps(x).split([32, 16, 16], -1))
        return lengthwise.attend(q, k, v, self.encoding, tokens=lengthwise.TokenInfo(x=x, **given))


def made(name: str, s: dict[str, Any]) -> Any:
    if s["whose"] == "another":
        return Another(name)
    config = ModelConfig(d_model=32, num_layers=s["layers"], num_heads=2)
    return Decoder(
        config, ENCODINGS.parse(name), vocab_size=11, output_size=11, train_length=40, backend=s["attention"]
    )


def row(name: str, s: dict[str, Any]) -> dict[str, Any]:
    dynamo.reset()
    dynamo.utils.counters.clear()
    torch.manual_seed(0)
    model = made(name, s)
    parameters = [p for p in model.parameters() if p.requires_grad]
    compiled = torch.compile(model, backend=s["backend"], fullgraph=s["fullgraph"], dynamic=s["dynamic"])
    graphs, off = [], 0.0
    for length in s["lengths"]:
        tokens = torch.randint(0, 11, (2, length))
        both = [answers(m, parameters, tokens, s["training"], **places(s["given"], length)) for m in (compiled, model)]
        # Not how often the backend was called: inductor begins a graph anew where it takes a number for a constant
        # after all.
        graphs.append(dynamo.utils.counters["stats"]["unique_graphs"])
        off = max(off, apart(*both))
    breaks = {" ".join(why.split())[:200]: many for why, many in dynamo.utils.counters["graph_break"].items()}
    return {"name": name, "graphs": graphs, "breaks": breaks, "off": off, "used": sorted(model.backends_used)}


def main() -> None:
    settings = {**SETTINGS, **json.loads(sys.argv[1])}
    unknown = settings.keys() - SETTINGS.keys()
    assert not unknown, unknown
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in settings["names"] or ENCODINGS.names():
        print(json.dumps(row(name, settings)), flush=True)


if __name__ == "__main__":
    main()
