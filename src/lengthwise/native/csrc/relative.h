// Vectors of distances (Shaw, Transformer-XL). <content_i, vector of the distance> is added to the logit of query i and a key,
// and the vector of the distance, from another table, to the value of the key.
//
// Each of the two takes part in three products: <row, vector> for all pairs (logits, dP), weights times vectors (dcontent, out)
// and transposed weights times rows (the gradients of the tables).
//
// SKEW. If positions are consecutive, row r and column c of a pair of blocks meet the vector of diagonal c + rows - 1 - r
// (bias_table.h). So a product with the vectors of all diagonals has every number that is needed, each row one place further
// on than the row after it. Tiles of it are written to, and read from, matrices whose rows are one number further apart than
// they are in memory, so nothing has to be moved. A tile reads and writes up to SKEW_ROWS - 1 numbers before the first column
// that a row sees and after the last: there are zeros where it reads weights. So tiles are used for finite numbers only.
//
// ENDS. The diagonals past an end of the table, as those beyond Shaw's clip, share a vector: one product or one sum of weights
// for each row takes the place of their part of the tiles.
//
// If positions are not consecutive, or for the few queries of a decoding step, the vector of each pair is looked up.
//
// A head's vectors are copied in the order of the diagonals, that is from the furthest distance to the nearest. Before the
// first and after the last vector there are copies of them, as many as a pair of blocks has diagonals.
#pragma once

#include "gemm.h"
#include "tensors.h"

