// Reading blocks of tensors into scratch memory and writing results back. Rows in scratch memory have `width` numbers: the head
// dim, and zeros up to a whole vector.
#pragma once

#include "worker.h"

namespace {

// Whether rows can be used where they lie: they are in the compute dtype and consist of whole vectors.
template <class Vec>
inline bool Worker<Vec>::rows_in_place() const {
  return call.dim == width && call.dtype == (sizeof(T) == 4 ? (i64)FLOAT32 : (i64)FLOAT64);
}
template <class Vec>
inline const char* Worker<Vec>::token(const TensorView& view, i64 head, i64 t) const {
  return (const char*)view.data +
         (b * view.batch_stride + head * view.head_stride + t * view.token_stride) * bytes_of(call.dtype);
}
// Where the heads of a token are contiguous, the rows of one head are far apart, and hardware prefetchers do not follow them.
template <class Vec>
inline void Worker<Vec>::prefetch(const TensorView& view, i64 head, i64 t) const {
  const char* row = token(view, head, t);
  for (i64 x = 0; x < call.dim * bytes_of(call.dtype); x += 64) __builtin_prefetch(row + x);
}

// Loads `count` rows, multiplied by a factor. Returns whether all their numbers are finite.
template <class Vec>
inline bool Worker<Vec>::load_rows(const TensorView& view, i64 head, i64 start, i64 count, T factor, T* to) const {
  V check = {};  // becomes NaN where a number is not finite
  const bool in_place = rows_in_place();
  const i64 width = this->width;  // stays in a register, whatever is stored
  for (i64 t = 0; t < count; t++, to += width) {
    const char* from = token(view, head, start + t);
    prefetch(view, head, start + min(t + PREFETCH_ROWS, count - 1));
    if (!in_place) {
      switch (call.dtype) {
        case FLOAT32:
          for (i64 d = 0; d < call.dim; d++) to[d] = read<T>(from, d, FLOAT32);
          break;
        case BFLOAT16:
          for (i64 d = 0; d < call.dim; d++) to[d] = read<T>(from, d, BFLOAT16);
          break;
        case FLOAT16:
          for (i64 d = 0; d < call.dim; d++) to[d] = read<T>(from, d, FLOAT16);
          break;
        default:
          for (i64 d = 0; d < call.dim; d++) to[d] = read<T>(from, d, FLOAT64);
      }
      for (i64 d = call.dim; d < width; d++) to[d] = 0;
      from = (const char*)to;
    }
    for (i64 d = 0; d < width; d += N) {
      V x = Vec::load((const T*)from + d);
      check += x * (T)0;
      Vec::store(to + d, x * factor);
    }
  }
  return Vec::reduce_add(check) == 0;
}

// Loads a block of queries multiplied by the scale, in units of log 2.
template <class Vec>
inline bool Worker<Vec>::load_queries(i64 head, const Block& block) const {
  const T factor = (T)(call.scale * 1.4426950408889634);
  return cos_sin_q() ? load_rotated_rows(call.q, head, block.start, block.size, factor, scratch.q, cos_sin_q())
                     : load_rows(call.q, head, block.start, block.size, factor, scratch.q);
}

// Stores a row multiplied by a factor. `last` is the last row that may be prefetched.
template <class Vec>
inline void Worker<Vec>::store_row(const TensorView& view, i64 head, i64 t, i64 last, const T* from, T factor) const {
  char* to = (char*)token(view, head, t);
  const i64 width = this->width;
  prefetch(view, head, min(t + PREFETCH_ROWS, last));
  if (rows_in_place()) {
    for (i64 d = 0; d < width; d += N) Vec::store((T*)to + d, Vec::load(from + d) * factor);
  } else if (call.dtype == BFLOAT16) {
    for (i64 d = 0; d < call.dim; d++) write<T>(to, d, BFLOAT16, from[d] * factor);
  } else if (call.dtype == FLOAT16) {
    for (i64 d = 0; d < call.dim; d++) write<T>(to, d, FLOAT16, from[d] * factor);
  } else {
    for (i64 d = 0; d < call.dim; d++) write<T>(to, d, call.dtype, from[d] * factor);
  }
}

// Stores rows of gradients. With `cos_sin` they are those of rotated rows, and are rotated back.
template <class Vec>
__attribute__((noinline)) void Worker<Vec>::store_rows(const TensorView& view, i64 head, i64 start, i64 count, i64 tokens,
                                                       const T* from, T factor, const T* cos_sin) const {
  for (i64 t = start; t < start + count; t++, from += width)
    if (!cos_sin)
      store_row(view, head, t, tokens - 1, from, factor);
    else if (!rows_in_place())
      store_row(view, head, t, tokens - 1, rotate_back(cos_sin, t, from), factor);
    else {
      prefetch(view, head, min(t + PREFETCH_ROWS, tokens - 1));
      rotate(cos_sin + t * 2 * call.pairs, -1, from, factor, (T*)token(view, head, t));
    }
}

// Makes the rows of a block of keys available: in place, or as a copy.
template <class Vec>
inline void Worker<Vec>::load_key_block(const TensorView& view, const Block& block, T* copy, const T*& rows, i64& stride,
                                        const T* cos_sin) const {
  if (rows_in_place() && !cos_sin) {
    rows = (const T*)token(view, kv_head, 0);
    stride = view.token_stride;
  } else {
    rows = copy;
    stride = width;
    T* to = copy + block.start * width;
    cos_sin ? load_rotated_rows(view, kv_head, block.start, block.size, 1, to, cos_sin)
            : load_rows(view, kv_head, block.start, block.size, 1, to);
  }
}

// Transposes the rows of a block into panels [width, PANEL], with zeros after the last row up to a whole vector. What follows
// is never read.
template <class Vec>
inline void Worker<Vec>::pack_panels(const T* rows, i64 stride, i64 count, T* to) const {
  for (i64 j = 0; j < count; j += PANEL, to += PANEL * width)
    for (i64 x = 0; x < min(PANEL, count - j); x += N)
      for (i64 d = 0; d < width; d += N) {
        V square[N];
        for (i64 n = 0; n < N; n++) {
          i64 t = j + x + n;
          square[n] = t < count ? Vec::load(rows + t * stride + d) : V{};
        }
        transpose<Vec>(square);
        for (i64 n = 0; n < N; n++) Vec::store(to + (d + n) * PANEL + x, square[n]);
      }
}

// Loads and packs the keys and values that the unit's queries may see.
template <class Vec>
inline void Worker<Vec>::load_keys() {
  if (q_begin >= q_end) return;
  i64 panel = 0;
  const i64 end = call.keys - call.queries + sequence->q[q_end - 1].start + sequence->q[q_end - 1].size;
  for (i64 n = k_begin; n < k_end; n++) {
    const Block& block = sequence->k[n];
    scratch.keys_are_finite[n] = -1;
    if (call.causal && block.start >= end) break;
    if (!is_before_window(block, query_offset + sequence->q[q_begin].start)) {
      load_key_block(call.k, block, scratch.k_copy, k_rows, k_stride, cos_sin_k());
      load_key_block(call.v, block, scratch.v_copy, v_rows, v_stride, nullptr);
      if (!multiplies_in_place()) pack_panels(k_rows + block.start * k_stride, k_stride, block.size, scratch.k_panels + panel);
      if (call.backward) pack_panels(v_rows + block.start * v_stride, v_stride, block.size, scratch.v_panels + panel);
    }
    panel += round_up(block.size, PANEL) * width;
  }
}

// Whether all numbers of a block of keys are finite. The answer is kept, so a pass asks about either keys or values.
template <class Vec>
inline bool Worker<Vec>::is_finite(i64 k_block, const T* rows, i64 stride) {
  if (scratch.keys_are_finite[k_block] < 0) {
    const Block& block = sequence->k[k_block];
    V check = {};
    for (i64 t = block.start; t < block.start + block.size; t++)
      for (i64 d = 0; d < width; d += N) check += Vec::load(rows + t * stride + d) * (T)0;
    scratch.keys_are_finite[k_block] = Vec::reduce_add(check) == 0;
  }
  return scratch.keys_are_finite[k_block];
}

}  // namespace
