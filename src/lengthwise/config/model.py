"""The architecture of a model."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from lengthwise.config.base import Config
from lengthwise.config.mixers import MIXERS
from lengthwise.values import ConfigError, near_miss, shown

MAX_LAYERS = 1000


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Config):
    """The architecture of a model. In place of None, settings get defaults that depend on the other settings."""

    d_model: int = 128
    """Width of the model."""
    num_layers: int = 4
    """Number of layers."""
    num_heads: int = 4
    """Attention heads per layer."""
    num_kv_heads: int | None = None
    head_dim: int | None = None
    d_ff: int | None = None
    norm: Literal["layer", "rms"] = "layer"
    mlp: Literal["gelu", "relu", "swiglu"] = "gelu"
    bias: bool = True
    dropout: float = 0.0
    tie_embeddings: bool = False
    t5_scaling: bool = False
    """Attention logits are not divided by sqrt(head_dim), queries are initialized smaller instead; residual branches
    are not scaled by depth; tied embeddings are initialized from N(0, 1), and the output is divided by
    sqrt(d_model)."""
    qk_norm: bool = False
    """Queries and keys are normalized by an RMSNorm over head_dim, with one weight vector for all heads of a layer,
    before the position encoding. A run may add it to the trained weights of a run without it."""
    share_encoding: bool | None = None
    """One encoding module for all layers (T5, KERPLE, FIRE-S) or one per layer. None: as in the encoding's source."""
    mixer: str | None = None
    """What mixes the tokens in place of attention: mamba, lstm, linear_transformer, retnet, rwkv4 or hyena. [default:
    attention]
    """
    state_size: int | None = None
    """Numbers in the state of each channel of Mamba. [default: 16]"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("d_model", "num_layers", "num_heads")
        self.require_between(1, MAX_LAYERS, "num_layers")
        if self.mixer is not None:
            self._require_mixer(self.mixer)
            return
        if self.state_size is not None:
            raise ConfigError(f"state_size applies only to mixer='mamba', got {self.state_size} for attention; omit it")
        if self.head_dim is None:
            self._require_equal_heads()
        d_ff = self._default_d_ff(4)
        self.set_defaults(num_kv_heads=self.num_heads, head_dim=self.d_model // self.num_heads, d_ff=d_ff)
        self.require_positive("num_kv_heads", "head_dim", "d_ff")
        if self.num_heads % self.kv_heads:
            raise ConfigError(
                f"num_heads must be a multiple of num_kv_heads, got {self.num_heads} and {self.num_kv_heads}"
            )
        self.require_between(0.0, 0.99, "dropout")

    def _default_d_ff(self, multiple: int) -> int:
        """Return the width of an MLP with 2 `multiple` d_model² weights; that of swiglu has a third matrix."""
        width = multiple * self.d_model
        return width if self.mlp != "swiglu" else -(-2 * width // 3 // 8) * 8

    def _require_mixer(self, name: str) -> None:
        if name not in MIXERS:
            raise ConfigError(
                f"ModelConfig.mixer must be one of {', '.join(MIXERS)}, got {shown(name)}; leave it out for attention"
                f"{near_miss(name, MIXERS)}"
            )
        mixer = MIXERS[name]
        for f in dataclasses.fields(self):
            if f.name not in mixer.all_settings and getattr(self, f.name) != f.default:
                raise ConfigError(
                    f"{f.name} does not apply to {mixer.label}, got {getattr(self, f.name)!r}; its settings are: "
                    f"{', '.join(mixer.all_settings)}"
                )
        defaults = {"state_size": 16, "d_ff": self._default_d_ff(mixer.mlp_width)}
        sizes = [size for size in defaults if size in mixer.settings]
        self.set_defaults(**{size: defaults[size] for size in sizes})
        self.require_positive(*sizes)
        if "num_heads" in mixer.settings:
            self._require_equal_heads()
        self.require_between(0.0, 0.99, "dropout")

    def _require_equal_heads(self) -> None:
        if self.d_model % self.num_heads:
            raise ConfigError(
                f"d_model must be a multiple of num_heads, got {self.d_model} and {self.num_heads}; change one"
            )

    def to_data(self) -> dict[str, Any]:
        data = super().to_data()
        if not self.qk_norm:
            del data["qk_norm"]
        return data if self.mixer is None else {name: data[name] for name in MIXERS[self.mixer].all_settings}

    # These properties have the types of sizes that may be None as arguments but never are after construction.
    @property
    def kv_heads(self) -> int:
        return self.num_kv_heads or self.num_heads

    @property
    def head_width(self) -> int:
        return self.head_dim or self.d_model // self.num_heads

    @property
    def hidden(self) -> int:
        assert self.d_ff is not None
        return self.d_ff

    @classmethod
    def gpt(cls, **settings: Any) -> "ModelConfig":
        """GPT-like: LayerNorm, GELU MLP, biases (the defaults)."""
        return cls(**settings)

    @classmethod
    def llama(cls, **settings: Any) -> "ModelConfig":
        """Llama-like: RMSNorm, gated SiLU MLP, no biases."""
        return cls(**{"norm": "rms", "mlp": "swiglu", "bias": False, **settings})

    @classmethod
    def t5(cls, **settings: Any) -> "ModelConfig":
        """T5-like, as in Kazemnejad et al. 2023: RMSNorm, ReLU MLP, no biases, tied embeddings, T5's scales."""
        like = {"norm": "rms", "mlp": "relu", "bias": False, "tie_embeddings": True, "t5_scaling": True}
        return cls(**{**like, **settings})

    @classmethod
    def mamba(cls, **settings: Any) -> "ModelConfig":
        """Mamba-1 (Gu & Dao 2023), no Transformer: blocks of a short convolution and a selective scan."""
        return cls(**{"mixer": "mamba", **settings})