namespace {

template <class Vec>
inline bool Worker<Vec>::copy_vectors(Relative& relative, i64 h) {
  const DistanceVectors& vectors = relative.vectors;
  const T* table = (const T*)vectors.table + (vectors.heads > 1 ? h : 0) * vectors.size * vectors.dim;
  if (table == relative.table) return relative.finite;
  relative.table = table;
  const i64 width = relative.width, count = relative.buffers.count;
  V check = {};
  for (i64 m = 0; m < count; m++) {
    const T* from = table + (vectors.size - 1 - clamp(m - PADDING, 0, vectors.size - 1)) * vectors.dim;
    T* to = relative.buffers.rows + m * width;
    for (i64 d = 0; d < width; d += N) {
      const V x = d < vectors.dim ? Vec::load_first(from + d, min((i64)N, vectors.dim - d)) : V{};
      check += x * (T)0;
      Vec::store(to + d, x);
    }
  }
  for (i64 m = 0; m < count; m += N)
    for (i64 d = 0; d < width; d += N) {
      V square[N];
      for (i64 n = 0; n < N; n++) square[n] = Vec::load(relative.buffers.rows + (m + n) * width + d);
      transpose<Vec>(square);
      for (i64 n = 0; n < N; n++) Vec::store(relative.buffers.columns + (d + n) * count + m, square[n]);
    }
  return Vec::reduce_add(check) == 0;
}

// Makes the vectors of a head available, and begins their gradient.
template <class Vec>
inline void Worker<Vec>::select_relative_head(Relative& relative, i64 h) {
  if (!relative.vectors.table) return;
  relative.finite = copy_vectors(relative, h);
  if (call.backward && relative.vectors.grad)
    memset(relative.buffers.grad, 0, sizeof(T) * relative.buffers.count * relative.width);
}

// Adds a head's gradient to the unit's sums.
template <class Vec>
inline void Worker<Vec>::store_relative_gradient(const Relative& relative, void* sums, i64 h) const {
  const DistanceVectors& vectors = relative.vectors;
  if (!sums) return;
  T* to = (T*)sums + (vectors.heads > 1 ? b * call.heads + h : unit) * vectors.size * vectors.dim;
  for (i64 m = 0; m < relative.buffers.count; m++) {
    const T* from = relative.buffers.grad + m * relative.width;
    T* row = to + (vectors.size - 1 - clamp(m - PADDING, 0, vectors.size - 1)) * vectors.dim;
    for (i64 d = 0; d < vectors.dim; d++) row[d] += from[d];
  }
}

// Chooses how the products of a pair of blocks are computed, and finds the diagonals whose vectors are not those of the ends.
template <class Vec>
inline void Worker<Vec>::prepare_relative(Relative& relative, const Block& q, const Block& k) const {
  relative.is_skewed = consecutive;
  if (!consecutive) return;
  const DistanceVectors& vectors = relative.vectors;
  const i64 furthest = q.position + q.size - 1 - k.position - vectors.first, diagonals = q.size + k.size - 1;
  const i64 far = furthest - (vectors.size - 1);  // the last diagonal with the furthest vector
  relative.low = clamp(far + 1, 0, diagonals);
  relative.high = clamp(furthest, relative.low, diagonals);
  relative.first_diagonal = clamp(PADDING - far, 0, relative.buffers.count - diagonals - N);
  if (multiplies_in_place() && relative.low < relative.high) relative.is_skewed = false;
}

// The vector of query i and key j.
template <class Vec>
inline i64 Worker<Vec>::vector_of_pair(const Relative& relative, i64 i, i64 j) const {
  const i64 last = relative.vectors.size - 1;
  return PADDING + last - clamp(distance(i, j) - relative.vectors.first, 0, last);
}

// to[r, c] += <row r of a, the vector of the pair>
template <class Vec>
inline void Worker<Vec>::add_relative_products(const BlockPair& pair, const Relative& relative, const T* a, T* to,
                                               i64 stride) const {
  const i64 rows = pair.q->size, columns = pair.k->size, width = relative.width, low = relative.low, high = relative.high;
  if (!relative.is_skewed) return add_products_per_pair(pair, relative, a, to, stride);
  const i64 count = min(high - low + Vec::N, rows + columns - 1 + N - low);
  for (i64 d = 0; d < relative.vectors.dim && low < high; d++)
    memcpy(scratch.diagonal_vectors + d * Scratch::DIAGONALS + low,
           relative.buffers.columns + d * relative.buffers.count + relative.first_diagonal + low, sizeof(T) * count);
  for (i64 r = 0; r < rows; r += SKEW_ROWS) {
    const SkewedTile tile = skewed_tile(pair, relative, r);
    const i64 vectors = (tile.diagonals + N - 1) / N, parts = (vectors + Vec::TILE_COLUMNS - 1) / Vec::TILE_COLUMNS;
    for (i64 part = 0, x = 0; part < parts; part++) {
      const i64 stop = vectors * (part + 1) / parts;  // tiles of about the same size
      multiply_tile<Vec>(tile.rows, stop - x, a + r * width, width, 1, scratch.diagonal_vectors + tile.first_diagonal + x * N,
                         Scratch::DIAGONALS, to + r * stride + tile.first_column + x * N, stride + 1, relative.vectors.dim,
                         true);
      x = stop;
    }
    // The tile's last vector may have held the nearest vector, too.
    const i64 end = vectors ? max(high, tile.first_diagonal + vectors * N) : high;
    for (i64 n = r; n < r + tile.rows; n++) {
      const i64 left = min(column_of(pair, low, n), columns), right = max(0, column_of(pair, end, n));
      const i64 visible = clamp(pair.end + n, 0, columns);
      T* row = to + n * stride;
      if (left > 0) {
        const V product = Vec::broadcast(end_product(relative, 0, a + n * width));
        i64 x = 0;
        for (; x + N <= left; x += N) Vec::store(row + x, Vec::load(row + x) + product);
        if (x < left) Vec::store(row + x, Vec::load(row + x) + Vec::keep_first(product, left - x, 0));
      }
      if (right < visible) {
        const T product = end_product(relative, relative.buffers.count - 1, a + n * width);
        for (i64 x = right / N * N; x < visible; x += N)
          Vec::store(row + x, Vec::load(row + x) + Vec::keep_first(V{}, max(0, right - x), product));
      }
    }
  }
}

// The column of row r in a diagonal.
template <class Vec>
inline i64 Worker<Vec>::column_of(const BlockPair& pair, i64 diagonal, i64 r) {
  return diagonal - (pair.q->size - 1) + r;
}

// The product of a row with a vector of the buffers.
template <class Vec>
inline auto Worker<Vec>::end_product(const Relative& relative, i64 vector, const T* row) const -> T {
  V sum = {};
  for (i64 d = 0; d < relative.width; d += N)
    sum += Vec::load(row + d) * Vec::load(relative.buffers.rows + vector * relative.width + d);
  return Vec::reduce_add(sum);
}

template <class Vec>
inline void Worker<Vec>::add_products_per_pair(const BlockPair& pair, const Relative& relative, const T* a, T* to,
                                               i64 stride) const {
  const i64 columns = pair.k->size, width = relative.width;
  for (i64 r = 0; r < pair.q->size; r++)
    for (i64 c = 0; c < columns; c += N) {
      V dot[N];
      for (i64 n = 0; n < N; n++) {
        dot[n] = V{};
        if (c + n >= columns) continue;
        const T* vector = relative.buffers.rows + vector_of_pair(relative, pair.q->start + r, pair.k->start + c + n) * width;
        for (i64 d = 0; d < width; d += N) dot[n] += Vec::load(a + r * width + d) * Vec::load(vector + d);
      }
      transpose<Vec>(dot);
      V sum = dot[0];
      for (i64 n = 1; n < N; n++) sum += dot[n];
      Vec::store(to + r * stride + c, Vec::load(to + r * stride + c) + sum);
    }
}

// The tile of a skewed product that begins in row r: its rows, and what its first row reads.
template <class Vec>
inline auto Worker<Vec>::skewed_tile(const BlockPair& pair, const Relative& relative, i64 r) const -> SkewedTile {
  const i64 count = min((i64)SKEW_ROWS, pair.q->size - r), own = pair.q->size - 1 - r;  // the diagonal of row r's column 0
  const i64 first = max(0, pair.begin + r), last = clamp(pair.end + r + count - 1, 0, pair.k->size);
  const i64 low = max(relative.low, own - (count - 1) + first), high = min(relative.high, own + last);
  SkewedTile tile;
  tile.rows = count;
  tile.diagonals = last > first ? max(0, high - low) : 0;
  tile.first_diagonal = low;
  tile.first_column = low - own;
  return tile;
}

// P as the products below read weights: rows with zeros on both sides, and 0 where a pair is hidden.
template <class Vec>
inline auto Worker<Vec>::visible_weights(const BlockPair& pair, const T* P, i64 stride) const -> const T* {
  for (i64 r = 0; r < pair.q->size; r++) {
    T* to = scratch.visible_weights + N + r * ROW;
    for (i64 x = 0; x < pair.k->size; x += N) Vec::store(to + x, Vec::load(P + r * stride + x));
    clear_hidden(pair, r, to, pair.k->size + N);
  }
  return scratch.visible_weights + N;
}

// What row r's weights add up to before the diagonals `low` to `high`, and after them.
template <class Vec>
inline auto Worker<Vec>::sum_ends(const BlockPair& pair, const Relative& relative, const T* weight, i64 r) const -> EndSums {
  const i64 left = clamp(column_of(pair, relative.low, r), 0, pair.k->size);
  const i64 right = clamp(column_of(pair, relative.high, r), 0, pair.k->size);
  return {(T)sum_between<Vec>(weight + r * ROW, 0, left), (T)sum_between<Vec>(weight + r * ROW, right, pair.k->size)};
}

template <class Vec>
INLINE void add_multiple(typename Vec::T* to, const typename Vec::T* from, typename Vec::T factor, i64 width) {
  if (factor == 0) return;  // a row that sees none of the keys takes nothing, whatever the vector holds
  for (i64 d = 0; d < width; d += Vec::N) Vec::store(to + d, Vec::load(to + d) + Vec::load(from + d) * factor);
}

// to[r] += sum over c of weight[r, c] times the vector of the pair. `weight` has rows of ROW numbers, with zeros where pairs
// are hidden.
template <class Vec>
inline void Worker<Vec>::accumulate_relative_rows(const BlockPair& pair, const Relative& relative, const T* weight, T* to) {
  const i64 rows = pair.q->size, width = relative.width;
  const T* vectors = relative.buffers.rows;
  if (relative.is_skewed && relative.finite) {
    for (i64 r = 0; r < rows; r += SKEW_ROWS) {
      const SkewedTile tile = skewed_tile(pair, relative, r);
      const T* first = vectors + (relative.first_diagonal + tile.first_diagonal) * width;
      for (i64 d = 0; d < width && tile.diagonals; d += Vec::TILE_COLUMNS * N)
        multiply_tile<Vec>(tile.rows, min((i64)Vec::TILE_COLUMNS, (width - d) / N), weight + r * ROW + tile.first_column,
                           ROW + 1, 1, first + d, width, to + r * width + d, width, tile.diagonals, true);
    }
    for (i64 r = 0; r < rows; r++) {
      const EndSums sums = sum_ends(pair, relative, weight, r);
      add_multiple<Vec>(to + r * width, vectors, sums.before, width);
      add_multiple<Vec>(to + r * width, vectors + (relative.buffers.count - 1) * width, sums.after, width);
    }
    return;
  }
  T* sum = scratch.relative_sum;
  for (i64 r = 0; r < rows; r++) {  // hidden pairs are skipped: see masked_gemm
    memset(sum, 0, sizeof(T) * width);
    for (i64 c = 0; c < pair.k->size; c++) {
      if (!pair_is_visible(pair, r, c)) continue;
      const T* vector = vectors + vector_of_pair(relative, pair.q->start + r, pair.k->start + c) * width;
      const V factor = Vec::broadcast(weight[r * ROW + c]);
      for (i64 d = 0; d < width; d += N) Vec::store(sum + d, Vec::load(sum + d) + factor * Vec::load(vector + d));
    }
    for (i64 d = 0; d < width; d += N) Vec::store(to + r * width + d, Vec::load(to + r * width + d) + Vec::load(sum + d));
  }
}

// Adds weight[r, c] times row r of x to the gradient of the vector of each pair. `finite`: whether x is.
template <class Vec>
inline void Worker<Vec>::accumulate_relative_gradient(const BlockPair& pair, const Relative& relative, const T* weight,
                                                      const T* x, bool finite) const {
  const i64 rows = pair.q->size, columns = pair.k->size, width = relative.width;
  T *grad = relative.buffers.grad, *last = grad + (relative.buffers.count - 1) * width;
  if (relative.is_skewed && finite) {
    for (i64 n = relative.low; n < relative.high; n += SKEW_ROWS) {
      const i64 count = min((i64)SKEW_ROWS, relative.high - n), low = max(0, rows - n - count);
      const i64 high = min(rows, columns + rows - 1 - n);
      T* to = grad + (relative.first_diagonal + n) * width;
      for (i64 d = 0; d < width; d += Vec::TILE_COLUMNS * N)
        multiply_tile<Vec>(count, min((i64)Vec::TILE_COLUMNS, (width - d) / N), weight + low * ROW + column_of(pair, n, low), 1,
                           ROW + 1, x + low * width + d, width, to + d, width, high - low, true);
    }
    for (i64 r = 0; r < rows; r++) {
      const EndSums sums = sum_ends(pair, relative, weight, r);
      add_multiple<Vec>(grad, x + r * width, sums.before, width);
      add_multiple<Vec>(last, x + r * width, sums.after, width);
    }
    return;
  }
  for (i64 r = 0; r < rows; r++)
    for (i64 c = 0; c < columns;) {
      if (!pair_is_visible(pair, r, c)) {
        c++;
        continue;
      }
      // The keys that follow may have the same vector, as those beyond the ends of the table have.
      const i64 vector = vector_of_pair(relative, pair.q->start + r, pair.k->start + c);
      double sum = 0;
      for (; c < columns && vector_of_pair(relative, pair.q->start + r, pair.k->start + c) == vector; c++)
        if (pair_is_visible(pair, r, c)) sum += (double)weight[r * ROW + c];
      T* to = grad + vector * width;
      const V factor = Vec::broadcast((T)sum);
      for (i64 d = 0; d < width; d += N) Vec::store(to + d, Vec::load(to + d) + factor * Vec::load(x + r * width + d));
    }
}

// ---- the vectors of the queries

template <class Vec>
inline i64 Worker<Vec>::content_row(i64 h, i64 i) const {
  return ((b * call.heads + h) * call.queries + i) * call.content_dim;
}

// Loads the content of a block of queries, in units of log 2. Returns whether it is finite.
template <class Vec>
inline bool Worker<Vec>::load_content(i64 h, const Block& block) const {
  const i64 dim = call.content_dim, width = key_vectors.width;
  V check = {};
  for (i64 r = 0; r < block.size; r++) {
    const T* from = (const T*)call.content + content_row(h, block.start + r);
    for (i64 d = 0; d < width; d += N) {
      const V x = d < dim ? Vec::load_first(from + d, min((i64)N, dim - d)) : V{};
      check += x * (T)0;
      Vec::store(scratch.content + r * width + d, x * log2e);
    }
  }
  return Vec::reduce_add(check) == 0;
}

template <class Vec>
inline void Worker<Vec>::store_content_gradient(i64 h, const Block& block) const {
  for (i64 r = 0; r < block.size; r++)
    memcpy((T*)call.grad_content + content_row(h, block.start + r), scratch.dcontent + r * key_vectors.width,
           sizeof(T) * (size_t)call.content_dim);
}

}  // namespace
