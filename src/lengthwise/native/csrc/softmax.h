// The softmax of a pair of blocks: logits with bias and mask, the online softmax of the forward pass, and P and dS in backward.
//
// Logits are in units of log 2, so that exp is a power of 2. What is read again soon is stored in whole vectors at the places
// where it is read, because a load that spans two recent stores has to wait for both.
#pragma once

#include "bias.h"
#include "mask.h"

namespace {

// Adds the bias to row r's logits `s`, and writes -infinity where a pair is hidden, from column `low` up to `high` (whole
// vectors). `visible` is one past the last column that the row sees, documents aside. Returns the maximum of each lane.
template <class Vec>
INLINE auto Worker<Vec>::finish_logits(const BlockPair& pair, T* s, i64 r, i64 visible, i64 low, i64 high) -> V {
  const T* bias = has_bias() && visible > low ? bias_row(*pair.q, *pair.k, r, visible) : nullptr;
  const V hidden = Vec::broadcast((T)-INFINITY);
  V maximum = hidden;
  const i64 begin = pair.begin + r;
  if (begin <= low && !pair.documents) {
    const i64 whole = max(visible / N * N, low);
    i64 x = low;
    if (bias) {
      for (; x < whole; x += N) {
        V value = Vec::load(s + x) + Vec::load(bias + x);
        Vec::store(s + x, value);
        maximum = Vec::maximum(maximum, value);
      }
    } else {
      for (; x < whole; x += N) maximum = Vec::maximum(maximum, Vec::load(s + x));
    }
    for (; x < high; x += N) {
      V value = hidden;
      if (x < visible)
        value = Vec::keep_first(bias ? Vec::load(s + x) + Vec::load(bias + x) : Vec::load(s + x), visible - x, (T)-INFINITY);
      Vec::store(s + x, value);
      maximum = Vec::maximum(maximum, value);
    }
    return maximum;
  }
  if (bias)
    for (i64 x = low; x < visible; x += N) Vec::store(s + x, Vec::load(s + x) + Vec::load(bias + x));
  for (i64 x = max(visible, low); x < high; x += N) Vec::store(s + x, hidden);
  for (i64 c = low; c < min(begin, high); c++) s[c] = (T)-INFINITY;
  if (pair.documents) {
    const int32_t own = sequence->document[query_offset + pair.q->start + r];
    const int32_t* document = sequence->document + pair.k->start;
    for (i64 c = 0; c < visible; c++)
      if (document[c] != own) s[c] = (T)-INFINITY;
  }
  for (i64 x = low; x < high; x += N) maximum = Vec::maximum(maximum, Vec::load(s + x));
  return maximum;
}

// Turns logits into weights that are not divided by their sum yet, and updates row_max, row_sum and the outputs so far.
template <class Vec>
inline void Worker<Vec>::online_softmax(const BlockPair& pair) {
  const i64 rows = pair.q->size, columns = pair.k->size;
  for (i64 r = 0; r < rows; r++) {
    // The rows of a tile are multiplied together, so weights are needed from the first to the last column that any of them
    // sees.
    const i64 first_row = r / Vec::TILE_ROWS * Vec::TILE_ROWS, last_row = min(rows - 1, first_row + Vec::TILE_ROWS - 1);
    const i64 high = round_up(clamp(pair.end + last_row, 0, columns), N);
    const i64 low = clamp(pair.begin + first_row, 0, columns) / N * N;
    if (low >= high) continue;
    T* s = scratch.logits + N + r * ROW;
    V maximum = finish_logits(pair, s, r, clamp(pair.end + r, 0, columns), low, high);
    const T before = scratch.row_max[r], here = Vec::reduce_max(maximum), now = here > before ? here : before;
    const V subtracted = Vec::broadcast(now == (T)-INFINITY ? 0 : now);
    V sum = {};
    for (i64 x = low; x < high; x += N) {
      V weight = Vec::power_of_2(Vec::load(s + x) - subtracted);
      Vec::store(s + x, weight);
      sum += weight;
    }
    if (now != before && before != (T)-INFINITY) {
      const T factor = Vec::power_of_2(Vec::broadcast(before - now))[0];
      scratch.row_sum[r] *= factor;
      T* out = scratch.out + r * width;
      for (i64 d = 0; d < width; d += N) Vec::store(out + d, Vec::load(out + d) * factor);
    }
    scratch.row_sum[r] += Vec::reduce_add(sum);
    scratch.row_max[r] = now;
  }
}

// ---- backward

template <class Vec>
INLINE auto Worker<Vec>::columns_of(const BlockPair& pair, i64 r) const -> Columns {
  const i64 columns = pair.k->size;
  return {clamp(pair.begin + r, 0, columns) / N * N, round_up(clamp(pair.end + r, 0, columns), N)};
}
// Up to where any row sees that is multiplied together with row r, in tiles of rows or of columns.
template <class Vec>
inline i64 Worker<Vec>::end_of_tile(const BlockPair& pair, i64 r) const {
  return round_up(clamp(pair.end + r + Vec::TILE_ROWS, 0, pair.k->size), N);
}
template <class Vec>
inline auto Worker<Vec>::visible_bias_row(const BlockPair& pair, i64 r) -> const T* {
  const i64 visible = visible_columns(pair, r);
  return has_bias() && visible ? bias_row(*pair.q, *pair.k, r, visible) : nullptr;
}

// Turns logits into P, and dP into dS = P * (dP - delta), the gradient of the logits in nats.
template <class Vec>
inline void Worker<Vec>::compute_P_and_dS(const BlockPair& pair) {
  const bool only_later_hidden = hides_only_later_keys(pair);
  for (i64 r = 0; r < pair.q->size; r++) {
    const Columns at = columns_of(pair, r);
    T *s = scratch.logits + N + r * ROW, *dS = scratch.dS + N + r * ROW;
    const T* bias = visible_bias_row(pair, r);
    const V row_max = Vec::broadcast(scratch.row_max[r]), row_sum = Vec::broadcast(scratch.row_sum[r]);
    const V delta = Vec::broadcast(scratch.delta[r]);
    if (only_later_hidden) {
      const i64 visible = clamp(pair.end + r, 0, pair.k->size), whole = visible / N * N;
      for (i64 x = 0; x < whole; x += N) {
        const V logit = bias ? Vec::load(s + x) + Vec::load(bias + x) : Vec::load(s + x);
        const V P = Vec::power_of_2(logit - row_max) * row_sum;
        Vec::store(s + x, P);
        Vec::store(dS + x, P * (Vec::load(dS + x) - delta));
      }
      const i64 stop = end_of_tile(pair, r);
      if (whole < stop) {
        const V logit = bias && whole < visible ? Vec::load(s + whole) + Vec::load(bias + whole) : Vec::load(s + whole);
        const V P = Vec::keep_first(Vec::power_of_2(logit - row_max) * row_sum, visible - whole, 0);
        Vec::store(s + whole, P);
        Vec::store(dS + whole, Vec::keep_first(P * (Vec::load(dS + whole) - delta), visible - whole, 0));
      }
      for (i64 x = whole + N; x < stop; x += N) {
        Vec::store(s + x, V{});
        Vec::store(dS + x, V{});
      }
      continue;
    }
    if (bias) {
      for (i64 x = at.low; x < at.high; x += N) {
        V P = Vec::power_of_2(Vec::load(s + x) + Vec::load(bias + x) - row_max) * row_sum;
        Vec::store(s + x, P);
        Vec::store(dS + x, P * (Vec::load(dS + x) - delta));
      }
    } else {
      for (i64 x = at.low; x < at.high; x += N) {
        V P = Vec::power_of_2(Vec::load(s + x) - row_max) * row_sum;
        Vec::store(s + x, P);
        Vec::store(dS + x, P * (Vec::load(dS + x) - delta));
      }
    }
    clear_hidden(pair, r, s, pair.k->size + N);
    clear_hidden(pair, r, dS, pair.k->size + N);
  }
}

// The first of two steps where P and dP are saved: turns saved logits into P, and adds up P and P dP of each row.
template <class Vec>
inline void Worker<Vec>::save_P(const BlockPair& pair) {
  const bool only_later_hidden = hides_only_later_keys(pair);
  for (i64 r = 0; r < pair.q->size; r++) {
    const Columns at = columns_of(pair, r);
    T *s = saved_P() + r * SAVED_ROW, *dP = saved_dP() + r * SAVED_ROW;
    const T* bias = visible_bias_row(pair, r);
    const V row_max = Vec::broadcast(scratch.row_max[r]), row_sum = Vec::broadcast(scratch.row_sum[r]);
    V P_sum = {}, P_dP_sum = {};
    if (bias && only_later_hidden) {
      const i64 visible = clamp(pair.end + r, 0, pair.k->size), whole = visible / N * N;
      for (i64 x = 0; x < whole; x += N) {
        const V P = Vec::power_of_2(Vec::load(s + x) + Vec::load(bias + x) - row_max) * row_sum;
        Vec::store(s + x, P);
        P_sum += P;
        P_dP_sum += P * Vec::load(dP + x);
      }
      const i64 stop = end_of_tile(pair, r);
      if (whole < visible) {
        const V logit = Vec::load(s + whole) + Vec::load(bias + whole);
        const V P = Vec::keep_first(Vec::power_of_2(logit - row_max) * row_sum, visible - whole, 0);
        Vec::store(s + whole, P);
        P_sum += P;
        P_dP_sum += Vec::keep_first(P * Vec::load(dP + whole), visible - whole, 0);
      }
      for (i64 x = round_up(visible, N); x < stop; x += N) Vec::store(s + x, V{});
    } else {
      for (i64 x = at.low; x < at.high; x += N) {
        const V logit = bias ? Vec::load(s + x) + Vec::load(bias + x) : Vec::load(s + x);
        Vec::store(s + x, Vec::power_of_2(logit - row_max) * row_sum);
      }
      clear_hidden(pair, r, s, round_up(pair.k->size, N));
      clear_hidden(pair, r, dP, round_up(pair.k->size, N));
      for (i64 x = at.low; x < at.high; x += N) {
        P_sum += Vec::load(s + x);
        P_dP_sum += Vec::load(s + x) * Vec::load(dP + x);
      }
    }
    add_wide<Vec>(scratch.row_P + r * N, WIDEN(P_sum));
    add_wide<Vec>(scratch.row_P_dP + r * N, WIDEN(P_dP_sum));
  }
}

// Between the two steps: delta of each row, and what rounding it to T loses.
template <class Vec>
inline void Worker<Vec>::compute_delta(i64 h, i64 rows) {
  for (i64 r = 0; r < rows; r++) {
    Wide P, P_dP;
    memcpy(&P, scratch.row_P + r * N, sizeof P);
    memcpy(&P_dP, scratch.row_P_dP + r * N, sizeof P_dP);
    const double P_sum = reduce_add_wide<Vec>(P) + sink_weight(h, r), exact = P_sum == 0 ? 0 : reduce_add_wide<Vec>(P_dP) / P_sum;
    scratch.delta[r] = (T)exact;
    const double rest = exact - (double)scratch.delta[r];
    scratch.delta_rest[r] = rest == rest ? (T)rest : 0;
  }
}

// The second step: dS = P * (dP - delta).
template <class Vec>
inline void Worker<Vec>::compute_dS_from_saved(const BlockPair& pair) {
  const bool only_later_hidden = hides_only_later_keys(pair);
  for (i64 r = 0; r < pair.q->size; r++) {
    const Columns at = columns_of(pair, r);
    const T *P = saved_P() + r * SAVED_ROW, *dP = saved_dP() + r * SAVED_ROW;
    T* dS = scratch.dS + N + r * ROW;
    const V delta = Vec::broadcast(scratch.delta[r]), rest = Vec::broadcast(scratch.delta_rest[r]);
    if (only_later_hidden) {  // zeros up to where sums along diagonals read
      const i64 visible = clamp(pair.end + r, 0, pair.k->size), whole = visible / N * N;
      for (i64 x = 0; x < whole; x += N) Vec::store(dS + x, Vec::load(P + x) * (Vec::load(dP + x) - delta - rest));
      i64 x = whole;
      if (whole < visible) {
        Vec::store(dS + x, Vec::keep_first(Vec::load(P + x) * (Vec::load(dP + x) - delta - rest), visible - whole, 0));
        x += N;
      }
      for (; x < pair.k->size + N; x += N) Vec::store(dS + x, V{});
      continue;
    }
    for (i64 x = at.low; x < at.high; x += N)
      Vec::store(dS + x, Vec::load(P + x) * (Vec::load(dP + x) - delta - rest));
    clear_hidden(pair, r, dS, pair.k->size + N);
  }
}

}  // namespace
