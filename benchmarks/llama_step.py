"""Measure a training step of a model like Llama on real vectors, relative to the same model in transformers.

    python benchmarks/llama_step.py [--encodings default,linear,dynamic,yarn,llama3] [--pairs 5] [--layers 16] [--keep]

16 layers, width 256, 8 heads, d_ff 1024, RMSNorm, gated SiLU, no biases; 64 rows of 100 tokens; each token is a vector
of 16 numbers, and the output is one number; squared error, AdamW (fused) without clipping; float32, one thread. The
model of transformers gets our weights, and nothing is measured unless outputs and gradients are the same. Times are CPU
times of whole steps in the order theirs (eager), theirs (SDPA), ours; the figures are the median and the range of the
ratios. --keep stores the results. Needs `pip install '.[outside]'`.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from record import save
from torch import Tensor, nn

from lengthwise.config import ModelConfig
from lengthwise.models import Decoder
from lengthwise.models.conversion import encoding_from_rope_parameters, trained_length

WIDTH, HEADS, D_FF, BATCH, LENGTH, INPUTS, TRAINED = 256, 8, 1024, 64, 100, 16, 100
PARAMETERS: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 8.0},
    "dynamic": {"factor": 8.0},
    "yarn": {"factor": 8.0, "original_max_position_embeddings": TRAINED},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": TRAINED,
    },
}
EAGER, SDPA, OURS = "transformers, eager", "transformers, SDPA", "lengthwise"


def rope_parameters(kind: str) -> dict[str, Any]:
    return {"rope_type": kind, "rope_theta": 10_000.0, **PARAMETERS[kind]}


class Theirs(nn.Module):
    """transformers' Llama between two linear maps."""

    def __init__(self, kind: str, layers: int, attention: str):
        super().__init__()
        from transformers import LlamaConfig, LlamaModel

        given = rope_parameters(kind)
        scaled = TRAINED * 8 if "original_max_position_embeddings" in given else TRAINED
        config = LlamaConfig(
            vocab_size=1, hidden_size=WIDTH, intermediate_size=D_FF, num_hidden_layers=layers,
            num_attention_heads=HEADS, num_key_value_heads=HEADS, max_position_embeddings=scaled, rope_parameters=given,
            use_cache=False, rms_norm_eps=1e-6, pad_token_id=None, bos_token_id=0, eos_token_id=0,
            attn_implementation=attention,
        )  # fmt: skip
        self.input_projection = nn.Linear(INPUTS, WIDTH, bias=False)
        self.model = LlamaModel(config)
        self.lm_head = nn.Linear(WIDTH, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.lm_head(self.model(inputs_embeds=self.input_projection(x)).last_hidden_state)


def ours(kind: str, layers: int) -> Decoder:
    given = rope_parameters(kind)
    choice = encoding_from_rope_parameters(given, head_dim=WIDTH // HEADS)
    config = ModelConfig.llama(d_model=WIDTH, num_layers=layers, num_heads=HEADS, d_ff=D_FF)
    return Decoder(config, choice, input_width=INPUTS, output_size=1, train_length=trained_length(given, TRAINED))


def by_our_names(theirs: dict[str, Tensor], layers: int) -> dict[str, Tensor]:
    """Weights or gradients of theirs: q, k and v in one matrix, gate and up in one."""
    made = {f"{name}.weight": theirs[f"{name}.weight"] for name in ("input_projection", "lm_head")}
    made["norm.weight"] = theirs["model.norm.weight"]
    for n in range(layers):
        layer, block = f"model.layers.{n}.", f"blocks.{n}."
        parts = {
            "attention_norm": ["input_layernorm"],
            "mlp_norm": ["post_attention_layernorm"],
            "qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
            "out": ["self_attn.o_proj"],
            "up": ["mlp.gate_proj", "mlp.up_proj"],
            "down": ["mlp.down_proj"],
        }
        for name, those in parts.items():
            made[f"{block}{name}.weight"] = torch.cat([theirs[f"{layer}{other}.weight"] for other in those])
    return made


def require_equal(model: Decoder, theirs: Theirs, layers: int, x: Tensor, y: Tensor) -> float:
    """The largest difference of a gradient, relative to the largest number in it. Theirs gets our weights."""
    losses = []
    for one in (model, theirs):
        one.zero_grad(set_to_none=True)
        losses.append(F.mse_loss(one(x), y))
        losses[-1].backward()
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-5, atol=0)
    expected = by_our_names({name: p.grad for name, p in theirs.named_parameters() if p.grad is not None}, layers)
    worst = 0.0
    for name, p in model.named_parameters():
        assert p.grad is not None
        worst = max(worst, float((p.grad - expected[name]).abs().max() / expected[name].abs().max()))
    if worst > 1e-3:
        raise SystemExit(f"the gradients differ by {worst:.1e} of their largest number")
    return worst


class Step:
    def __init__(self, model: nn.Module, x: Tensor, y: Tensor, clock: Callable[[], float] = time.process_time):
        self.model, self.x, self.y, self.clock = model, x, y, clock
        self.optimiser = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

    def __call__(self) -> float:
        start = self.clock()
        self.optimiser.zero_grad(set_to_none=True)
        F.mse_loss(self.model(self.x), self.y).backward()
        self.optimiser.step()
        return self.clock() - start


def compare(kind: str, layers: int, pairs: int) -> dict[str, Any]:
    torch.manual_seed(0)
    x, y = torch.randn(BATCH, LENGTH, INPUTS), torch.randn(BATCH, LENGTH, 1)
    model, models, worst = ours(kind, layers), {}, {}
    for name, attention in ((EAGER, "eager"), (SDPA, "sdpa")):
        models[name] = Theirs(kind, layers, attention)
        state = by_our_names(models[name].state_dict(), layers)
        model.load_state_dict(state, strict=False)  # the last of them stays
    models[EAGER].load_state_dict(models[SDPA].state_dict())
    for name, theirs in models.items():
        worst[name] = require_equal(model, theirs, layers, x, y)  # type: ignore[arg-type]
    steps = {name: Step(one, x, y) for name, one in (*models.items(), (OURS, model))}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(pairs + 1):
        for name, step in steps.items():
            seconds = step()
            if turn:  # the first makes memory and moments
                times[name].append(seconds)
    row: dict[str, Any] = {"seconds": {name: statistics.median(those) for name, those in times.items()}}
    row["gradients_differ_by"] = worst
    for name in (EAGER, SDPA):
        ratios = [mine / other for mine, other in zip(times[OURS], times[name], strict=True)]
        row[f"of {name}"] = {"ratio": statistics.median(ratios), "low": min(ratios), "high": max(ratios)}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encodings", default=",".join(PARAMETERS))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--keep", action="store_true", help="keep the figures: on a machine that does nothing else")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    figures: dict[str, Any] = {}
    print(f"{'':<10}{'ours':>9}{'of eager':>12}{'range':>14}{'of SDPA':>12}{'range':>14}{'gradients':>12}")
    for kind in args.encodings.split(","):
        figures[kind] = row = compare(kind, args.layers, args.pairs)
        cells = [f"{kind:<10}{row['seconds'][OURS]:>8.2f}s"]
        for name in (EAGER, SDPA):
            r = row[f"of {name}"]
            cells.append(f"{r['ratio']:>12.3f}{r['low']:>8.2f}-{r['high']:.2f} ")
        print("".join(cells) + f"{max(row['gradients_differ_by'].values()):>11.0e}", flush=True)
    if args.keep:
        save("llama_step", {"layers": args.layers, **figures})


if __name__ == "__main__":
    main()
