// A bias that a running sum over the keys gained between a key and its query: prefix_sum[index of i] - prefix_sum[j] (FoX).
//
// The sums may be large where their difference is small, so they are subtracted in float64 and rounded afterwards. Where all
// keys of a block come before the queries, a difference is the sum of two: from the key to the block's first query, once for
// all rows, and from there to the row's query. The two have the same sign where the sum is monotonic, so nothing cancels.
#pragma once

#include "plan.h"
#include "vec.h"

namespace {

template <class Vec>
struct Worker;

template <class Vec>
struct CumulativeBias {
  typedef typename Vec::T T;
  typedef typename Vec::V V;
  typedef typename Vec::Wide Wide;
  enum : i64 { N = Vec::N };

  // Scratch memory for one row, in units of log 2: the bias, and the part of it that all rows of a pair of blocks share.
  T *row, *shared_row;
  const double* prefix_sum;   // of the head
  bool keys_precede_queries;  // of the pair of blocks: all keys come before the first query

  static bool exists(const Call& call) { return call.prefix_sum; }
  static bool learns(const Call& call) { return call.grad_prefix_sum; }

  void select_head(const Worker<Vec>& worker, i64 h) {
    const Call& call = worker.call;
    const i64 first = (worker.b * call.prefix_sum_heads + (call.prefix_sum_heads > 1 ? h : 0)) * call.keys;
    prefix_sum = (const double*)call.prefix_sum + first;
  }

  // Prepares for a pair of blocks what all its rows read.
  void prepare(const Worker<Vec>& worker, const Block& q, const Block& k) {
    const i64 first_query = worker.query_offset + q.start;
    keys_precede_queries = k.start + k.size <= first_query;
    if (!keys_precede_queries) return;
    for (i64 c = 0; c < k.size; c++)
      shared_row[c] = (T)((prefix_sum[first_query] - prefix_sum[k.start + c]) * 1.4426950408889634);
  }

  // Computes the first `visible` columns of row r, in units of log 2, and returns them.
  INLINE T* compute_row(const Worker<Vec>& worker, const Block& q, const Block& k, i64 r, i64 visible) const {
    const i64 first_query = worker.query_offset + q.start;
    const double own = prefix_sum[first_query + r];
    T* bias = row;
    if (keys_precede_queries) {
      const V rest = Vec::broadcast((T)((own - prefix_sum[first_query]) * 1.4426950408889634));
      for (i64 x = 0; x < visible; x += N) Vec::store(bias + x, Vec::load(shared_row + x) + rest);
    } else {
      const double* keys = prefix_sum + k.start;
      for (i64 c = 0; c < visible; c++) bias[c] = (T)((own - keys[c]) * 1.4426950408889634);
    }
    return bias;
  }

  // Adds dS to the gradient of the sum at the query, and subtracts it from that at the key. The gradient of what was
  // summed up is a sum over all later tokens, in which both cancel. So they are added up in float64.
  void accumulate_gradient(const Worker<Vec>& worker, const BlockPair& pair, i64 h) const {
    const Call& call = worker.call;
    const Block &q = *pair.q, &k = *pair.k;
    double *grad = call.grad_prefix_sum + (worker.b * call.heads + h) * call.keys, columns[BLOCK_K + N] = {};
    for (i64 r = 0; r < q.size; r++) {
      const T* dS_row = worker.dS_row(r);
      Wide sum = {};
      for (i64 x = 0; x < worker.visible_columns(pair, r); x += N) {
        const Wide dS = WIDEN(Vec::load(dS_row + x));
        sum += dS;
        add_wide<Vec>(columns + x, dS);
      }
      grad[worker.query_offset + q.start + r] += reduce_add_wide<Vec>(sum);
    }
    for (i64 c = 0; c < k.size; c++) grad[k.start + c] -= columns[c];
  }
};

}  // namespace
