// A bias that a running sum over the keys gained between a key and its query: prefix_sum[index of i] - prefix_sum[j] (FoX).
//
// The sums may be large where their difference is small, so they are subtracted in float64 and rounded afterwards. Where all
// keys of a block come before the queries, a difference is the sum of two: from the key to the block's first query, once for
// all rows, and from there to the row's query. The two have the same sign where the sum is monotonic, so nothing cancels.
#pragma once

#include "worker.h"

namespace {

template <class Vec>
inline const double* Worker<Vec>::prefix_sum_of(i64 h) const {
  return (const double*)call.prefix_sum + (b * call.prefix_sum_heads + (call.prefix_sum_heads > 1 ? h : 0)) * call.keys;
}

template <class Vec>
inline void Worker<Vec>::prepare_cumulative_bias(const Block& q, const Block& k) {
  const i64 first_query = query_offset + q.start;
  keys_precede_queries = k.start + k.size <= first_query;
  if (!keys_precede_queries) return;
  for (i64 c = 0; c < k.size; c++)
    scratch.key_bias[c] = (T)((prefix_sum[first_query] - prefix_sum[k.start + c]) * 1.4426950408889634);
}

// The bias of row r, in units of log 2.
template <class Vec>
INLINE auto Worker<Vec>::cumulative_bias_row(const Block& q, const Block& k, i64 r, i64 visible) -> T* {
  const i64 first_query = query_offset + q.start;
  const double own = prefix_sum[first_query + r];
  T* bias = scratch.cumulative_bias;
  if (keys_precede_queries) {
    const V rest = Vec::broadcast((T)((own - prefix_sum[first_query]) * 1.4426950408889634));
    for (i64 x = 0; x < visible; x += N) Vec::store(bias + x, Vec::load(scratch.key_bias + x) + rest);
  } else {
    const double* keys = prefix_sum + k.start;
    for (i64 c = 0; c < visible; c++) bias[c] = (T)((own - keys[c]) * 1.4426950408889634);
  }
  return bias;
}

// Adds dS to the gradient of the sum at the query, and subtracts it from that at the key. The gradient of what was summed up is
// a sum over all later tokens, in which both cancel. So they are added up in float64.
template <class Vec>
inline void Worker<Vec>::accumulate_cumulative(const BlockPair& pair, i64 h) const {
  const Block &q = *pair.q, &k = *pair.k;
  double *grad = call.grad_prefix_sum + (b * call.heads + h) * call.keys, columns[BLOCK_K + N] = {};
  for (i64 r = 0; r < q.size; r++) {
    Wide sum = {};
    for (i64 x = 0; x < visible_columns(pair, r); x += N) {
      const Wide dS = WIDEN(Vec::load(scratch.dS + N + r * ROW + x));
      sum += dS;
      add_wide<Vec>(columns + x, dS);
    }
    grad[query_offset + q.start + r] += reduce_add_wide<Vec>(sum);
  }
  for (i64 c = 0; c < k.size; c++) grad[k.start + c] -= columns[c];
}

}  // namespace
