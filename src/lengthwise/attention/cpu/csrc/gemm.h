// The innermost matrix product: one tile of sums in registers.
#pragma once

#include "vec.h"

namespace {

// c[rows, columns] (+)= a b for a tile of `rows` rows and `columns` vectors: sums over k of a[r, k] b[k, column]. What c held is
// added last. A sum of the sums of blocks is more accurate than one running sum of thousands of numbers.
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

// A tile of at most TILE_ROWS rows and TILE_COLUMNS vectors. Element [r, k] of a lies at a + r * a_row + k * a_step, so a may be
// transposed; row k of b at b + k * b_step, and row r of c at c + r * c_row.
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

}  // namespace
