// The parameters of one call, as Python passes them, and the functions that Python calls (those of segments.h aside).
//
// Shapes are written [batch, head, token, dim]. All tensors but q, k, v, out and their gradients are contiguous. Pointers to
// optional tensors are null where there is none. "The compute dtype" is float64 for float64 inputs and float32 for all others.
// call.h has the fields of a call, and attention/fused/arguments.py explains those that are optional.
#pragma once

#include "threads.h"

// The values of `dtype`.
enum : i64 { FLOAT32 = 0, BFLOAT16 = 1, FLOAT16 = 2, FLOAT64 = 3 };

// A tensor [batch, head, token, dim]. Strides count elements; the elements of one token are contiguous.
struct TensorView {
  void* data;
  i64 batch_stride, head_stride, token_stride;
};

#include "call.h"

// The fields of a `Call` that call.h does not explain:
//   kv_heads: of keys and values. target: of the kernel, or -1. backward: whether gradients are asked for.
//   lse [batch, heads, queries] in the compute dtype: the logarithm of each row's sum of exponentials.
//   statistics: if not null, the call computes statistics instead of attention: [batch, heads, queries, edges_size + 4] in
//     float64. For each query they hold the weight in each bin of distances (the bins lie between `edges`, which ascend), the
//     entropy in nats, and the weight on the first and on the last keys of its document. `rank` [rank_batch, keys] says how many
//     keys of the same document come before each key; null where that is the key's index.
//   grad_...: a gradient in float64 (double*) has the axes that are declared as `sums`, for example every sequence and
//     every head, and the kernel adds to it. All other gradients are like what they belong to, and written.

namespace {

// Where a sequence begins in a tensor with `batch` sequences of `size` numbers. If there is one, all sequences share it.
INLINE i64 start_of_sequence(i64 batch, i64 b, i64 size) { return batch > 1 ? b * size : 0; }

// A vector for each distance, [heads, size, dim] in the compute dtype. The first belongs to distance `first`, and distances
// past either end take the nearest vector. `table` is null where there are no vectors, and `grad` where no gradient is asked
// for.
struct DistanceVectors {
  const void* table;
  void* grad;
  i64 heads, size, first, dim;
};
INLINE DistanceVectors key_vectors_of(const Call& call) {
  return {call.key_vectors, call.grad_key_vectors, call.key_vectors_heads, call.key_vectors_size, call.key_vectors_first,
          call.content_dim};
}
INLINE DistanceVectors value_vectors_of(const Call& call) {
  return {call.value_vectors, call.grad_value_vectors, call.value_vectors_heads, call.value_vectors_size,
          call.value_vectors_first, call.dim};
}

}  // namespace

// Computes attention, its gradients (`backward`) or its statistics. Returns 0, or 1 when memory ran out.
EXPORTED int lengthwise_attention(const Call* call);

// Returns the best target that this processor supports: 0 portable, 1 AVX2, 2 AVX-512.
EXPORTED int lengthwise_target();
