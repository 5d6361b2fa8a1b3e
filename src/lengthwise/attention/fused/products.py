"""Matrix products of tables that have a row for each query, one row of the batch at a time to avoid copies."""

import torch
from torch import Tensor


def block_product(x: Tensor, table: Tensor) -> Tensor:
    """Return x [b, h, i, r] @ table [h|1, r, n] as [b, h, i, n], in the dtype of the table."""
    out = table.new_empty(*x.shape[:3], table.shape[2])
    for x_row, out_row in zip(x, out, strict=True):
        torch.bmm(x_row.to(table.dtype), table.expand(len(x_row), -1, -1), out=out_row)
    return out


def add_product_over_queries(total: Tensor, x: Tensor, y: Tensor) -> None:
    """Add the sum of x [b, h, i, n] · y [b, h, i, r] over the batch and the queries to `total` [h, n, r]."""
    for x_row, y_row in zip(x, y, strict=True):
        total.baddbmm_(x_row.mT, y_row.to(total.dtype))
