// Biases that depend on the distance alone, where positions are consecutive.
//
// A pair of blocks then has at most BLOCK_Q + BLOCK_K - 1 different distances, one for each diagonal. Diagonal n of a pair with
// `rows` rows holds the pairs of row r and column c with c + rows - 1 - r = n; its distance is the furthest distance of the
// pair less n. So each row reads the same array of biases, one place further on than the row after it, and gradients are sums
// along diagonals.
#pragma once

#include "worker.h"

namespace {

// to[x] = factor * from[furthest - x]. Past either end of the table, its nearest entry counts.
template <class X>
inline void fill_diagonals(const X* from, i64 size, i64 furthest, i64 count, X factor, X* to) {
  i64 x = 0, stop = clamp(furthest - (size - 1), 0, count);
  for (; x < stop; x++) to[x] = from[size - 1] * factor;
  stop = clamp(furthest + 1, 0, count);
  for (const X* entry = from + furthest; x < stop; x++) to[x] = entry[-x] * factor;
  for (; x < count; x++) to[x] = from[0] * factor;
}

// diagonal_sums[x] = sum over r of from[r, x - (rows - 1 - r)]. Left and right of a row's columns, `from` holds zeros.
template <class Vec>
inline void Worker<Vec>::sum_diagonals(const T* from, i64 rows, i64 columns) {
  for (i64 x = 0; x < rows + columns - 1; x += N) {
    i64 low = max(0, rows - x - N), high = min(rows, columns + rows - 1 - x);
    const T* diagonals = from + x - (rows - 1) + low * (ROW + 1);
    Wide total = {};
    for (i64 r = low; r < high;) {
      V even = {}, odd = {};
      const i64 stop = min(r + 8, high);
      for (; r + 1 < stop; r += 2, diagonals += 2 * (ROW + 1)) {
        even += Vec::load(diagonals);
        odd += Vec::load(diagonals + ROW + 1);
      }
      if (r < stop) {
        even += Vec::load(diagonals);
        diagonals += ROW + 1;
        r++;
      }
      total += WIDEN(even + odd);
    }
    add_wide<Vec>(scratch.diagonal_sums + x, total, false);
  }
}

// Adds the sums to the gradient of a table, the inverse of fill_diagonals.
template <class Vec>
inline void Worker<Vec>::add_diagonals(double* to, i64 size, i64 furthest, i64 count) const {
  const double* sums = scratch.diagonal_sums;
  i64 x = 0, stop = clamp(furthest - (size - 1), 0, count);
  for (; x < stop; x++) to[size - 1] += sums[x];
  stop = clamp(furthest + 1, 0, count);
  for (double* entry = to + furthest; x < stop; x++) entry[-x] += sums[x];
  for (; x < count; x++) to[0] += sums[x];
}

}  // namespace
