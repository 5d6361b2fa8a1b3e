// Matrix products: one tile of sums in registers, and from it the products of a pair of blocks.
//
// The products of a pair leave out tiles in which nothing is visible. Row r sees the columns from begin + r up to end + r.
#pragma once

#include "mask.h"

namespace {

// c[rows, columns] (+)= a b for a tile of `rows` rows and `columns` vectors: sums over k of a[r, k] b[k, column]. What c held
// is added last. A sum of the sums of blocks is more accurate than one running sum of thousands of numbers.
template <class Vec, int rows, int columns>
void tile(const typename Vec::T* a, i64 a_row, i64 a_step, const typename Vec::T* b, i64 b_step, typename Vec::T* c,
          i64 c_row, i64 depth, bool add) {
  typedef typename Vec::V V;
  V sum[rows][columns];
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
    for (int x = 0; x < columns; x++) sum[r][x] = V{};
  for (i64 k = 0; k < depth; k++) {
    V row[columns];
#pragma GCC unroll 8
    for (int x = 0; x < columns; x++) row[x] = Vec::load(b + x * Vec::N);
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
      V factor = Vec::broadcast(a[r * a_row]);
#pragma GCC unroll 8
      for (int x = 0; x < columns; x++) sum[r][x] += factor * row[x];
    }
    a += a_step;
    b += b_step;
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
    for (int x = 0; x < columns; x++) {
      typename Vec::T* to = c + r * c_row + x * Vec::N;
      Vec::store(to, add ? Vec::load(to) + sum[r][x] : sum[r][x]);
    }
}

template <class Vec, int columns>
void tile_rows(i64 rows, const typename Vec::T* a, i64 a_row, i64 a_step, const typename Vec::T* b, i64 b_step,
               typename Vec::T* c, i64 c_row, i64 depth, bool add) {
  switch (rows) {
    case 1: return tile<Vec, 1, columns>(a, a_row, a_step, b, b_step, c, c_row, depth, add);
    case 2: return tile<Vec, 2, columns>(a, a_row, a_step, b, b_step, c, c_row, depth, add);
    case 3: return tile<Vec, 3, columns>(a, a_row, a_step, b, b_step, c, c_row, depth, add);
    case 4: return tile<Vec, 4, columns>(a, a_row, a_step, b, b_step, c, c_row, depth, add);
    case 5: return tile<Vec, Vec::TILE_ROWS < 5 ? 4 : 5, columns>(a, a_row, a_step, b, b_step, c, c_row, depth, add);
    default: return tile<Vec, Vec::TILE_ROWS, columns>(a, a_row, a_step, b, b_step, c, c_row, depth, add);
  }
}

// A tile of at most TILE_ROWS rows and TILE_COLUMNS vectors. Element [r, k] of a lies at a + r * a_row + k * a_step, so a may
// be transposed; row k of b at b + k * b_step, and row r of c at c + r * c_row.
template <class Vec>
INLINE void multiply_tile(i64 rows, i64 columns, const typename Vec::T* a, i64 a_row, i64 a_step, const typename Vec::T* b,
                          i64 b_step, typename Vec::T* c, i64 c_row, i64 depth, bool add) {
  switch (columns) {
    case 1: return tile_rows<Vec, 1>(rows, a, a_row, a_step, b, b_step, c, c_row, depth, add);
    case 2: return tile_rows<Vec, 2>(rows, a, a_row, a_step, b, b_step, c, c_row, depth, add);
    case 3: return tile_rows<Vec, Vec::TILE_COLUMNS < 3 ? 2 : 3>(rows, a, a_row, a_step, b, b_step, c, c_row, depth, add);
    default: return tile_rows<Vec, Vec::TILE_COLUMNS>(rows, a, a_row, a_step, b, b_step, c, c_row, depth, add);
  }
}

// to[r, c] = <row r of a, column c of the panels>, for the tiles that are visible.
template <class Vec>
inline void Worker<Vec>::multiply_panels(const T* a, const T* panel, T* to, i64 stride, i64 rows, i64 columns, i64 begin,
                                         i64 end) const {
  for (i64 c = 0; c < columns; c += PANEL, panel += PANEL * width)
    for (i64 r = 0; r < rows; r += Vec::TILE_ROWS) {
      i64 count = min(Vec::TILE_ROWS, rows - r), visible = min(columns, end + r + count - 1) - c;
      if (visible <= 0 || begin + r >= c + PANEL) continue;
      i64 vectors = min(Vec::TILE_COLUMNS, (visible + N - 1) / N);
      multiply_tile<Vec>(count, vectors, a + r * width, width, 1, panel, PANEL, to + r * stride + c, stride, call.dim, false);
    }
}

// The same with the keys in place of panels. For the few queries of a decoding step, panels would cost more than they save.
template <class Vec>
inline void Worker<Vec>::multiply_rows(const T* a, const T* keys, i64 stride, T* to, i64 rows, i64 columns, i64 begin) const {
  for (i64 c = clamp(begin, 0, columns) / N * N; c < columns; c += N)
    for (i64 r = 0; r < rows; r++) {
      V dot[N];
      for (i64 n = 0; n < N; n++) {
        dot[n] = V{};
        if (c + n < columns)
          for (i64 d = 0; d < width; d += N)
            dot[n] += Vec::load(a + r * width + d) * Vec::load(keys + (c + n) * stride + d);
      }
      transpose<Vec>(dot);
      V sum = dot[0];
      for (i64 n = 1; n < N; n++) sum += dot[n];
      Vec::store(to + r * ROW + c, sum);
    }
}

// to[r] += sum over c of weight[r, c] x[c]
template <class Vec>
inline void Worker<Vec>::accumulate_rows(const T* weight, const T* x, i64 stride, T* to, i64 rows, i64 columns, i64 begin,
                                         i64 end) const {
  for (i64 d = 0; d < vectors; d += Vec::TILE_COLUMNS)
    for (i64 r = 0; r < rows; r += Vec::TILE_ROWS) {
      i64 count = min(Vec::TILE_ROWS, rows - r), last = min(columns, end + r + count - 1), first = max(0, begin + r);
      if (last <= first) continue;
      multiply_tile<Vec>(count, min(Vec::TILE_COLUMNS, vectors - d), weight + r * ROW + first, ROW, 1,
                         x + first * stride + d * N, stride, to + r * width + d * N, width, last - first, true);
    }
}

// to[c] += sum over r of weight[r, c] x[r]
template <class Vec>
inline void Worker<Vec>::accumulate_columns(const T* weight, i64 weight_row, const T* x, T* to, i64 rows, i64 columns,
                                            i64 begin, i64 end) const {
  for (i64 d = 0; d < vectors; d += Vec::TILE_COLUMNS)
    for (i64 c = 0; c < columns; c += Vec::TILE_ROWS) {
      i64 count = min(Vec::TILE_ROWS, columns - c), r = max(0, c + 1 - end), stop = min(rows, c + count - begin);
      if (r >= rows) break;
      if (r >= stop) continue;
      multiply_tile<Vec>(count, min(Vec::TILE_COLUMNS, vectors - d), weight + r * weight_row + c, 1, weight_row,
                         x + r * width + d * N, width, to + c * width + d * N, width, stop - r, true);
    }
}

// accumulate_rows (`by_row`) or accumulate_columns for pairs of blocks in which some pairs are hidden and some numbers are not
// finite. Hidden pairs are skipped rather than multiplied by zero, so NaN and infinity stay with the rows that see them. The
// order of the sums is that of the products above, so that rows which see only finite numbers keep every bit.
template <class Vec>
inline void Worker<Vec>::masked_gemm(const BlockPair& pair, const T* weight, i64 weight_row, bool by_row, const T* x,
                                     i64 stride, T* to) {
  const i64 results = by_row ? pair.q->size : pair.k->size, terms = by_row ? pair.k->size : pair.q->size;
  T* sum = scratch.masked_sum;
  for (i64 n = 0; n < results; n++, to += width) {
    memset(sum, 0, sizeof(T) * width);
    for (i64 m = 0; m < terms; m++) {
      const i64 r = by_row ? n : m, c = by_row ? m : n;
      if (!pair_is_visible(pair, r, c)) continue;
      const V factor = Vec::broadcast(weight[r * weight_row + c]);
      for (i64 d = 0; d < width; d += N) Vec::store(sum + d, Vec::load(sum + d) + factor * Vec::load(x + m * stride + d));
    }
    for (i64 d = 0; d < width; d += N) Vec::store(to + d, Vec::load(to + d) + Vec::load(sum + d));
  }
}

}  // namespace
