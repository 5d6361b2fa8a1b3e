// Combining the results of the units of work. Part of driver.cpp.
//
// Units are always combined in the same order, so results do not depend on the number of threads.
#pragma once

#include <math.h>

#include <algorithm>
#include <vector>

#include "convert.h"
#include "plan.h"

namespace {

// `parts` has `rows` rows of `size` numbers; every `period`th belongs to the same row of the result, [period, size], which is
// multiplied by a factor.
template <class T, class Part>
void sum_rows(const Part* parts, i64 rows, i64 size, i64 period, void* result, double factor = 1) {
  for (i64 row = 0; row < period; row++)
    for (i64 n = 0; n < size; n++) {
      double sum = 0;
      for (i64 part = row; part < rows; part += period) sum += (double)parts[part * size + n];
      ((T*)result)[row * size + n] = (T)(sum * factor);
    }
}

// The output and lse, where the keys of a head were split.
template <class T>
void combine_key_splits(const Call& call, const Plan& plan) {
  const i64 group = call.heads / call.kv_heads, size = call.dim + 2;
  std::vector<double> sum((size_t)call.dim);
  for (i64 row = 0; row < call.batch * call.heads * call.queries; row++) {
    const i64 b = row / call.queries / call.heads, h = row / call.queries % call.heads, i = row % call.queries;
    const i64 first = (b * call.kv_heads + h / group) * plan.splits;
    // Points at row_max of the first split; the output lies before it and row_sum after it.
    const T* parts = (const T*)plan.partial + ((first * group + h % group) * call.queries + i) * size + call.dim;
    const i64 step = group * call.queries * size;
    T row_max = (T)-INFINITY;
    for (i64 n = 0; n < plan.splits; n++) row_max = parts[n * step] > row_max ? parts[n * step] : row_max;
    double row_sum = 0;
    std::fill(sum.begin(), sum.end(), 0.0);
    for (i64 n = 0; n < plan.splits; n++) {
      const T *part = parts + n * step, *out = part - call.dim;
      if (part[1] == 0) continue;  // the row sees none of these keys
      const double factor = exp2((double)(part[0] - (row_max == (T)-INFINITY ? 0 : row_max)));
      row_sum += factor * (double)part[1];
      for (i64 d = 0; d < call.dim; d++) sum[(size_t)d] += factor * (double)out[d];
    }
    char* to = (char*)call.out.data +
               (b * call.out.batch_stride + h * call.out.head_stride + i * call.out.token_stride) * bytes_of(call.dtype);
    for (i64 d = 0; d < call.dim; d++) write<T>(to, d, call.dtype, (T)(sum[(size_t)d] / row_sum));
    ((T*)call.lse)[row] = (T)(((double)row_max + log2(row_sum)) * 0.6931471805599453);
  }
}

// dk and dv, where the query heads of a key head were split.
template <class T>
void combine_head_splits(const Call& call, const Plan& plan) {
  const i64 size = call.keys * call.dim;
  for (i64 n = 0; n < call.batch * call.kv_heads * 2 * call.keys; n++) {
    const i64 unit = n / call.keys / 2, t = n % call.keys, is_value = n / call.keys % 2;
    const TensorView& view = is_value ? call.dv : call.dk;
    const T factor = is_value ? 1 : (T)0.6931471805599453;  // q was multiplied by scale / ln 2
    const T* from = (const T*)plan.partial + (unit * plan.splits * 2 + is_value) * size + t * call.dim;
    char* to = (char*)view.data + (unit / call.kv_heads * view.batch_stride + unit % call.kv_heads * view.head_stride +
                                   t * view.token_stride) *
                                      bytes_of(call.dtype);
    for (i64 d = 0; d < call.dim; d++) {
      T sum = 0;
      for (i64 h = 0; h < plan.splits; h++) sum += from[h * 2 * size + d];
      write<T>(to, d, call.dtype, sum * factor);
    }
  }
}

}  // namespace
