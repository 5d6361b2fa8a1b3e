"""The list of mixers: what a model can have in place of softmax attention. Each is a module of `models/mixers`."""

from dataclasses import dataclass

MLP = ("d_ff", "norm", "mlp", "bias")


@dataclass(frozen=True)
class Mixer:
    """What is known about a mixer without building a model.

    `label`: its name in reports, and that of its class. `settings`: the fields of `ModelConfig` that it has beside `d_model`,
    `num_layers` and `dropout`. `encodings`: the names of the encodings that it accepts, its default first. `mlp_width`: the default
    of `d_ff`, as a multiple of `d_model`.
    """

    label: str
    settings: tuple[str, ...]
    encodings: tuple[str, ...] = ("NoPE",)
    mlp_width: int = 4

    @property
    def all_settings(self) -> tuple[str, ...]:
        return ("mixer", "d_model", "num_layers", *self.settings, "dropout")


MIXERS: dict[str, Mixer] = {
    "mamba": Mixer("Mamba", ("state_size",)),
    "lstm": Mixer("LSTM", MLP),
    "linear_transformer": Mixer("LinearTransformer", ("num_heads", *MLP), ("NoPE", "Sinusoidal", "Learned")),
    "retnet": Mixer("RetNet", ("num_heads", *MLP), mlp_width=2),
}
