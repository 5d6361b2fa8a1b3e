// Fused attention on the CPU, forward and backward, with position biases that may learn.
//
// WHAT IS COMPUTED. For query i, whose index among the keys is keys - queries + i, and key j of one head,
//
//     logit_ij = scale <q_i, k_j> + the biases of the call
//     distance = position of i - position of j
//     out_i = sum over j of softmax_j(logit_ij) (v_j + value_vectors[distance])
//
// where exp(sink) may be added to the denominator of the softmax, a number for each head.
//
// over the keys that i sees: up to its own index (causal), closer than `window`, and of its own document. Each of the
// biases may be absent; attention/fused/arguments.py has their formulas, with x, the coordinate of a pair. Distances
// beyond either end of a table take its nearest entry. q and k may be rotated as they are loaded. FIRE's MLP is linear in
// each segment of x, so its bias and all its gradients are exact.
//
// BLOCKS. As in flash attention, no matrix of queries by keys exists. Blocks of 96 queries by 128 keys keep their logits in the
// cache. The forward pass keeps row_max and row_sum of each row (online_softmax, softmax.h), and stores lse, the logarithm of
// the row's sum. A sink is the first of a row's logits. The backward pass computes P again from lse. Masks of blocks are described in mask.h; blocks and tiles in
// which nothing is visible are skipped. A hidden pair is never multiplied by 0 if a number is not finite: NaN and infinity stay
// with the rows that see them (masked_gemm, gemm.h).
//
// ONE BLOCK OF QUERIES, FORWARD (forward.h)              ... BACKWARD (backward.h)
//     q = rotate(q) scale / ln 2                             row_max = lse / ln 2
//     for each visible block of keys:                        for each visible block of keys:
//         logits = q k^T            multiply_panels              P = 2^(q k^T + bias - row_max),  dP = grad v^T
//         logits += bias            finish_logits                dS = P * (dP - delta)
//         P = 2^(logits - row_max)  online_softmax               dv += P^T grad,  dq += dS k,  dk += dS^T q
//         out += P v                accumulate_rows              bias gradients += dS
//     out /= row_sum                finish_row               dq and dk are rotated back as they are stored
//
// Whenever row_max grows, online_softmax multiplies row_sum and the output so far by 2^(old row_max - new row_max).
//
// UNITS OF LOG 2. Logits and biases are multiplied by 1 / ln 2 on their way in, so that exp is 2^x (power_of_2, vec.h). Weights
// below 2^-125 are exactly 0, because arithmetic on denormal numbers would cost more than the whole attention.
//
// BIASES (bias.h). Where positions are consecutive within both blocks, a bias of distance alone has at most 96 + 128 - 1
// different values, one for each diagonal, which every row reads one place further on (bias_table.h). Gradients of tables are
// sums along diagonals. Segments are found in one of four ways (BiasPath, worker.h; bias_piecewise.h):
//   * If all queries of a block share the same scale, the bias depends only on the distance: it is one more table.
//   * If there are few segments, the columns of each row are one run for each segment. The first distance of each segment is
//     computed once for all heads, and a pair costs one multiplication and one addition.
//   * If there are thousands, as for a smooth activation, each pair's segment is searched for, beginning at a cell of x that is
//     close to it, or computed where the knots are evenly spaced.
//   * If positions are not consecutive, or many knots lie close together, every bias is looked up pair by pair.
// Segments are always decided in float64. Vectors of distances are multiplied by rows in matrix products of their own
// (relative.h). Biases that are not functions of the distance, such as FoX, are structs of their own (row_biases.h).
//
// DELTA. dS = P * (dP - delta), and a row's dS add up to 0. A gradient of a bias is a sum in which nearly everything cancels to
// that 0. So where a bias learns, delta is computed from the very P and dP from which it is subtracted. They are saved for a
// block of queries and all keys that it sees, and dS follows in a second step (save_P, compute_delta, compute_dS_from_saved in
// softmax.h). The same is done in half precision, because the output is rounded there. Everywhere else delta = <grad, out>: the
// same number but for rounding.
//
// WORK. A unit of work is one sequence and one key head, or a part of it; driver.cpp shares units among threads, so that
// results do not depend on how many there are.
//
// FILES. params.h, call.h: the call, as Python passes it. plan.h: what the driver prepares. worker.h: a thread's state, and its
// functions by file. scratch.h: its memory. tensors.h, rotary.h: loading and storing. vec.h, convert.h: vectors and 16-bit
// formats. statistics.h: statistics of the weights in place of the output. segments.cpp: the segments of FIRE's MLP.
//
// This file is compiled once for each target (-DLENGTHWISE_TARGET=portable, avx2, avx512), all of it as one translation unit,
// so that everything can be inlined. It includes no headers of torch.

