"""The list of mixers: what a model can have in place of softmax attention. Each is a module of `models/mixers`."""

from dataclasses import dataclass

MLP = ("d_ff", "norm", "mlp", "bias")


@dataclass(frozen=True)
class Mixer:
    """What is known about a mixer without building a model.

    `label`: its name in reports, and that of its class. `settings`: the fields of `ModelConfig` that it has beside
    `d_model`, `num_layers` and `dropout`. `encodings`: the names of the encodings that it accepts, its default first.
    `mlp_width`: the default of `d_ff`, as a multiple of `d_model`. `cost`: the measured time of mixing a token, in
    multiply-adds of linear layers, as a multiple of d_model²; a rough figure for the display of progress.
    """

    label: str
    settings: tuple[str, ...]
    encodings: tuple[str, ...] = ("NoPE",)
    mlp_width: int = 4
    cost: int = 0

    @property
    def all_settings(self) -> tuple[str, ...]:
        return ("mixer", "d_model", "num_layers", *self.settings, "dropout")


MIXERS: dict[str, Mixer] = {
    "mamba": Mixer("Mamba", ("state_size",)),
    "lstm": Mixer("LSTM", MLP, cost=11),
    "linear_transformer": Mixer("LinearTransformer", ("num_heads", *MLP), ("NoPE", "Sinusoidal", "Learned"), cost=11),
    "retnet": Mixer("RetNet", ("num_heads", *MLP), mlp_width=2, cost=18),
    "rwkv4": Mixer("RWKV4", ("d_ff", "norm", "bias"), cost=12),
    "hyena": Mixer("Hyena", MLP, cost=19),
}
