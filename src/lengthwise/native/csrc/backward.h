// The backward pass of one unit of work. P is computed again from lse, and dv, dk and dq are sums over pairs of blocks.
#pragma once

#include "forward.h"

namespace {

template <class Vec>
inline double Worker<Vec>::dot(const T* x, const T* y) const {
  Wide sum = {};
  for (i64 d = 0; d < width; d += N) sum += WIDEN(Vec::load(x + d)) * WIDEN(Vec::load(y + d));
  return reduce_add_wide<Vec>(sum);
}

// `masked`: some pairs are hidden and some numbers are not finite.
template <class Vec>
inline void Worker<Vec>::accumulate_dv(const BlockPair& pair, bool masked, const T* P, i64 P_row) {
  T* dv = scratch.dv + pair.k->start * width;
  if (masked)
    masked_gemm(pair, P, P_row, false, scratch.grad, width, dv);
  else
    accumulate_columns(P, P_row, scratch.grad, dv, pair.q->size, pair.k->size, pair.begin, pair.end);
}

// Adds what a pair of blocks contributes to all gradients but dv.
template <class Vec>
inline void Worker<Vec>::accumulate_dq_dk(const BlockPair& pair, bool masked, i64 h) {
  const Block &block = *pair.q, &keys = *pair.k;
  T *dS = scratch.dS + N, *dk = scratch.dk + keys.start * width;
  const T* rows = k_rows + keys.start * k_stride;
  if (masked) {
    masked_gemm(pair, dS, ROW, true, rows, k_stride, scratch.dq);
    masked_gemm(pair, dS, ROW, false, scratch.q, width, dk);
  } else {
    accumulate_rows(dS, rows, k_stride, scratch.dq, block.size, keys.size, pair.begin, pair.end);
    accumulate_columns(dS, ROW, scratch.q, dk, block.size, keys.size, pair.begin, pair.end);
  }
  accumulate_bias_gradients(pair, h);
  if (call.grad_content) {
    prepare_relative(key_vectors, block, keys);
    accumulate_relative_rows(pair, key_vectors, dS, scratch.dcontent);
    accumulate_relative_gradient(pair, key_vectors, dS, scratch.content, content_is_finite);
  }
}

// Loads lse of each row, and computes delta where P is not saved.
template <class Vec>
inline void Worker<Vec>::load_row_sums(const Block& block, i64 h) {
  const T* lse = (const T*)call.lse;
  if (saves_weights()) {
    memset(scratch.row_P, 0, sizeof(double) * BLOCK_Q * N);
    memset(scratch.row_P_dP, 0, sizeof(double) * BLOCK_Q * N);
  } else {
    load_rows(call.out, h, block.start, block.size, 1, scratch.out);
  }
  for (i64 r = 0; r < block.size; r++) {
    if (!saves_weights()) scratch.delta[r] = (T)dot(scratch.grad + r * width, scratch.out + r * width);
    // In units of log 2. An error here would be one of all weights of the row, so a factor makes up for what rounding loses.
    const double exact = (double)lse[(b * call.heads + h) * call.queries + block.start + r] * 1.4426950408889634;
    scratch.row_max[r] = (T)exact;
    const double rest = exact - (double)scratch.row_max[r];
    scratch.row_sum[r] = (T)(rest > -1 && rest < 1 ? exp2(-rest) : 1);
  }
}

// The weight of the sink in row r, whose row_max and row_sum are those of the backward pass.
template <class Vec>
inline double Worker<Vec>::sink_weight(i64 h, i64 r) const {
  return call.sink ? exp2((double)sink_logit(h) - (double)scratch.row_max[r]) * (double)scratch.row_sum[r] : 0;
}

// Adds what the rows contribute to the gradient of the sink, whose value is 0: its weight times -delta.
template <class Vec>
inline void Worker<Vec>::accumulate_grad_sink(i64 h, i64 rows) const {
  if (!call.grad_sink) return;
  double sum = 0;
  for (i64 r = 0; r < rows; r++) {
    double delta = (double)scratch.delta[r];
    if (saves_weights()) delta += (double)scratch.delta_rest[r];
    sum += sink_weight(h, r) * delta;
  }
  call.grad_sink[b * call.heads + h] -= sum;
}

// Whether rounding a row's lse to T changes its weights by more than 2^-12 of them, because its logits are large.
template <class Vec>
inline bool Worker<Vec>::is_coarse(double lse) {
  return isfinite(lse) && fabs(lse) * (sizeof(T) == 4 ? 0x1p-24 : 0x1p-53) > 0x1p-12;
}

// Computes row_max and row_sum of such rows again, as the forward pass does, from the very logits of which P is made. Otherwise
// a weight could be any power of 2, even infinity.
template <class Vec>
inline void Worker<Vec>::refine_row_sums(i64 h, const Block& block, i64 first_k_block, i64 first_panel) {
  T loaded_max[BLOCK_Q], loaded_sum[BLOCK_Q];
  T *row_max = scratch.row_max, *row_sum = scratch.row_sum;
  bool any = false;
  for (i64 r = 0; r < block.size; r++) any |= is_coarse((double)row_max[r]);
  if (!any) return;
  for (i64 r = 0; r < block.size; r++) {
    loaded_max[r] = row_max[r];
    loaded_sum[r] = row_sum[r];
  }
  start_rows(h, block.size);
  bool past_last = false;
  visible_index = 0;
  for (i64 m = first_k_block, panel = first_panel; m < k_end && !past_last; m++) {
    const Block& keys = sequence->k[m];
    BlockPair pair;
    if (block_is_visible(block, keys, pair, past_last)) {
      T* logits = scratch.logits + N;
      compute_logits(pair, scratch.k_panels + panel, logits, ROW);
      online_softmax(pair);  // it also scales `out`, which is not needed any more
      if (saves_weights()) visible_index++;
    }
    panel += round_up(keys.size, PANEL) * width;
  }
  for (i64 r = 0; r < block.size; r++) {
    const bool coarse = is_coarse((double)loaded_max[r]);
    row_max[r] = coarse ? row_max[r] : loaded_max[r];
    row_sum[r] = coarse ? 1 / row_sum[r] : loaded_sum[r];
  }
}

// One block of queries with all blocks of keys that it sees.
template <class Vec>
inline void Worker<Vec>::backward_block(i64 h, const Block& block, i64 first_k_block, i64 first_panel) {
  const bool finite_queries = load_queries(h, block);
  const bool finite_grad = load_rows(call.grad, h, block.start, block.size, 1, scratch.grad);
  const bool finite_rows = finite_queries && finite_grad;
  load_row_sums(block, h);
  memset(scratch.dq, 0, sizeof(T) * block.size * width);
  if (call.content) content_is_finite = load_content(h, block);
  if (call.grad_content) memset(scratch.dcontent, 0, sizeof(T) * block.size * key_vectors.width);
  refine_row_sums(h, block, first_k_block, first_panel);
  if (!saves_weights()) accumulate_grad_sink(h, block.size);
  bool past_last = false;
  visible_index = 0;
  for (i64 m = first_k_block, panel = first_panel; m < k_end && !past_last; m++) {
    const Block& keys = sequence->k[m];
    BlockPair pair;
    if (block_is_visible(block, keys, pair, past_last)) {
      const bool masked = hides_pairs(pair) && !(finite_rows && is_finite(m, k_rows, k_stride)), saves = saves_weights();
      T *P = saves ? saved_P() : scratch.logits + N, *dP = saves ? saved_dP() : scratch.dS + N;
      const i64 row = saves ? (i64)SAVED_ROW : (i64)ROW;
      multiply_panels(scratch.grad, scratch.v_panels + panel, dP, row, block.size, keys.size, pair.begin, pair.end);
      compute_logits(pair, scratch.k_panels + panel, P, row);
      if (call.value_vectors) {
        prepare_relative(value_vectors, block, keys);
        add_relative_products(pair, value_vectors, scratch.grad, dP, row);
      }
      if (saves)
        save_P(pair);
      else
        compute_P_and_dS(pair);
      accumulate_dv(pair, masked, P, row);
      if (plan.grad_value_vectors)
        accumulate_relative_gradient(pair, value_vectors, visible_weights(pair, P, row), scratch.grad, finite_grad);
      if (!saves) accumulate_dq_dk(pair, masked, h);
      if (saves) visible_index++;
    }
    panel += round_up(keys.size, PANEL) * width;
  }
  if (saves_weights()) {
    compute_delta(h, block.size);
    accumulate_grad_sink(h, block.size);
    past_last = false;
    visible_index = 0;
    for (i64 m = first_k_block; m < k_end && !past_last; m++) {
      const Block& keys = sequence->k[m];
      BlockPair pair;
      if (!block_is_visible(block, keys, pair, past_last)) continue;
      prepare_bias(block, keys);
      compute_dS_from_saved(pair);
      accumulate_dq_dk(pair, hides_pairs(pair) && !(finite_rows && is_finite(m, k_rows, k_stride)), h);
      visible_index++;
    }
  }
  store_rows(call.dq, h, block.start, block.size, call.queries, scratch.dq, (T)call.scale, cos_sin_q());
  if (call.grad_content) store_content_gradient(h, block);
}

template <class Vec>
inline void Worker<Vec>::backward() {
  load_keys();
  memset(scratch.dk, 0, sizeof(T) * call.keys * width);
  memset(scratch.dv, 0, sizeof(T) * call.keys * width);
  for (i64 h = head_begin; h < head_end; h++) {
    select_head_and_vectors(h);
    i64 first_k_block = k_begin, first_panel = 0;  // the first block of keys that the queries' windows reach
    for (i64 n = q_begin; n < q_end; n++) {
      const Block& block = sequence->q[n];
      check_shared_scale(block);
      for (; first_k_block < k_end && is_before_window(sequence->k[first_k_block], query_offset + block.start); first_k_block++)
        first_panel += round_up(sequence->k[first_k_block].size, PANEL) * width;
      backward_block(h, block, first_k_block, first_panel);
    }
    store_relative_gradient(key_vectors, plan.grad_key_vectors, h);
    store_relative_gradient(value_vectors, plan.grad_value_vectors, h);
  }
  store_key_gradients();
}

// Stores dk and dv, or what this unit adds to them.
template <class Vec>
inline void Worker<Vec>::store_key_gradients() {
  if (plan.splits > 1) {
    T* to = (T*)plan.partial + unit * 2 * call.keys * call.dim;
    for (i64 t = 0; t < call.keys; t++, to += call.dim) {
      const T* row = scratch.dk + t * width;
      memcpy(to, cos_sin_k() ? rotate_back(cos_sin_k(), t, row) : row, sizeof(T) * (size_t)call.dim);
    }
    for (i64 t = 0; t < call.keys; t++, to += call.dim) memcpy(to, scratch.dv + t * width, sizeof(T) * (size_t)call.dim);
    return;
  }
  store_rows(call.dk, kv_head, 0, call.keys, call.keys, scratch.dk, ln2, cos_sin_k());  // q was multiplied by scale / ln 2
  store_rows(call.dv, kv_head, 0, call.keys, call.keys, scratch.dv, 1, nullptr);
}

}  // namespace