#include "backward.h"

namespace {

template <class Vec>
inline void Worker<Vec>::run() {
  if (!prepare_scratch()) {
    __atomic_store_n(plan.out_of_memory, 1, __ATOMIC_RELAXED);
    return;
  }
  while ((unit = plan.next_unit(plan.queue)) >= 0) {
    select_unit();
    if (call.backward)
      backward();
    else if (q_begin < q_end)
      forward();
  }
}

template <class Vec>
inline bool Worker<Vec>::prepare_scratch() {
  if (saves_weights()) max_visible_blocks = count_visible_blocks();
  const auto allocate = [&](void* base) {
    return scratch.allocate_scratch(base, plan, width, max_visible_blocks, rows_in_place(), row_biases);
  };
  if (!thread_memory.reserve(allocate(nullptr))) return false;
  allocate(thread_memory.data);
  // Sums along diagonals read the zeros to the left and right of a row's keys.
  if (call.backward) memset(scratch.dS, 0, sizeof(T) * BLOCK_Q * ROW);
  if (call.value_vectors) memset(scratch.visible_weights, 0, sizeof(T) * BLOCK_Q * ROW);
  if (call.backward && call.slope) memset(scratch.dfeature, 0, sizeof(T) * BLOCK_Q * ROW);
  if (call.backward && plan.segment_starts) {
    memset(scratch.slope_sums, 0, sizeof(double) * call.segments * N);
    memset(scratch.intercept_sums, 0, sizeof(double) * call.segments * N);
  }
  memset(scratch.segment_cursor, 0, sizeof(int32_t) * BLOCK_Q);
  if (evaluates_segments(plan) && !plan.segment_starts) {
    memcpy(scratch.padded_knots, call.knots, sizeof(double) * (size_t)(call.segments - 1));
    scratch.padded_knots[call.segments - 1] = (double)NAN;
  }
  return true;
}

// Finds the sequence, the heads and the blocks of the unit. The driver's choose_splits says how units are split.
template <class Vec>
inline void Worker<Vec>::select_unit() {
  const i64 split = unit % plan.splits;
  b = unit / plan.splits / call.kv_heads;
  kv_head = unit / plan.splits % call.kv_heads;
  sequence = plan.sequences + b * plan.sequence_step;
  head_begin = kv_head * group;
  head_end = head_begin + group;
  q_begin = k_begin = 0;
  q_end = sequence->q_blocks;
  k_end = sequence->k_blocks;
  if (call.backward) {
    if (plan.splits > 1) {
      head_begin += split;
      head_end = head_begin + 1;
    }
  } else if (plan.split_keys) {
    while (k_begin < k_end && sequence->k[k_begin].start < split * KEYS_PER_SPLIT) k_begin++;
    while (k_end > k_begin && sequence->k[k_end - 1].start >= (split + 1) * KEYS_PER_SPLIT) k_end--;
  } else {
    q_begin = split * sequence->q_blocks / plan.splits;
    q_end = (split + 1) * sequence->q_blocks / plan.splits;
  }
}

}  // namespace

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define RUN_ON_TARGET JOIN(lengthwise_run_, LENGTHWISE_TARGET)

// Works on units until none is left.
extern "C" void RUN_ON_TARGET(const Plan* plan) {
#if !defined(__AVX2__)
  if (plan->call->dtype == FLOAT64) return Worker<Float64Vec>(*plan).run();
#endif
  Worker<Float32Vec>(*plan).run();
}
