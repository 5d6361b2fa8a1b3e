"""The selective scan of Mamba-1 and its gradient, one token after the other.

    h_t = exp(dt_t A) h_{t−1} + B_t u_t,        y_t = C_t · h_t

If autograd recorded this loop, every step would stay in memory. And with `x[:, t]` in the loop, the gradient of each
step would be as large as all of x, so the backward pass would take time quadratic in the length. So the backward pass
here is written by hand: it recomputes the states of a few rows at a time and stores no others.
"""

from collections import defaultdict
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK_STATE = 1 << 16  # state elements processed together, so that they stay in a core's cache
BLOCK_HISTORY = 1 << 24  # state elements of all time steps that the backward pass stores together


def selective_scan(
    dt: Float[Tensor, "b t e"],
    u: Float[Tensor, "b t e"],
    A: Float[Tensor, "n e"],
    B: Float[Tensor, "b t n"],
    C: Float[Tensor, "b t n"],
    state: Float[Tensor, "b n e"],
    keep: Float[Tensor, "b t"] | None = None,
) -> tuple[Float[Tensor, "b t e"], Float[Tensor, "b n e"]]:
    """Return y of every token, and the state after the last one.

    `state`: the state before the first token. `keep`: 0 for tokens that start with an empty state, 1 for all others.
    All arguments have the same dtype, float32 or float64.
    """
    return _Scan.apply(dt, u, A, B, C, state, keep)


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, dt: Tensor, u: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor, keep: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(dt, u, A, B, C, state, keep)
        y, last = torch.empty_like(dt), state.clone()
        for rows in _blocks(state, 1):
            h, work = last[rows], torch.empty_like(last[rows])
            steps = zip(*(_time_steps(x, rows) for x in (dt, u, B, C)), strict=True)
            keep_steps = _time_steps(keep, rows)
            for t, (dt_t, u_t, B_t, C_t) in enumerate(steps):
                h.mul_(_decay(dt_t, A, keep_steps[t], out=work)).addcmul_(u_t[:, None], B_t[:, :, None])
                y[rows, t] = torch.bmm(C_t[:, None], h)[:, 0]
        return y, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor, grad_last: Tensor) -> tuple[Tensor | None, ...]:
        dt, u, A, B, C, state, keep = ctx.saved_tensors
        ddt, du, dB, dC = (torch.empty_like(x) for x in (dt, u, B, C))
        dA, dstate = torch.zeros_like(A), grad_last.clone()
        buffers: tuple[Tensor, ...] = ()
        for rows in _blocks(state, dt.shape[1]):
            # Allocating takes as long as the work in the buffers.
            if not buffers or len(buffers[0][0]) != len(state[rows]):
                buffers = tuple(state.new_empty(dt.shape[1] + n, *state[rows].shape) for n in (0, 1))
            row_steps = [_time_steps(x, rows) for x in (dt, u, B, C, grad_y)]
            decays, states = (buffer.unbind(0) for buffer in buffers)
            states[0].copy_(state[rows])
            _recompute_states(decays, states, A, row_steps[0], row_steps[1], row_steps[2], _time_steps(keep, rows))
            g, dA_rows = dstate[rows], torch.zeros_like(state[rows])
            work = torch.empty_like(g)
            steps = list(enumerate(zip(*row_steps, strict=True)))
            for t, (dt_t, u_t, B_t, C_t, dy_t) in reversed(steps):
                g.addcmul_(dy_t[:, None], C_t[:, :, None])  # now the gradient of the state after t
                dC[rows, t] = torch.bmm(states[t + 1], dy_t[:, :, None])[:, :, 0]
                dB[rows, t] = torch.bmm(g, u_t[:, :, None])[:, :, 0]
                du[rows, t] = torch.bmm(B_t[:, None], g)[:, 0]
                g.mul_(decays[t])  # now the gradient of the state before t
                torch.mul(g, states[t], out=work)  # the gradient of dt_t A
                dA_rows.addcmul_(work, dt_t[:, None])
                torch.sum(work.mul_(A), 1, out=ddt[rows, t])
            dA += dA_rows.sum(0)
        return ddt, du, dA, dB, dC, dstate, None


def _recompute_states(
    decays: tuple[Tensor, ...], states: tuple[Tensor, ...], A: Tensor, dt: Any, u: Any, B: Any, keep: Any
) -> None:
    """Write the decay factors of every step into `decays`, and the states after every step into `states[1:]`."""
    for t, (dt_t, u_t, B_t) in enumerate(zip(dt, u, B, strict=True)):
        _decay(dt_t, A, keep[t], out=decays[t])
        torch.mul(states[t], decays[t], out=states[t + 1]).addcmul_(u_t[:, None], B_t[:, :, None])


def _decay(dt: Tensor, A: Tensor, keep: Tensor | None, out: Tensor) -> Tensor:
    """Write exp(dt A), times `keep`, into `out` and return it."""
    torch.mul(dt[:, None], A, out=out).exp_()
    return out if keep is None else out.mul_(keep[:, None, None])


def _time_steps(x: Tensor | None, rows: slice) -> Any:
    """Return the slices of the rows at each time step; for no tensor None at every step."""
    return defaultdict(lambda: None) if x is None else x[rows].unbind(1)


def _blocks(state: Tensor, times: int) -> list[slice]:
    """Return slices of rows that are small enough to be processed together, with a history of `times` steps."""
    rows = max(1, min(BLOCK_STATE // state[0].numel(), BLOCK_HISTORY // (state[0].numel() * max(times, 1))))
    return [slice(n, n + rows) for n in range(0, len(state), rows)]
