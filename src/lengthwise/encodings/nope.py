"""NoPE: no position encoding."""

from lengthwise.encodings.base import PositionEncoding


class NoPE(PositionEncoding):
    """b(i, j) = 0, and q and k are unchanged. Only the causal mask gives information about positions.

    Beyond the training length: it is defined at every length, but a trained model has never seen so many keys.

    Source: Kazemnejad et al. 2023, "The Impact of Positional Encoding on Length Generalization in Transformers", eq. 16.

    >>> list(NoPE().parameters())
    []
    """

    num_axes = None

    def __init__(self) -> None:
        super().__init__()
