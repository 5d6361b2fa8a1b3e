"""The gradients of slope, intercept and feature_parameter: the sums that key_gradients writes (segment_sums.py)."""

from typing import NamedTuple

import torch
from torch import Tensor

from lengthwise.attention.fused.arguments import Gradients
from lengthwise.attention.fused.gpu.call import Call, padded
from lengthwise.attention.fused.gpu.distances import FixedPoint


class SegmentSums(NamedTuple):
    """What `key_gradients` writes; see there. None if there are no segments, or no gradients of them."""

    lines: Tensor | None  # of intercepts and slopes
    parameter: Tensor | None
    slots: int  # segments padded to a power of two

    @classmethod
    def of(cls, call: Call, blocks: int, needed: bool) -> "SegmentSums":
        """Return new sums for a number of blocks of keys."""
        slope = call.arguments.slope
        if slope is None or not needed:
            return cls(None, None, 1)
        # The dtype of `_to_sum_dtype` in parts.py.
        dtype = torch.float64 if call.q.dtype == torch.float32 else torch.float32
        parameter = slope.new_empty(call.batch, call.heads, blocks, dtype=dtype)
        if call.case.many_segments:
            return cls(slope.new_zeros(2, *slope.shape, dtype=torch.long), parameter, 1)
        slots = padded(slope.shape[1])
        return cls(parameter.new_empty(*parameter.shape, 2, slots), parameter, slots)

    def write(self, gradients: Gradients, fixed_point: FixedPoint | None) -> None:
        """Write the gradients."""
        if self.lines is None or self.parameter is None:
            return
        gradients["feature_parameter"].copy_(self.parameter.sum(dtype=torch.float64))
        gradients["distance_feature"].fill_(torch.nan)  # it is not computed; the backend does not ask for it
        for n, name in enumerate(("intercept", "slope")):
            gradient = gradients[name]
            if fixed_point is not None and self.slots == 1:  # many segments
                gradient.copy_(fixed_point.decode(self.lines[n], 1 + n))
            else:
                total = self.lines[..., n, : gradient.shape[1]].sum((0, 2), dtype=torch.float64)
                gradient.copy_(total if len(gradient) == len(total) else total.sum(0, keepdim=True))
