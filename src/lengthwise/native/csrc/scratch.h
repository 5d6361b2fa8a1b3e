// The memory that a thread computes in. One allocation serves all buffers, and the next call of the thread uses it again.
#pragma once

#include <stdlib.h>

#include "plan.h"
#include "row_biases.h"
#include "vec.h"

// How many bytes of the allocation a buffer of `size` bytes at address `at` takes. Tests put guards between the buffers.
#if !defined(LENGTHWISE_BUFFER_BYTES)
#define LENGTHWISE_BUFFER_BYTES(at, size) (((size) + 63) / 64 * 64)
#endif

namespace {

struct ThreadMemory {
  void* data = nullptr;
  i64 size = 0;

  ~ThreadMemory() { release(); }
  void release() {
    free(data);
    data = nullptr;
    size = 0;
  }
  // Makes sure that there are `wanted` bytes, whatever they hold. Returns false where there is no memory.
  bool reserve(i64 wanted) {
    if (wanted <= size) return true;
    release();
    if (posix_memalign(&data, 64, (size_t)wanted)) {
      data = nullptr;
      return false;
    }
    size = wanted;
    return true;
  }
};
thread_local ThreadMemory thread_memory;

// The buffers of one thread. `width` is the head dim rounded up to whole vectors.
template <class Vec>
struct Scratch {
  typedef typename Vec::T T;
  enum : i64 {
    N = Vec::N,
    // Keys in a panel.
    PANEL = Vec::N * Vec::TILE_COLUMNS,
    // A row of `logits`, `dS` and `dfeature`: N zeros, the keys, and room for whole vectors.
    ROW = BLOCK_K + 4 * Vec::N,
    // A row of `saved_P` and `saved_dP`: the keys, and room for the tiles of
    // relative.h, and so that rows do not compete for the same part of the cache. N numbers precede the first row.
    SAVED_ROW = BLOCK_K + 48,
    // The diagonals of a pair of blocks, and room for whole vectors.
    DIAGONALS = BLOCK_Q + BLOCK_K + 2 * Vec::N,
  };

  // All keys of a key head. Panels are transposed, [width, PANEL] each. Copies of rows exist only where the tensor's own rows
  // cannot be used in place. dk and dv are sums over all queries, [keys, width].
  T *k_panels, *v_panels, *k_copy, *v_copy, *dk, *dv;

  // A block of queries, [BLOCK_Q, width] each. q is multiplied by scale / ln 2. `rotated` and `masked_sum` are one row.
  T *q, *grad, *out, *dq, *rotated, *masked_sum;

  // A pair of blocks, [BLOCK_Q, ROW] each. `logits` become P in place, and `dS` holds dP before it holds dS. `dfeature` is the
  // derivative by each pair's distance feature.
  T *logits, *dS, *dfeature;

  // One row of bias: what depends on the distance.
  T* distance_bias;

  // Vectors of distances: of a head, `count` of them as rows and as columns, and their gradient as rows; of the diagonals of a
  // pair of blocks, as columns, [width, DIAGONALS]. The content of a block of queries, its gradient, a row of sums, and weights
  // like `dS`.
  struct VectorBuffers {
    i64 count;
    T *rows, *columns, *grad;
  } key_vectors, value_vectors;
  T *diagonal_vectors, *content, *dcontent, *relative_sum, *visible_weights;

  // Each diagonal of a pair of blocks, if positions are consecutive: all its pairs have the same distance. Bias, distance
  // feature (also in float64), derivative by a shared query scale, and a sum over the pairs.
  T *diagonal_bias, *diagonal_feature, *diagonal_slope;
  double *diagonal_exact_feature, *diagonal_sums;

  // Segments. `lines_log2` has the slope and the intercept of each one in turn, of the head at hand and in units of log 2. The
  // sums, [segments, N], collect what many rows contribute to the gradients. `padded_knots` ends with NaN, which no x reaches.
  // `segment_cursor` remembers for each row the segment of its last search, and `pair_segments` the segment of each pair,
  // [max_visible_blocks, BLOCK_Q, BLOCK_K].
  T* lines_log2;
  double *slope_sums, *intercept_sums, *padded_knots;
  int32_t *segment_cursor, *pair_segments;

  // Each row of a block of queries. In backward row_max is the row's lse in units of log 2, row_sum the factor that its
  // rounding costs, and delta + delta_rest the sum of P dP, where delta_rest is what rounding delta to T loses.
  T *row_max, *row_sum, *delta, *delta_rest;

  // P and dP of a block of queries with all visible blocks of keys, [max_visible_blocks, BLOCK_Q, SAVED_ROW], and the sums of P
  // and of P dP of each row, [BLOCK_Q, N].
  T *saved_P, *saved_dP;
  double *row_P, *row_P_dP;

  signed char* keys_are_finite;  // of each block of keys; -1: not known yet

