// The parameters of one call, as Python passes them, and the functions that Python calls (those of segments.h aside).
//
// Shapes are written [batch, head, token, dim]. All tensors but q, k, v, out and their gradients are contiguous. Pointers to
// optional tensors are null where there is none. "The compute dtype" is float64 for float64 inputs and float32 for all others.
#pragma once

#include "threads.h"

// The values of `dtype`.
enum : i64 { FLOAT32 = 0, BFLOAT16 = 1, FLOAT16 = 2, FLOAT64 = 3 };

// A tensor [batch, head, token, dim]. Strides count elements; the elements of one token are contiguous.
struct TensorView {
  void* data;
  i64 batch_stride, head_stride, token_stride;
};

// A vector for each distance, [heads, size, dim] in the compute dtype. The first belongs to distance `first`, and distances
// past either end take the nearest vector. `table` is null where there are no vectors, and `grad` where no gradient is asked
// for.
struct DistanceVectors {
  const void* table;
  void* grad;
  i64 heads, size, first, dim;
};

// `Call` in call.py mirrors this struct field by field, in the same order. It holds only pointers, 64-bit integers and
// doubles, so that it has no padding, and lengthwise_call_size lets Python check its size.
struct Call {
  i64 batch, heads, kv_heads, queries, keys, dim;
  i64 dtype, causal, target, backward;
  Threads threads;
  double scale;
  TensorView q, k, v, out, grad, dq, dk, dv;
  void* lse;  // [batch, heads, queries] in the compute dtype: the logarithm of each row's sum of exponentials

  // A bias per distance: [table_heads, table_size] in the compute dtype. Its first column belongs to distance `table_first`.
  const void* table;
  void* grad_table;
  i64 table_heads, table_size, table_first;

  // A bias that is linear in each segment of x = distance_feature[distance] * query_scale[query]:
  //   slope, intercept [segment_heads, segments], knots [segments - 1] ascending,
  //   distance_feature [feature_size], query_scale [query_scale_batch, queries].
  // These tensors and their gradients are always float64. In float32, rounding would decide which segment a pair is in wherever
  // x is close to a knot.
  const void *slope, *intercept, *knots, *distance_feature, *query_scale;
  void *grad_slope, *grad_intercept, *grad_feature, *grad_query_scale;
  i64 segment_heads, segments, feature_size, query_scale_batch;

  // Position IDs [batch or 1, queries] and [batch or 1, keys], or null where positions are indices. The strides are 0 where all
  // batch entries share them.
  const i64 *position_q, *position_k;
  i64 position_q_stride, position_k_stride;

  // Document IDs [batch or 1, keys]: a query attends to keys of its own document only.
  const i64* documents;
  i64 documents_stride;

  i64 window;  // if not 0, the query at index n attends to keys above n - window and below n + window only

  // Vectors of distances. The product of `key_vectors` and the query's `content`, [batch, heads, queries, key_vectors.dim] in
  // the compute dtype, is added to the logits, and `value_vectors` are added to the values.
  const void* content;
  void* grad_content;
  DistanceVectors key_vectors, value_vectors;

  // A running sum over the keys, [batch, prefix_sum_heads, keys] in float64: the bias of a pair is its value at the query's own
  // key less that at the key. The gradient always has all heads, [batch, heads, keys], and is added to what it holds.
  const double* prefix_sum;
  double* grad_prefix_sum;
  i64 prefix_sum_heads;

  // If not null, the call computes statistics instead of attention: [batch, heads, queries, edges_size + 4]. For each query
  // they hold the weight in each bin of distances (the bins lie between `edges`, which ascend), the entropy in nats, and the
  // weight on the first and on the last keys of its document. `rank` [batch or 1, keys] says how many keys of the same document
  // come before each key; null where that is the key's index.
  double* statistics;
  const i64 *edges, *rank;
  i64 edges_size, rank_stride, first_keys, last_keys;

  // Rotations of q and k in the compute dtype: [batch or 1, tokens, 2, pairs], the cosines and then the sines of each token,
  // multiplied by a gain. `interleaved`: a pair is dims 2p and 2p + 1; otherwise it is dims p and p + pairs.
  const void *cos_sin_q, *cos_sin_k;
  i64 cos_sin_q_stride, cos_sin_k_stride, pairs, interleaved;

  // A logit of each head in the denominator of every row's softmax, [heads] in the compute dtype, or null. The gradients of
  // each sequence are [batch, heads].
  const void* sink;
  double* grad_sink;
};

// Computes attention, its gradients (`backward`) or its statistics. Returns 0, or 1 when memory ran out.
EXPORTED int lengthwise_attention(const Call* call);

// Returns the best target that this processor supports: 0 portable, 1 AVX2, 2 AVX-512.
EXPORTED int lengthwise_target();

// Returns the size of `Call`, so that Python can check its mirror of it.
EXPORTED int lengthwise_call_size();
