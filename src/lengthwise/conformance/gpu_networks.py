"""Compare the Triton kernels of FIRE's network and tables with PyTorch on the CPU, in float64."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lengthwise.encodings import FIRE, piecewise
from lengthwise.encodings.fire import feature_derivative

TOLERANCE = 1e-6  # of the largest number; gradients are in the float32 of the parameters


def difference(device: torch.device | str) -> str | None:
    """Return where kernels and PyTorch differ by more than rounding, or None if they agree."""
    from lengthwise.native import gpu_segments

    torch.manual_seed(0)
    fire = FIRE(num_heads=12)
    parameters = [x.detach() * 2 for x in fire.layers.parameters()]
    on_device = [x.to(device) for x in parameters]
    c, multiplier = (torch.tensor(x, requires_grad=True) for x in (0.1, 0.5))
    distance, query = torch.arange(3000), torch.arange(3000)[None]

    result = gpu_segments.relu_segments(on_device, False)
    slope, intercept, knots, gates = piecewise._segments_and_gates(parameters, False)
    if result is None or len(result[2]) != len(knots):
        return "segments of a network: there are more or fewer of them"
    d_slope, d_intercept = torch.randn_like(slope), torch.randn_like(intercept)
    found = gpu_segments.relu_segments_backward(d_slope.to(device), d_intercept.to(device), on_device, result[3], False)
    right = piecewise._parameter_gradients(parameters, gates, False, d_slope, d_intercept)

    feature, scale, _ = fire.tables(c, multiplier, distance, query)
    d_feature, d_scale = torch.randn_like(feature), torch.randn_like(scale)
    numbers = c.detach().to(device), multiplier.detach().to(device), distance.to(device), query.to(device)
    found_tables = gpu_segments.fire_tables(*numbers, fire.L, fire.eps)
    found_numbers = gpu_segments.fire_tables_backward(
        *numbers, d_feature.to(device), d_scale.to(device), fire.L, fire.eps
    )
    right_numbers = torch.autograd.grad((feature, scale), (c, multiplier), (d_feature, d_scale))

    pairs: dict[str, tuple[Sequence[Tensor], Sequence[Tensor]]] = {
        "segments of a network": (result, (slope, intercept, knots, gates)),
        "gradients of a network": (found, right),
        "tables of FIRE": (found_tables, (feature, scale, feature_derivative(c, distance, fire.L))),
        "gradients of c and L": (found_numbers, right_numbers),
    }
    for name, (ours, expected) in pairs.items():
        for x, y in zip(ours, expected, strict=True):
            error = (x.cpu().double() - y.detach().double()).abs().max() / y.detach().double().abs().max()
            if not error <= TOLERANCE:
                return f"{name}: an error of {error:.1e} of the largest number"
    return None