  // Lays out the buffers from `base` on, those of the row biases too, and returns how many bytes they take. With a base of null
  // it only computes the size.
  i64 allocate_scratch(void* base, const Plan& plan, i64 width, i64 max_visible_blocks, bool rows_in_place,
                       RowBiases<Vec>& row_biases) {
    const Call& call = *plan.call;
    const bool backward = call.backward, segments = evaluates_segments(plan), search = segments && !plan.segment_starts;
    const i64 keys = call.keys;
    i64 blocks = 0, panel_tokens = 0;
    for (i64 n = 0; n <= (call.batch - 1) * plan.sequence_step; n++) {
      blocks = max(blocks, plan.sequences[n].k_blocks);
      panel_tokens = max(panel_tokens, plan.sequences[n].panel_tokens);
    }
    uintptr_t at = (uintptr_t)base;
    take(at, k_panels, !backward && has_few_query_rows(call) ? 0 : panel_tokens * width);
    take(at, v_panels, backward ? panel_tokens * width : 0);
    take(at, k_copy, rows_in_place && !call.cos_sin_k ? 0 : keys * width);
    take(at, v_copy, rows_in_place ? 0 : keys * width);
    take(at, dk, backward ? keys * width : 0);
    take(at, dv, backward ? keys * width : 0);
    take(at, q, BLOCK_Q * width);
    take(at, grad, backward ? BLOCK_Q * width : 0);
    take(at, out, BLOCK_Q * width);
    take(at, dq, backward ? BLOCK_Q * width : 0);
    take(at, rotated, call.cos_sin_q || call.cos_sin_k ? width : 0);
    take(at, logits, BLOCK_Q * ROW);
    take(at, dS, backward ? BLOCK_Q * ROW : 0);
    take(at, dfeature, backward && call.slope ? BLOCK_Q * ROW : 0);
    take(at, distance_bias, ROW);
    take(at, masked_sum, width);
    row_biases.for_each(call, [&](auto& bias) {
      take(at, bias.row, ROW);
      take(at, bias.shared_row, ROW);
    });
    const i64 content_width = round_up(call.content_dim, N);
    take_vectors(at, key_vectors, key_vectors_of(call), content_width, backward);
    take_vectors(at, value_vectors, value_vectors_of(call), width, backward);
    const i64 content_size = call.key_vectors ? BLOCK_Q * content_width : 0;
    const i64 widest = max(content_size ? content_width : 0, call.value_vectors ? width : 0);
    take(at, diagonal_vectors, widest * DIAGONALS);
    take(at, content, content_size);
    take(at, dcontent, backward ? content_size : 0);
    take(at, relative_sum, widest);
    take(at, visible_weights, call.value_vectors ? BLOCK_Q * ROW : 0);
    take(at, diagonal_bias, DIAGONALS);
    take(at, diagonal_feature, DIAGONALS);
    take(at, diagonal_sums, backward ? (i64)DIAGONALS : 0);
    take(at, lines_log2, segments ? 2 * call.segments : 0);
    take(at, row_max, BLOCK_Q);
    take(at, row_sum, BLOCK_Q);
    take(at, delta, BLOCK_Q);
    take(at, delta_rest, BLOCK_Q);
    take(at, row_P, max_visible_blocks ? BLOCK_Q * N : 0);
    take(at, row_P_dP, max_visible_blocks ? BLOCK_Q * N : 0);
    take(at, saved_P, max_visible_blocks ? N + max_visible_blocks * BLOCK_Q * SAVED_ROW : 0);
    take(at, saved_dP, max_visible_blocks ? N + max_visible_blocks * BLOCK_Q * SAVED_ROW : 0);
    take(at, slope_sums, backward && plan.segment_starts ? call.segments * N : 0);
    take(at, intercept_sums, backward && plan.segment_starts ? call.segments * N : 0);
    take(at, segment_cursor, BLOCK_Q);
    take(at, diagonal_slope, backward && plan.shared_bias ? (i64)DIAGONALS : 0);
    take(at, padded_knots, search ? call.segments : 0);
    take(at, diagonal_exact_feature, search ? (i64)DIAGONALS : 0);
    take(at, pair_segments, search ? max(max_visible_blocks, 1) * BLOCK_Q * BLOCK_K : 0);
    take(at, keys_are_finite, blocks);
    return (i64)(at - (uintptr_t)base);
  }

 private:
  static void take_vectors(uintptr_t& at, VectorBuffers& buffers, const DistanceVectors& vectors, i64 width, bool backward) {
    buffers.count = vectors.table ? round_up(vectors.size + 2 * DIAGONALS, N) : 0;
    take(at, buffers.rows, buffers.count * width);
    take(at, buffers.columns, buffers.count * width);
    take(at, buffers.grad, backward && vectors.grad ? buffers.count * width : 0);
  }
  template <class X>
  static void take(uintptr_t& at, X*& buffer, i64 count) {
    buffer = (X*)at;
    at += LENGTHWISE_BUFFER_BYTES(at, count * sizeof(X));
  }
};

}  // namespace
