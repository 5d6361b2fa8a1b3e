// The forward pass of one unit of work.
#pragma once

#include "gemm.h"
#include "relative.h"
#include "rotary.h"
#include "softmax.h"
#include "statistics.h"
#include "tensors.h"

namespace {

template <class Vec>
inline void Worker<Vec>::forward() {
  load_keys();
  for (i64 h = head_begin; h < head_end; h++) {
    select_head_and_vectors(h);
    i64 first_k_block = k_begin, first_panel = 0;  // the first block of keys that the queries' windows reach
    for (i64 n = q_begin; n < q_end; n++) {
      const Block& block = sequence->q[n];
      check_shared_scale(block);
      load_queries(h, block);
      if (call.content) load_content(h, block);
      start_rows(h, block.size);
      memset(scratch.out, 0, sizeof(T) * block.size * width);
      if (call.statistics)
        memset(statistics(h, block.start), 0, sizeof(double) * (size_t)(block.size * (call.edges_size + 4)));
      for (; first_k_block < k_end && is_before_window(sequence->k[first_k_block], query_offset + block.start); first_k_block++)
        first_panel += round_up(sequence->k[first_k_block].size, PANEL) * width;
      bool past_last = false;
      for (i64 m = first_k_block, panel = first_panel; m < k_end && !past_last; m++) {
        const Block& keys = sequence->k[m];
        BlockPair pair;
        if (block_is_visible(block, keys, pair, past_last)) {
          T* logits = scratch.logits + N;
          compute_logits(pair, scratch.k_panels + panel, logits, ROW);
          if (call.statistics) {
            accumulate_statistics(pair, h);
          } else {
            online_softmax(pair);
            const T* values = v_rows + keys.start * v_stride;
            if (hides_pairs(pair) && !is_finite(m, v_rows, v_stride))
              masked_gemm(pair, logits, ROW, true, values, v_stride, scratch.out);
            else
              accumulate_rows(logits, values, v_stride, scratch.out, block.size, keys.size, pair.begin, pair.end);
            if (call.value_vectors) {
              prepare_relative(value_vectors, block, keys);
              accumulate_relative_rows(pair, value_vectors, visible_weights(pair, logits, ROW), scratch.out);
            }
          }
        }
        panel += round_up(keys.size, PANEL) * width;
      }
      for (i64 r = 0; r < block.size; r++) finish_row(h, block.start + r, r);
    }
  }
}

template <class Vec>
inline void Worker<Vec>::select_head_and_vectors(i64 h) {
  select_head(h);
  select_relative_head(key_vectors, h);
  select_relative_head(value_vectors, h);
}

// The logits of a pair of blocks without the biases that finish_logits adds, for which it prepares.
template <class Vec>
inline void Worker<Vec>::compute_logits(const BlockPair& pair, const T* panel, T* to, i64 stride) {
  const Block &q = *pair.q, &k = *pair.k;
  if (multiplies_in_place())
    multiply_rows(scratch.q, k_rows + k.start * k_stride, k_stride, to, q.size, k.size, pair.begin);
  else
    multiply_panels(scratch.q, panel, to, stride, q.size, k.size, pair.begin, pair.end);
  prepare_bias(q, k);
  if (!call.content) return;
  prepare_relative(key_vectors, q, k);
  add_relative_products(pair, key_vectors, scratch.content, to, stride);
}

// Begins the online softmax of a block's rows, with the sink as the first of their logits.
template <class Vec>
inline void Worker<Vec>::start_rows(i64 h, i64 rows) {
  const T sink = sink_logit(h);
  for (i64 r = 0; r < rows; r++) {
    scratch.row_max[r] = sink;
    scratch.row_sum[r] = sink == (T)-INFINITY ? 0 : 1;
  }
}

// Stores the results of query i, row r of its block.
template <class Vec>
inline void Worker<Vec>::finish_row(i64 h, i64 i, i64 r) {
  if (call.statistics) return finish_statistics(h, i, call.sink ? exp2((double)sink_logit(h) - (double)scratch.row_max[r]) : 0);
  const T row_max = scratch.row_max[r], row_sum = scratch.row_sum[r];
  if (plan.split_keys) {
    T* to = (T*)plan.partial + ((unit * group + h - kv_head * group) * call.queries + i) * (call.dim + 2);
    memcpy(to, scratch.out + r * width, sizeof(T) * (size_t)call.dim);
    to[call.dim] = row_max;
    to[call.dim + 1] = row_sum;
  } else {
    store_row(call.out, h, i, call.queries - 1, scratch.out + r * width, 1 / row_sum);
    const double lse = ((double)row_max + log2((double)row_sum)) * 0.6931471805599453;
    ((T*)call.lse)[(b * call.heads + h) * call.queries + i] = (T)lse;
  }
}

}  // namespace
