"""T5: a learned scalar per head and bucket of distances."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.config import ConfigError
from lengthwise.encodings.arguments import require_positive, require_positive_int
from lengthwise.encodings.base import DistanceBias
from lengthwise.forms import table_dtype


class T5(DistanceBias):
    """b(h, i, j) = E[h, bucket(i - j)] nats, with B = `num_buckets` and D = `max_distance`:

        bucket(d) = d                                                  for d < m
                    min(B - 1, m + floor(ln(d/m) / ln(D/m) · (B - m)))  otherwise

    The first m = B // 2 buckets hold one distance each. The others have logarithmic widths up to D.

    `bidirectional` applies the same rule to |d| with B/2 buckets for each direction. The first half is for the query
    itself and keys before it, the second half for keys after it (its first bucket stays empty). Otherwise keys after
    the query are in bucket 0.

    E is initialized from N(0, std^2).

    Beyond the training length: all distances from D on share the last bucket.

    Source: Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer".
    Code: the rule of the published T5 models (B = 32, D = 128; bidirectional in their encoders). The FIRE paper's
    baseline has B = 64.
    Differs: the NoPE paper prints B/2 without the floor, which contradicts its own matrix for B = 5, D = 6. T5
    initializes E with std d_model^-0.5; the default `std` is that for d_model 512.

    >>> T5(num_heads=1, num_buckets=5, max_distance=6).bucket(torch.arange(8))
    tensor([0, 1, 2, 3, 3, 4, 4, 4])
    """

    def __init__(
        self,
        *,
        num_heads: int,
        num_buckets: int = 32,
        max_distance: int = 128,
        std: float = 0.044,
        bidirectional: bool = False,
    ):
        super().__init__()
        require_positive_int("T5", num_buckets=num_buckets, max_distance=max_distance)
        require_positive("T5", std=std)
        if bidirectional and (num_buckets % 2 or num_buckets < 4):
            raise ConfigError(
                f"T5: num_buckets must be an even number, at least 4, if bidirectional, got {num_buckets}; each "
                "direction gets half of them"
            )
        if num_buckets < 2:
            raise ConfigError(f"T5: num_buckets must be at least 2, got {num_buckets}")
        self.buckets_per_direction = num_buckets // 2 if bidirectional else num_buckets
        exact = self.buckets_per_direction // 2
        if max_distance <= exact:
            raise ConfigError(
                f"T5: max_distance must be more than {exact}, because the first {exact} of "
                f"{self.buckets_per_direction} buckets "
                f"hold one distance each, got {max_distance}; make max_distance larger or num_buckets smaller"
            )
        self.num_buckets, self.max_distance = num_buckets, max_distance
        self.constant_beyond, self.bidirectional = max_distance, bidirectional
        self.weight = nn.Parameter(torch.randn(num_heads, num_buckets) * std)

    def bucket(self, distance: Int[Tensor, "*n"]) -> Int[Tensor, "*n"]:
        """Return the bucket of each distance (query position - key position; below 0 for keys after the query)."""
        exact, after = self.buckets_per_direction // 2, self.bidirectional * self.buckets_per_direction * (distance < 0)
        distance = distance.abs() if self.bidirectional else distance.clamp(min=0)
        logarithm = torch.log(distance.clamp(min=exact).to(table_dtype(distance.device)) / exact)
        ratio = logarithm / math.log(self.max_distance / exact)
        # 1e-9 corrects rounding errors at whole numbers: ln 2 / ln 32 · 5 is 0.9999999999999999 and not 1.
        steps = (ratio * (self.buckets_per_direction - exact) + 1e-9).floor().long()
        far = (exact + steps).clamp(max=self.buckets_per_direction - 1)
        return after + torch.where(distance < exact, distance, far)

    def tracked(self) -> dict[str, Tensor]:
        """Return E, the bias of each head and bucket, in nats."""
        return {"bias of bucket": self.weight}

    def bias(self, distance: Int[Tensor, " n"]) -> Float[Tensor, "h n"]:
        return self.weight.to(table_dtype(distance.device))[:, self.bucket(distance)]
