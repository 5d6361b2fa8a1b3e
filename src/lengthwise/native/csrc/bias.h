// The bias of a pair of blocks: which of its forms are computed how, their sum for one row, and their gradients.
#pragma once

#include "bias_piecewise.h"
#include "bias_table.h"

namespace {

template <class Vec>
inline void Worker<Vec>::select_head(i64 h) {
  if (call.table) table = (const T*)call.table + (call.table_heads > 1 ? h : 0) * call.table_size;
  row_biases.for_each(call, [&](auto& bias) { bias.select_head(*this, h); });
  if (call.slope) {
    i64 first = (call.slope_heads > 1 ? h : 0) * call.segments;
    slope = (const T*)call.slope + first;
    intercept = (const T*)call.intercept + first;
    const i64 row = call.slope_heads > 1 ? h * call.feature_size : 0;
    if (plan.shared_bias) {
      shared_bias = (const T*)plan.shared_bias + row;
      if (plan.shared_slope) shared_slope = (const T*)plan.shared_slope + row;
    }
    for (i64 s = 0; evaluates_segments(plan) && s < call.segments; s++) {
      scratch.lines_log2[2 * s] = slope[s] * log2e;
      scratch.lines_log2[2 * s + 1] = intercept[s] * log2e;
    }
  }
}

template <class Vec>
inline void Worker<Vec>::check_shared_scale(const Block& q) {
  shares_scale = plan.shared_bias;
  for (i64 r = 0; r < q.size && shares_scale; r++) shares_scale = exact_query_scale(q.start + r) == plan.shared_scale;
}

// Chooses how the bias of a pair of blocks is computed, and prepares what all its rows read.
template <class Vec>
inline void Worker<Vec>::prepare_bias(const Block& q, const Block& k) {
  consecutive = q.consecutive && k.consecutive;
  row_biases.for_each(call, [&](auto& bias) { bias.prepare(*this, q, k); });
  if (!has_distance_bias()) return;
  const i64 furthest = q.position + q.size - 1 - k.position, nearest = q.position - (k.position + k.size - 1);
  if (!consecutive)
    bias_path = BiasPath::PER_PAIR;
  else if (!call.slope || shares_scale)
    bias_path = BiasPath::DIAGONAL;
  else if (plan.segment_starts)
    bias_path = furthest < UNREACHED && nearest > -UNREACHED ? BiasPath::SEGMENT_RUNS : BiasPath::PER_PAIR;
  else
    bias_path = plan.max_knots_per_cell <= 4 ? BiasPath::SEGMENT_SEARCH : BiasPath::PER_PAIR;
  if (bias_path == BiasPath::PER_PAIR) return;

  const i64 count = q.size + k.size - 1 + N;
  if (call.table)
    fill_diagonals(table, call.table_size, furthest - call.table_first, count, log2e, scratch.diagonal_bias);
  if (!call.slope) return;
  if (bias_path != BiasPath::DIAGONAL) {
    fill_diagonals((const T*)call.distance_feature, call.feature_size, furthest, count, (T)1, scratch.diagonal_feature);
    if (bias_path == BiasPath::SEGMENT_SEARCH)
      fill_diagonals(plan.exact_feature, call.feature_size, furthest, count, 1.0, scratch.diagonal_exact_feature);
    return;
  }
  T* segment_bias = call.table ? scratch.diagonal_feature : scratch.diagonal_bias;
  fill_diagonals(shared_bias, call.feature_size, furthest, count, (T)1, segment_bias);
  if (call.table)
    for (i64 n = 0; n < count; n++) scratch.diagonal_bias[n] += segment_bias[n];
  if (plan.shared_slope) fill_diagonals(shared_slope, call.feature_size, furthest, count, (T)1, scratch.diagonal_slope);
}

// The distance from key j to query i.
template <class Vec>
inline i64 Worker<Vec>::distance(i64 i, i64 j) const {
  const i64 position_q = call.position_q ? call.position_q[start_of_sequence(call.position_q_batch, b, call.queries) + i] : query_offset + i;
  return position_q - (call.position_k ? call.position_k[start_of_sequence(call.position_k_batch, b, call.keys) + j] : j);
}

// What is added to the logits of row r, in units of log 2: at least the first `visible` columns.
template <class Vec>
INLINE auto Worker<Vec>::bias_row(const Block& q, const Block& k, i64 r, i64 visible) -> const T* {
  if (!row_biases.exist) return distance_bias_row(q, k, r, visible);
  T* sum = nullptr;
  const auto add = [&](const T* other) {
    for (i64 x = 0; x < visible; x += N) Vec::store(sum + x, Vec::load(sum + x) + Vec::load(other + x));
  };
  row_biases.for_each(call, [&](auto& bias) {
    T* row = bias.compute_row(*this, q, k, r, visible);
    if (sum)
      add(row);
    else
      sum = row;
  });
  if (has_distance_bias()) add(distance_bias_row(q, k, r, visible));
  return sum;
}

// The path is chosen here for every row. As a template parameter of the functions that read bias rows, it made no call faster,
// but the code of a target half as large again.
template <class Vec>
INLINE auto Worker<Vec>::distance_bias_row(const Block& q, const Block& k, i64 r, i64 visible) -> const T* {
  switch (bias_path) {
    case BiasPath::DIAGONAL: return scratch.diagonal_bias + (q.size - 1 - r);
    case BiasPath::SEGMENT_SEARCH: return segment_search_bias(q, r, visible);
    case BiasPath::PER_PAIR: return per_pair_bias(q, k, r, visible);
    default: return segment_runs_bias(q, k, r, visible);
  }
}

template <class Vec>
INLINE auto Worker<Vec>::per_pair_bias(const Block& q, const Block& k, i64 r, i64 visible) -> const T* {
  const i64 i = q.start + r;
  const T* feature = (const T*)call.distance_feature;
  const T scale = call.slope ? query_scale(i) : 0;
  i64 s = 0;
  for (i64 c = 0; c < visible; c++) {
    i64 d = distance(i, k.start + c);
    T value = call.table ? table[clamp(d - call.table_first, 0, call.table_size - 1)] * log2e : 0;
    if (call.slope) {
      const i64 n = clamp(d, 0, call.feature_size - 1);
      const T x = feature[n] * scale;
      s = segment_of_pair(i, n, s);
      value += scratch.lines_log2[2 * s] * x + scratch.lines_log2[2 * s + 1];
    }
    scratch.distance_bias[c] = value;
  }
  return scratch.distance_bias;
}

// ---- gradients, from dS, which is 0 where a pair is hidden

// The sums of the gradients that the unit at hand adds to.
template <class Vec>
inline auto Worker<Vec>::bias_gradients(i64 h) const -> BiasGradients {
  BiasGradients grad = {};
  const i64 row_of_head = b * call.heads + h, segment_row = call.slope_heads > 1 ? row_of_head : unit;
  if (plan.grad_table) grad.table = plan.grad_table + (call.table_heads > 1 ? row_of_head : unit) * call.table_size;
  if (plan.grad_query_scale) grad.query_scale = plan.grad_query_scale + unit * call.queries;
  if (plan.dS_by_distance) grad.dS_by_distance = plan.dS_by_distance + segment_row * call.feature_size;
  if (plan.grad_lines) {
    grad.lines = plan.grad_lines + segment_row * call.segments * 2;
    grad.feature = plan.grad_feature + unit * call.feature_size;
  }
  return grad;
}

template <class Vec>
inline void Worker<Vec>::accumulate_per_pair(const BlockPair& pair, i64 r, const BiasGradients& grad) {
  const Block &q = *pair.q, &k = *pair.k;
  const i64 i = q.start + r, visible = visible_columns(pair, r);
  const T* dS = scratch.dS + N + r * ROW;
  const T* feature = (const T*)call.distance_feature;
  const T scale = call.slope ? query_scale(i) : 0;
  double scale_sum = 0;
  i64 s = 0;
  for (i64 c = 0; c < visible; c++) {
    const T gradient = dS[c];
    if (gradient == 0) continue;
    i64 d = distance(i, k.start + c);
    if (grad.table) grad.table[clamp(d - call.table_first, 0, call.table_size - 1)] += (double)gradient;
    if (grad.lines) {
      const i64 n = clamp(d, 0, call.feature_size - 1);
      const T x = feature[n] * scale;
      s = segment_of_pair(i, n, s);
      grad.lines[2 * s] += (double)gradient * (double)x;
      grad.lines[2 * s + 1] += (double)gradient;
      grad.feature[n] += (double)gradient * (double)slope[s] * (double)scale;
      scale_sum += (double)gradient * (double)slope[s] * (double)feature[n];
    }
  }
  if (grad.lines) grad.query_scale[i] += scale_sum;
}

template <class Vec>
inline void Worker<Vec>::accumulate_bias_gradients(const BlockPair& pair, i64 h) {
  if (plan.grad_table || call.grad_slope) accumulate_distance_gradients(pair, h);
  row_biases.for_each(call, [&](auto& bias) {
    if (bias.learns(call)) bias.accumulate_gradient(*this, pair, h);
  });
}

template <class Vec>
inline void Worker<Vec>::accumulate_distance_gradients(const BlockPair& pair, i64 h) {
  const Block &q = *pair.q, &k = *pair.k;
  const BiasGradients grad = bias_gradients(h);
  if (bias_path == BiasPath::PER_PAIR) {
    for (i64 r = 0; r < q.size; r++) accumulate_per_pair(pair, r, grad);
    return;
  }
  const i64 furthest = q.position + q.size - 1 - k.position, count = q.size + k.size - 1;
  const bool segments = grad.query_scale, shared = segments && bias_path == BiasPath::DIAGONAL;
  if (grad.table || shared) sum_diagonals(scratch.dS + N, q.size, k.size);
  if (grad.table) add_diagonals(grad.table, call.table_size, furthest - call.table_first, count);
  if (!segments) return;
  if (shared) return accumulate_shared_scale(pair, grad);
  if (bias_path == BiasPath::SEGMENT_SEARCH)
    for (i64 r = 0; r < q.size; r++) accumulate_segment_search(pair, r, grad);
  else
    accumulate_segment_runs(pair, grad);
  sum_diagonals(scratch.dfeature + N, q.size, k.size);
  add_diagonals(grad.feature, call.feature_size, furthest, count);
}

}  // namespace
