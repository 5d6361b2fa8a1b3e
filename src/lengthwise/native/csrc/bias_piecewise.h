// Biases that are linear in each segment of x = distance_feature[distance] * query_scale[query], as FIRE's are: forwards
// slope[s] x + intercept[s], and backwards the gradients of slope, intercept, feature and scale. s counts the knots <= x.
//
// Which segment a pair is in is always decided in float64: by tables of distances, made once for all heads (SEGMENT_RUNS), or
// by comparing x with knots (SEGMENT_SEARCH, PER_PAIR).
#pragma once

#include "bias_table.h"

namespace {

// ---- finding segments

template <class Vec>
INLINE i64 Worker<Vec>::find_segment(double x) const {
  const double* knots = (const double*)call.knots;
  const i64 last = call.segments - 1;
  const double place = (x - plan.cell_low) * plan.cell_scale;
  i64 s = plan.search_cells[place > 0 ? place < (double)(plan.cells - 1) ? (i64)place : plan.cells - 1 : 0];
  while (s < last && knots[s] <= x) s++;
  return s;
}

// The segment of a distance, which is close to segment s. `starts` is the query's row of the plan's segment_starts.
template <class Vec>
INLINE i64 Worker<Vec>::find_segment_from(i64 distance, i64 s, const int32_t* starts) const {
  while (s > 0 && starts[s - 1] > distance) s--;
  while (s < call.segments - 1 && starts[s] <= distance) s++;
  return s;
}

// The segment of row r's first column, which has the furthest distance.
template <class Vec>
INLINE i64 Worker<Vec>::first_segment(i64 r, i64 furthest, const int32_t* starts) {
  return scratch.segment_cursor[r] = (int32_t)find_segment_from(furthest, scratch.segment_cursor[r], starts);
}

// The segment of query i and a distance, after a pair in segment s.
template <class Vec>
INLINE i64 Worker<Vec>::segment_of_pair(i64 i, i64 feature_index, i64 s) const {
  return plan.segment_starts ? find_segment_from(feature_index, s, segment_starts(i))
                             : find_segment(plan.exact_feature[feature_index] * exact_query_scale(i));
}

// ---- SEGMENT_RUNS: from left to right distances fall, so a row is a run of columns for each segment, from the last one down

template <class Vec>
INLINE auto Worker<Vec>::segment_runs_bias(const Block& q, const Block& k, i64 r, i64 visible) -> const T* {
  const i64 i = q.start + r, furthest = q.position + r - k.position;
  const int32_t* starts = segment_starts(i);
  const T* feature = scratch.diagonal_feature + (q.size - 1 - r);
  const T scale = query_scale(i);
  T* bias = scratch.distance_bias;
  i64 s = first_segment(r, furthest, starts);
  for (i64 c = 0;; s--) {
    i64 stop = s > 0 ? min(visible, furthest - starts[s - 1] + 1) : visible;
    V a = Vec::broadcast(scratch.lines_log2[2 * s] * scale), add = Vec::broadcast(scratch.lines_log2[2 * s + 1]);
    for (i64 x = c; x < stop; x += N) Vec::store(bias + x, a * Vec::load(feature + x) + add);
    c = max(c, stop);
    if (c >= visible) break;
  }
  if (call.table) {
    const T* table_bias = scratch.diagonal_bias + (q.size - 1 - r);
    for (i64 x = 0; x < visible; x += N) Vec::store(bias + x, Vec::load(bias + x) + Vec::load(table_bias + x));
  }
  return bias;
}

// Collects what row r adds to the gradients of slopes and intercepts in slope_sums and intercept_sums, writes the derivatives
// by each pair's feature to `dfeature`, and adds to the gradient of the row's scale.
template <class Vec>
INLINE void Worker<Vec>::accumulate_segment_runs_row(const BlockPair& pair, i64 r, i64 visible, double* grad_query_scale) {
  const Block &q = *pair.q, &k = *pair.k;
  const i64 i = q.start + r, furthest = q.position + r - k.position;
  const int32_t* starts = segment_starts(i);
  const T* feature = scratch.diagonal_feature + (q.size - 1 - r);
  const T* dS = scratch.dS + N + r * ROW;
  T* dfeature = scratch.dfeature + N + r * ROW;
  const T scale = query_scale(i);
  Wide scale_sum = {};
  i64 s = first_segment(r, furthest, starts);
  last_touched_segment = max(last_touched_segment, s);
  for (i64 c = 0;; s--) {
    i64 stop = s > 0 ? min(visible, furthest - starts[s - 1] + 1) : visible;
    if (stop > c) {
      V sum = {}, feature_sum = {}, a = Vec::broadcast(slope[s] * scale);
      i64 x = c;
      for (; x + N <= stop; x += N) {
        V gradient = Vec::load(dS + x);
        sum += gradient;
        feature_sum += gradient * Vec::load(feature + x);
        Vec::store(dfeature + x, a * gradient);
      }
      if (x < stop) {
        V gradient = Vec::load_first(dS + x, stop - x);
        sum += gradient;
        feature_sum += gradient * Vec::load_first(feature + x, stop - x);
        Vec::store(dfeature + x, a * gradient);
      }
      add_wide<Vec>(scratch.intercept_sums + s * N, WIDEN(sum));
      add_wide<Vec>(scratch.slope_sums + s * N, WIDEN(feature_sum) * (double)scale);
      scale_sum += WIDEN(feature_sum) * (double)slope[s];
      c = stop;
    }
    if (c >= visible) break;
  }
  first_touched_segment = min(first_touched_segment, s);
  const V zero = {};
  for (i64 x = visible; x < k.size + N; x += N) Vec::store(dfeature + x, zero);
  grad_query_scale[i] += reduce_add_wide<Vec>(scale_sum);
}

template <class Vec>
inline void Worker<Vec>::accumulate_segment_runs(const BlockPair& pair, const BiasGradients& grad) {
  first_touched_segment = call.segments - 1;
  last_touched_segment = 0;
  for (i64 r = 0; r < pair.q->size; r++) {
    i64 visible = visible_columns(pair, r);
    if (visible > 0)
      accumulate_segment_runs_row(pair, r, visible, grad.query_scale);
    else
      memset(scratch.dfeature + N + r * ROW, 0, sizeof(T) * (ROW - N));
  }
  double *slope_sums = scratch.slope_sums, *intercept_sums = scratch.intercept_sums;
  for (i64 s = first_touched_segment; s <= last_touched_segment; s++) {
    for (i64 x = 0; x < N; x++) {
      grad.lines[2 * s] += slope_sums[s * N + x];
      grad.lines[2 * s + 1] += intercept_sums[s * N + x];
      slope_sums[s * N + x] = intercept_sums[s * N + x] = 0;
    }
  }
}

// ---- SEGMENT_SEARCH: loops that the compiler vectorizes

// Finds the segments of `count` features times a scale.
template <class Vec>
INLINE void Worker<Vec>::find_segments(const double* __restrict feature, double scale, i64 count, int32_t* __restrict s) const {
  const double cell_low = plan.cell_low, cell_scale = plan.cell_scale, last_cell = (double)(plan.cells - 1);
  const int32_t* __restrict cells = plan.search_cells;
  const double* __restrict knots = scratch.padded_knots;
  for (i64 c = 0; c < count; c++) {
    double place = (feature[c] * scale - cell_low) * cell_scale;
    place = place > 0 ? place : 0;
    s[c] = (int32_t)(place < last_cell ? place : last_cell);
  }
  for (i64 c = 0; c < count; c++) s[c] = cells[s[c]];
  for (i64 n = 0; n < plan.max_knots_per_cell; n++)
    for (i64 c = 0; c < count; c++) {
      const double knot = knots[s[c]];
      s[c] += knot <= feature[c] * scale;
    }
}

// The same for evenly spaced knots, without reading them: only an x that is very close to a knot is compared with it.
template <class Vec>
INLINE void Worker<Vec>::find_evenly_spaced_segments(const double* __restrict feature, double scale, i64 count,
                                                     int32_t* __restrict s) const {
  const double factor = scale * plan.knot_density, first = 1 - plan.cell_low * plan.knot_density;
  const double highest = (double)call.segments - 0.5, far = 0.5 - plan.knot_margin;
  int32_t close = 0;
  for (i64 c = 0; c < count; c++) {
    double place = feature[c] * factor + first;  // how many knots there are up to x, and a fraction
    place = place > 0.5 ? place : 0.5;
    place = place < highest ? place : highest;
    s[c] = (int32_t)place;
    close |= fabs(place - 0.5 - (double)s[c]) > far;
  }
  if (close)
    for (i64 c = 0; c < count; c++) s[c] = (int32_t)find_segment(feature[c] * scale);
}

// Finds the segments of row r's pairs and returns their bias.
template <class Vec>
inline auto Worker<Vec>::segment_search_bias(const Block& q, i64 r, i64 visible) -> const T* {
  const double exact_scale = exact_query_scale(q.start + r);
  const T scale = query_scale(q.start + r);
  const T* feature = scratch.diagonal_feature + (q.size - 1 - r);
  const double* __restrict exact_feature = scratch.diagonal_exact_feature + (q.size - 1 - r);
  int32_t* __restrict s = scratch.pair_segments + (visible_index * BLOCK_Q + r) * BLOCK_K;
  T* bias = scratch.distance_bias;
  if (plan.knot_margin > 0)
    find_evenly_spaced_segments(exact_feature, exact_scale, visible, s);
  else
    find_segments(exact_feature, exact_scale, visible, s);
  for (i64 c = visible; c < round_up(visible, N); c++) s[c] = 0;  // whole vectors are read
  const V scales = Vec::broadcast(scale);
  for (i64 x = 0; x < visible; x += N) {
    V slope, intercept;
    load_pairs<Vec>(scratch.lines_log2, s + x, slope, intercept);
    V line = slope * (Vec::load(feature + x) * scales) + intercept;
    if (call.table) line += Vec::load(scratch.diagonal_bias + (q.size - 1 - r) + x);
    Vec::store(bias + x, line);
  }
  return bias;
}

// Adds what row r contributes to the gradients, with the segments that segment_search_bias found.
template <class Vec>
inline void Worker<Vec>::accumulate_segment_search(const BlockPair& pair, i64 r, const BiasGradients& grad) {
  const Block &q = *pair.q, &k = *pair.k;
  const i64 i = q.start + r, visible = visible_columns(pair, r);
  const T *dS = scratch.dS + N + r * ROW, *feature = scratch.diagonal_feature + (q.size - 1 - r);
  const int32_t* s = scratch.pair_segments + (visible_index * BLOCK_Q + r) * BLOCK_K;
  T* dfeature = scratch.dfeature + N + r * ROW;
  const V scale = Vec::broadcast(query_scale(i)), ln2 = Vec::broadcast((T)0.6931471805599453);
  T terms[2 * BLOCK_K];  // what each pair adds to the gradients of slope and intercept
  const V zero = {};
  Wide sum = {};
  i64 x = 0;
  while (x < visible) {
    V part = {};
    for (const i64 stop = min(x + 4 * N, visible); x < stop; x += N) {
      const V gradient = Vec::load(dS + x), f = Vec::load(feature + x);
      V slope, intercept;
      load_pairs<Vec>(scratch.lines_log2, s + x, slope, intercept);
      slope *= gradient * ln2;
      part += slope * f;
      Vec::store(dfeature + x, slope * scale);
      store_pairs<Vec>(terms + 2 * x, gradient * (f * scale), gradient);
    }
    sum += WIDEN(part);
  }
  for (; x < k.size + N; x += N) Vec::store(dfeature + x, zero);
#pragma GCC unroll 4
  for (i64 c = 0; c < visible; c++) add_pair(grad.lines + 2 * (i64)s[c], terms + 2 * c);
  if (visible > 0) grad.query_scale[i] += reduce_add_wide<Vec>(sum);
}

// ---- DIAGONAL, for queries that share a scale: their bias depends on the distance alone

// Adds the sums of dS at each distance, from which the driver computes all gradients but that of the scales, and those.
template <class Vec>
inline void Worker<Vec>::accumulate_shared_scale(const BlockPair& pair, const BiasGradients& grad) {
  const Block &q = *pair.q, &k = *pair.k;
  const i64 furthest = q.position + q.size - 1 - k.position, count = q.size + k.size - 1;
  add_diagonals(grad.dS_by_distance, call.feature_size, furthest, count);
  for (i64 r = 0; r < q.size; r++) {
    const T *dS = scratch.dS + N + r * ROW, *by_scale = scratch.diagonal_slope + (q.size - 1 - r);
    const i64 visible = visible_columns(pair, r);
    V sum = {};
    for (i64 c = 0; c < visible; c += N) sum += Vec::load(dS + c) * Vec::load(by_scale + c);
    if (visible > 0) grad.query_scale[q.start + r] += reduce_add_wide<Vec>(WIDEN(sum));
  }
}

}  // namespace
