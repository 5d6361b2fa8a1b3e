// Rotary position embedding: q and k are rotated as they are loaded, and their gradients are rotated back as they are stored.
#pragma once

#include "tensors.h"

namespace {

// Multiplies a row by a factor and rotates each pair of it, or with a sign of -1 applies the transpose of the rotation. `cos`
// are the cosines of the token, followed by its sines. The function is never inlined, because that would make calls without
// rotations slower.
template <class Vec>
__attribute__((noinline)) void Worker<Vec>::rotate(const T* __restrict cos, T sign, const T* __restrict from, T factor,
                                                   T* __restrict to) const {
  const i64 pairs = call.pairs;
  const T* __restrict sin = cos + pairs;
  if (call.interleaved)
    for (i64 p = 0; p < pairs; p++) {
      const T x = from[2 * p] * factor, y = from[2 * p + 1] * factor, signed_sin = sign * sin[p];
      to[2 * p] = x * cos[p] - y * signed_sin;
      to[2 * p + 1] = y * cos[p] + x * signed_sin;
    }
  else
    for (i64 p = 0; p < pairs; p++) {
      const T x = from[p] * factor, y = from[p + pairs] * factor, signed_sin = sign * sin[p];
      to[p] = x * cos[p] - y * signed_sin;
      to[p + pairs] = y * cos[p] + x * signed_sin;
    }
  for (i64 d = 2 * pairs; d < width; d++) to[d] = from[d] * factor;
}

// The same as load_rows, with each row rotated.
template <class Vec>
__attribute__((noinline)) bool Worker<Vec>::load_rotated_rows(const TensorView& view, i64 head, i64 start, i64 count, T factor,
                                                              T* to, const T* cos_sin) const {
  V check = {};
  for (i64 t = start; t < start + count; t++, to += width) {
    const T* from = scratch.rotated;
    if (rows_in_place()) {
      prefetch(view, head, min(t + PREFETCH_ROWS, start + count - 1));
      from = (const T*)token(view, head, t);
    } else {
      load_rows(view, head, t, 1, 1, scratch.rotated);
    }
    rotate(cos_sin + t * 2 * call.pairs, 1, from, factor, to);
    V row_check = {};  // does not have to wait for the rows before
    for (i64 d = 0; d < width; d += N) row_check += Vec::load(to + d) * (T)0;
    check += row_check;
  }
  return Vec::reduce_add(check) == 0;
}

// Turns the gradient of a rotated row into that of the row before its rotation. The result is in scratch memory.
template <class Vec>
inline auto Worker<Vec>::rotate_back(const T* cos_sin, i64 t, const T* from) const -> const T* {
  rotate(cos_sin + t * 2 * call.pairs, -1, from, 1, scratch.rotated);
  return scratch.rotated;
}

}  // namespace
