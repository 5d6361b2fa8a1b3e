// A bias per query and distance: each query has its own row of biases, one for each distance.
#pragma once

#include "bias_table.h"

namespace {

// The sum of the first `count` numbers.
template <class Vec>
INLINE typename Vec::T sum_first(const typename Vec::T* from, i64 count) {
  typename Vec::V sum = {};
  for (i64 x = 0; x < count; x += Vec::N) sum += Vec::load_first(from + x, min(Vec::N, count - x));
  return Vec::reduce_add(sum);
}

template <class Vec>
inline auto Worker<Vec>::grad_rows(i64 h, i64 i) const -> T* {
  return (T*)call.grad_rows + ((b * call.heads + h) * call.queries + i) * call.rows_size;
}

// The column of query i's row that belongs to key j.
template <class Vec>
inline i64 Worker<Vec>::rows_column(i64 i, i64 j) const {
  return clamp(distance(i, j) - call.rows_first, 0, call.rows_size - 1);
}

// The bias of row r, in units of log 2. Where positions are consecutive, keys read the query's row in reverse order.
template <class Vec>
INLINE auto Worker<Vec>::rows_bias_row(const Block& q, const Block& k, i64 r, i64 visible) -> const T* {
  const T* row = rows + (q.start + r) * call.rows_size;
  T* bias = scratch.rows_bias;
  if (consecutive) {
    fill_diagonals(row, call.rows_size, q.position + r - k.position - call.rows_first, visible, log2e, bias);
  } else {
    for (i64 c = 0; c < visible; c++) bias[c] = row[rows_column(q.start + r, k.start + c)] * log2e;
  }
  return bias;
}

template <class Vec>
inline void Worker<Vec>::accumulate_grad_rows(const BlockPair& pair, i64 h) const {
  const Block &q = *pair.q, &k = *pair.k;
  const i64 size = call.rows_size;
  for (i64 r = 0; r < q.size; r++) {
    const i64 visible = visible_columns(pair, r), i = q.start + r;
    const T* __restrict dS = scratch.dS + N + r * ROW;
    T* __restrict to = grad_rows(h, i);
    if (consecutive) {
      // Keys beyond the last distance of the row come first, and those before its first distance come last.
      const i64 furthest = q.position + r - k.position - call.rows_first;
      const i64 far = clamp(furthest - (size - 1), 0, visible), near = clamp(furthest + 1, 0, visible);
      to[size - 1] += sum_first<Vec>(dS, far);
      for (i64 c = far; c < near; c++) to[furthest - c] += dS[c];
      to[0] += sum_first<Vec>(dS + near, visible - near);
    } else {
      double far = 0, near = 0;
      for (i64 c = 0; c < visible; c++) {
        const i64 column = rows_column(i, k.start + c);
        if (column == 0)
          near += (double)dS[c];
        else if (column == size - 1)
          far += (double)dS[c];
        else
          to[column] += dS[c];
      }
      to[0] += (T)near;
      to[size - 1] += (T)far;
    }
  }
}

}  // namespace
