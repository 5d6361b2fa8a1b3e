// Which pairs of queries and keys are visible: causal masks, windows and documents.
#pragma once

#include "worker.h"

namespace {

// Whether any pair of two blocks is visible; if so, fills `pair`. Sets `past_last` where no later block of keys is visible
// either.
template <class Vec>
inline bool Worker<Vec>::block_is_visible(const Block& q, const Block& k, BlockPair& pair, bool& past_last) const {
  const i64 first = query_offset + q.start - k.start;  // the column at which the first query itself stands
  pair.end = call.causal ? first + 1 : call.window ? first + call.window : k.size;
  pair.begin = call.window ? first - call.window + 1 : -q.size;
  past_last = pair.end + q.size <= 1;
  if (past_last || pair.begin >= k.size) return false;
  pair.q = &q;
  pair.k = &k;
  pair.documents = false;
  if (sequence->document) {
    if (q.document_min > k.document_max || k.document_min > q.document_max) return false;
    pair.documents = !(q.document_min == q.document_max && k.document_min == k.document_max);
  }
  return true;
}
template <class Vec>
inline bool Worker<Vec>::hides_pairs(const BlockPair& pair) const {
  return pair.documents || pair.end < pair.k->size || pair.begin + pair.q->size > 1;
}
template <class Vec>
inline bool Worker<Vec>::hides_only_later_keys(const BlockPair& pair) {
  return !pair.documents && pair.begin + pair.q->size <= 1;
}

// Whether a block of keys is too far back for the query at index `first_query` and for all queries after it.
template <class Vec>
inline bool Worker<Vec>::is_before_window(const Block& k, i64 first_query) const {
  return call.window && k.start + k.size <= first_query - call.window + 1;
}

template <class Vec>
INLINE bool Worker<Vec>::pair_is_visible(const BlockPair& pair, i64 r, i64 c) const {
  if (c < pair.begin + r || c >= pair.end + r) return false;
  return !pair.documents || sequence->document[query_offset + pair.q->start + r] == sequence->document[pair.k->start + c];
}

// One past the last column that row r sees, documents aside; 0 where it sees none of the block.
template <class Vec>
inline i64 Worker<Vec>::visible_columns(const BlockPair& pair, i64 r) const {
  const i64 visible = clamp(pair.end + r, 0, pair.k->size);
  return visible > pair.begin + r ? visible : 0;
}

// The largest number of blocks of keys that any block of queries sees.
template <class Vec>
inline i64 Worker<Vec>::count_visible_blocks() {
  i64 largest = 0;
  for (i64 n = 0; n <= (call.batch - 1) * plan.sequence_step; n++) {
    sequence = plan.sequences + n;
    for (i64 i = 0; i < sequence->q_blocks; i++) {
      i64 count = 0;
      bool past_last = false;
      BlockPair pair;
      for (i64 m = 0; m < sequence->k_blocks && !past_last; m++)
        count += block_is_visible(sequence->q[i], sequence->k[m], pair, past_last);
      largest = max(largest, count);
    }
  }
  return largest;
}

// Sets the hidden numbers of row r to 0, up to column `stop`.
template <class Vec>
INLINE void Worker<Vec>::clear_hidden(const BlockPair& pair, i64 r, T* x, i64 stop) const {
  const i64 columns = pair.k->size, end = clamp(pair.end + r, 0, columns), begin = clamp(pair.begin + r, 0, columns);
  const V zero = {};
  for (i64 c = end; c < stop; c += N) Vec::store(x + c, zero);
  for (i64 c = 0; c < begin; c++) x[c] = 0;
  if (pair.documents) {
    const int32_t own = sequence->document[query_offset + pair.q->start + r];
    const int32_t* document = sequence->document + pair.k->start;
    for (i64 c = 0; c < end; c++)
      if (document[c] != own) x[c] = 0;
  }
}

}  // namespace
