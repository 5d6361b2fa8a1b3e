// Statistics of the attention weights in place of the output: for each query the weight in each bin of distances, the entropy,
// and the weight on the first and on the last keys of its document.
//
// As in the online softmax, weights are relative to row_max and not divided by their sum. The sum of the bins is that sum, apart from
// the weight of a sink, which is in the denominator only.
#pragma once

#include "softmax.h"

namespace {

// The row of query i: bins, entropy, first keys, last keys.
template <class Vec>
inline double* Worker<Vec>::statistics(i64 h, i64 i) const {
  return call.statistics + ((b * call.heads + h) * call.queries + i) * (call.edges_size + 4);
}

// The number of edges up to a distance.
template <class Vec>
inline i64 Worker<Vec>::bin_of(i64 distance) const {
  i64 low = 0;
  for (i64 high = call.edges_size; low < high;) {
    const i64 middle = (low + high) / 2;
    if (call.edges[middle] <= distance)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

template <class Vec>
inline double Worker<Vec>::sum_of_bins(const double* row) const {
  double sum = 0;
  for (i64 n = 0; n <= call.edges_size; n++) sum += row[n];
  return sum;
}

// Adds a pair of blocks: every weight to its bin, and w log2(w) to the entropy, with w relative to row_max.
template <class Vec>
inline void Worker<Vec>::accumulate_statistics(const BlockPair& pair, i64 h) {
  const Block &q = *pair.q, &k = *pair.k;
  const i64 bins = call.edges_size + 1;
  const i64* rank = call.rank ? call.rank + start_of_sequence(call.rank_batch, b, call.keys) : nullptr;
  for (i64 r = 0; r < q.size; r++) {
    const i64 begin = clamp(pair.begin + r, 0, k.size), end = clamp(pair.end + r, 0, k.size), i = q.start + r;
    if (end <= begin) continue;
    T* s = scratch.logits + N + r * ROW;
    double *row = statistics(h, i), *entropy = row + bins, *first_keys = entropy + 1, *last_keys = entropy + 2;
    V maximum = finish_logits(pair, s, r, end, begin / N * N, round_up(end, N));
    const T before = scratch.row_max[r], here = Vec::reduce_max(maximum), now = here > before ? here : before;
    if (now != before && before != (T)-INFINITY) {
      const double lower = (double)before - (double)now, factor = exp2(lower);
      *entropy += lower * sum_of_bins(row);
      for (i64 n = 0; n < bins + 3; n++) row[n] *= factor;
    }
    scratch.row_max[r] = now;
    const V subtracted = Vec::broadcast(now == (T)-INFINITY ? 0 : now), lowest = Vec::broadcast((T)-1000);
    V entropy_sum = {};
    for (i64 x = begin / N * N; x < end; x += N) {
      const V logit = Vec::load(s + x) - subtracted, weight = Vec::power_of_2(logit);
      Vec::store(s + x, weight);
      entropy_sum += weight * Vec::maximum(logit, lowest);  // 0 times -infinity would be NaN
    }
    *entropy += (double)Vec::reduce_add(entropy_sum);
    if (q.consecutive && k.consecutive) {  // distances fall from left to right, so each bin is a run of columns
      const i64 furthest = q.position + r - k.position;
      i64 n = bin_of(furthest - begin);
      for (i64 c = begin; c < end; n--) {
        const i64 stop = n > 0 ? clamp(furthest - call.edges[n - 1] + 1, c, end) : end;
        row[n] += sum_between<Vec>(s, c, stop);
        c = stop;
      }
    } else {
      for (i64 c = begin; c < end; c++) row[bin_of(distance(i, k.start + c))] += (double)s[c];
    }
    const i64 own_rank = rank ? rank[query_offset + i] : query_offset + i;
    if (!rank || k.document_min == k.document_max) {  // the keys of one document: their ranks are consecutive
      const i64 first_rank = rank ? rank[k.start] : k.start;
      const i64 last_begin = clamp(own_rank - call.last_keys + 1 - first_rank, begin, end);
      *first_keys += sum_between<Vec>(s, begin, clamp(call.first_keys - first_rank, begin, end));
      *last_keys += sum_between<Vec>(s, last_begin, clamp(own_rank + 1 - first_rank, last_begin, end));
    } else {
      for (i64 c = begin; c < end; c++) {
        const i64 key_rank = rank[k.start + c];
        if (key_rank < call.first_keys) *first_keys += (double)s[c];
        if (key_rank <= own_rank && key_rank > own_rank - call.last_keys) *last_keys += (double)s[c];
      }
    }
  }
}

template <class Vec>
inline void Worker<Vec>::finish_statistics(i64 h, i64 i, double sink) const {
  double *row = statistics(h, i), keys = sum_of_bins(row), sum = keys + sink;
  for (i64 n = 0; n < call.edges_size + 4; n++) row[n] /= sum;
  double* entropy = row + call.edges_size + 1;
  *entropy = (log2(sum) * (keys / sum) - *entropy) * 0.6931471805599453;  // in nats
}

}  // namespace
