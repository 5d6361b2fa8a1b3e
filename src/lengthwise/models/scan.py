"""The selective scan of Mamba-1, and its gradient, one token after the other.

    h_t = exp(dt_t A) h_{t−1} + B_t u_t,        y_t = C_t · h_t

Written as a loop that autograd records, every step of it stays in memory, and with `x[:, t]` in the loop each step's gradient is
as large as all of x, so that the backward pass takes time quadratic in the length. Here the backward pass is a loop as well:
it computes the states of a few rows at a time again, and keeps nothing of the others.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

STATE = 1 << 16  # numbers of the rows' states that are worked on together: what stays in a core's cache
STATES = 1 << 24  # numbers of their states at all times, which the backward pass keeps


def selective_scan(
    dt: Float[Tensor, "b t e"],
    u: Float[Tensor, "b t e"],
    A: Float[Tensor, "n e"],
    B: Float[Tensor, "b t n"],
    C: Float[Tensor, "b t n"],
    state: Float[Tensor, "b n e"],
    keep: Float[Tensor, "b t"] | None = None,
) -> tuple[Float[Tensor, "b t e"], Float[Tensor, "b n e"]]:
    """y of every token, and the state after the last one. `state`: before the first. `keep`: 0 where a token begins anew, 1
    elsewhere. The arguments have one dtype, float32 or float64."""
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
            steps = zip(_times(dt, rows), _times(u, rows), _times(B, rows), _times(C, rows), strict=True)
            kept = _times(keep, rows)
            for t, (dt_t, u_t, B_t, C_t) in enumerate(steps):
                h.mul_(_decay(dt_t, A, kept[t], out=work)).addcmul_(u_t[:, None], B_t[:, :, None])
                y[rows, t] = torch.bmm(C_t[:, None], h)[:, 0]
        return y, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor, grad_last: Tensor) -> tuple[Tensor | None, ...]:
        dt, u, A, B, C, state, keep = ctx.saved_tensors
        ddt, du, dB, dC = (torch.empty_like(x) for x in (dt, u, B, C))
        dA, dstate = torch.zeros_like(A), grad_last.clone()
        kept_of: tuple[Tensor, ...] = ()
        for rows in _blocks(state, dt.shape[1]):
            if not kept_of or len(kept_of[0][0]) != len(state[rows]):  # new memory costs as much as what is done in it
                kept_of = tuple(state.new_empty(dt.shape[1] + n, *state[rows].shape) for n in (0, 1))
            of_rows = [_times(x, rows) for x in (dt, u, B, C, grad_y)]
            decays, states = (part.unbind(0) for part in kept_of)
            states[0].copy_(state[rows])
            _again(decays, states, A, of_rows[0], of_rows[1], of_rows[2], _times(keep, rows))
            g, dA_rows = dstate[rows], torch.zeros_like(state[rows])
            work = torch.empty_like(g)
            steps = list(enumerate(zip(*of_rows, strict=True)))
            for t, (dt_t, u_t, B_t, C_t, dy_t) in reversed(steps):
                g.addcmul_(dy_t[:, None], C_t[:, :, None])  # of the state after t
                dC[rows, t] = torch.bmm(states[t + 1], dy_t[:, :, None])[:, :, 0]
                dB[rows, t] = torch.bmm(g, u_t[:, :, None])[:, :, 0]
                du[rows, t] = torch.bmm(B_t[:, None], g)[:, 0]
                g.mul_(decays[t])  # of the state before t
                torch.mul(g, states[t], out=work)  # of dt_t A
                dA_rows.addcmul_(work, dt_t[:, None])
                torch.sum(work.mul_(A), 1, out=ddt[rows, t])
            dA += dA_rows.sum(0)
        return ddt, du, dA, dB, dC, dstate, None


def _again(
    decays: tuple[Tensor, ...], states: tuple[Tensor, ...], A: Tensor, dt: Any, u: Any, B: Any, kept: Any
) -> None:
    """Write what the states were multiplied by at each time, and the states after each time beside that before the first."""
    for t, (dt_t, u_t, B_t) in enumerate(zip(dt, u, B, strict=True)):
        _decay(dt_t, A, kept[t], out=decays[t])
        torch.mul(states[t], decays[t], out=states[t + 1]).addcmul_(u_t[:, None], B_t[:, :, None])


def _decay(dt: Tensor, A: Tensor, keep: Tensor | None, out: Tensor) -> Tensor:
    torch.mul(dt[:, None], A, out=out).exp_()
    return out if keep is None else out.mul_(keep[:, None, None])


class _Never:
    def __getitem__(self, _: int) -> None:
        return None


def _times(x: Tensor | None, rows: slice) -> Any:
    """The rows' slices of each time."""
    return _Never() if x is None else x[rows].unbind(1)


def _blocks(state: Tensor, times: int) -> list[slice]:
    rows = max(1, min(STATE // state[0].numel(), STATES // (state[0].numel() * max(times, 1))))
    return [slice(n, n + rows) for n in range(0, len(state), rows)]
