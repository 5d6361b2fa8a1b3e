"""NoPE: no position encoding."""

from lengthwise.encodings.base import PositionEncoding


class NoPE(PositionEncoding):
    """Nothing: b(i, j) = 0, q and k unchanged. The causal mask alone tells positions apart.

    Past the trained length: defined everywhere; nothing about it was trained there.

    Source: Kazemnejad et al. 2023, "The Impact of Positional Encoding on Length Generalization in Transformers", eq. 16.

    >>> list(NoPE().parameters())
    []
    """

    def __init__(self) -> None:
        super().__init__()
