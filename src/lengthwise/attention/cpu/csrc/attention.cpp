// Fused attention on the CPU, forward and backward, with the biases of forms.py: none, a table over distances, straight
// pieces of one coordinate u[distance] w[query] (FIRE), and their sum.
//
// What is computed, for query i (index keys - queries + i) and key j of one head:
//
//     logit = scale <q_i, k_j> + table[distance - first] + slope[s] x + intercept[s] + rows[i, distance - rows_first],
//     x = u[distance] w[i],   s = the number of knots <= x,   out_i = sum_j softmax(logit)_j v_j
//
// with q_i and k_j as they are given, or rotated as they are read (and the gradients back, as they are written),
//
// over the keys that i sees: up to its own index (causal), closer to it than `window`, of its own document. Distances past
// an end take the nearest entry. No matrix of queries and keys exists: blocks of 96 x 128 logits live in the cache, and the backward pass makes
// them anew from the logarithm of each row's sum (as flash attention does).
//
//   * Logits are kept in units of log 2, so that exp is 2^x. Weights below 2^-125 are exactly 0: denormal numbers would
//     cost more than the whole attention.
//   * Where positions are consecutive within two blocks, all their biases lie in one window of 96 + 128 distances,
//     which every row reads one place further on. Elsewhere they are looked up pair by pair.
//   * Pieces: the distances of one segment lie side by side in a row, from a first distance on that is found once for
//     all heads. So a pair costs one multiplication and addition, and the gradients are exact. Where w is the same for
//     all queries of a block, the bias is one of distance alone. Where there are thousands of pieces (a smooth
//     activation), each pair's segment is searched for, from a table that says roughly where it is.
//     Which piece a pair is in is decided in float64, as knots, u and w are given.
//   * Rows: a query's own numbers, one for each distance; within two blocks of consecutive positions they lie side by
//     side, in the reverse order of the keys.
//   * The unit of work is one (batch, key head) with all queries' heads on it, or a part of it where there are few of
//     them: some of its heads (backward), of its keys (a few queries), of its queries. It owns every sum that it makes;
//     sums over several units are made at the end, in order, and what is cut so that sums change is cut by the shapes
//     alone. So the result does not depend on the number of threads.
//   * The change of a logit is its weight times (what the output's gradient says of its value - delta), and a row's changes
//     sum to 0. Where a bias has a gradient, that sum is what nearly everything in it cancels to, so delta is made of the
//     very weights and numbers that it is subtracted from, which are kept for a block of queries and all their keys.
//     Elsewhere it is <gradient, output>: the same but for rounding.
//   * A key that nobody sees is never multiplied by 0: NaN and infinity stay with the rows that see them.
//
// The file is compiled once for each target (-DLENGTHWISE_TARGET=portable, avx2, avx512); `portable` also holds what
// the library offers: lengthwise_attention, lengthwise_targets. Plain C at the border: no header of torch.

#include "convert.h"
#include "gemm.h"
#include "plan.h"
#include "scratch.h"
#include "vec.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

// Rows of a tensor that are fetched before they are needed.
enum : i64 { AHEAD = 6 };
namespace {

// ---- one unit of work ------------------------------------------------------------------------------------------

template <class Vec>
struct Unit {
  typedef typename Vec::T T;
  typedef typename Vec::V V;
  typedef typename Vec::Wide Wide;
  enum : i64 {
    N = Vec::N,
    PANEL = Vec::N * Vec::TILE_COLUMNS,  // keys of a panel
    ROW = BLOCK_K + 4 * Vec::N,   // a row of a block of logits: N zeros, the keys, room
    KEPT = BLOCK_K + 16,        // one of a block that is kept: the keys, and room, so that rows lie in all parts of the cache
    WINDOW = BLOCK_Q + BLOCK_K + 2 * Vec::N,
  };

  const Plan& plan;
  const Call& call;
  const i64 width, vectors, group;
  const T log2e = (T)1.4426950408889634, ln2 = (T)0.6931471805599453;

  // Memory of one thread.
  T *panels_k, *panels_v, *rows_k, *rows_v, *sum_k, *sum_v;                 // of all keys
  T *q, *grad, *out, *dq, *turned, *logits, *change, *spread, *row_bias, *own_bias, *gathered;  // of a block
  T *window, *window_u, *pieces_a, *pieces_b, *peak, *total, *delta, *delta_rest;
  T* window_tilt;
  T *kept_weights, *kept_change;      // of a block of queries and every block of keys that it meets, where `kept`
  double *diagonal, *sum_a, *sum_b;   // sums over many rows, in which much cancels
  double *row_weights, *row_changes;  // of each row the sum of its weights, and of its weights times change
  double *knots, *exact_window;  // and one more, which no number reaches; u of the window
  int32_t *cursor, *segments;
  signed char* finite_keys;  // -1: nobody has looked

  // Of the unit and block at hand.
  const SequenceBlocks* layout;
  i64 unit, b, head_k, offset;
  i64 head_from, head_to, q_from, q_to, k_from, k_to;  // its part: heads, blocks of queries and of keys
  const T *slope, *intercept, *table, *level_table, *tilt, *rows;
  const T *k_rows, *v_rows;
  i64 k_step, v_step;
  bool level_rows;             // all queries of the block have the w that there is a table for
  bool row_run, lookup, level, sloped, searched;  // how this pair of blocks gets its bias: see choose_bias
  i64 met = 0;  // which of the blocks of keys that the block of queries meets this is
  i64 most_met = 0;
  i64 touched_low, touched_high;

  explicit Unit(const Plan& plan)
      : plan(plan), call(*plan.call), width(round_up(plan.call->dim, N)), vectors(width / N),
        group(plan.call->heads / plan.call->kv_heads) {}

  ~Unit() {
    if (thread_memory.size > LENGTHWISE_KEEP_BYTES) thread_memory.release();
  }

  template <class X>
  static void take(uintptr_t& at, X*& what, i64 numbers) {
    what = (X*)at;
    at += LENGTHWISE_BUFFER_BYTES(at, numbers * sizeof(X));
  }

  i64 arrange(void* base) {
    uintptr_t at = (uintptr_t)base;
    i64 keys = 0, blocks = 0, panel_tokens = 0;
    for (i64 n = 0; n <= (call.batch - 1) * plan.sequence_step; n++) {
      keys = call.keys;
      blocks = max(blocks, plan.sequences[n].k_blocks);
      panel_tokens = max(panel_tokens, plan.sequences[n].panel_tokens);
    }
    const bool back = call.backward;
    take(at, panels_k, few() ? 0 : panel_tokens * width);
    take(at, panels_v, back ? panel_tokens * width : 0);
    take(at, rows_k, direct(call.k) && !call.cos_sin_k ? 0 : keys * width);
    take(at, rows_v, direct(call.v) ? 0 : keys * width);
    take(at, sum_k, back ? keys * width : 0);
    take(at, sum_v, back ? keys * width : 0);
    take(at, q, BLOCK_Q * width);
    take(at, grad, back ? BLOCK_Q * width : 0);
    take(at, out, BLOCK_Q * width);
    take(at, dq, back ? BLOCK_Q * width : 0);
    take(at, turned, call.cos_sin_q || call.cos_sin_k ? width : 0);
    take(at, logits, BLOCK_Q * ROW);
    take(at, change, back ? BLOCK_Q * ROW : 0);
    take(at, spread, back && call.slope ? BLOCK_Q * ROW : 0);
    take(at, row_bias, ROW);
    take(at, gathered, width);
    take(at, own_bias, call.rows ? (i64)ROW : 0);
    take(at, window, WINDOW);
    take(at, window_u, WINDOW);
    take(at, diagonal, back ? (i64)WINDOW : 0);
    take(at, pieces_a, in_pieces() ? call.segments : 0);
    take(at, pieces_b, in_pieces() ? call.segments : 0);
    take(at, peak, BLOCK_Q);
    take(at, total, BLOCK_Q);
    take(at, delta, BLOCK_Q);
    take(at, delta_rest, BLOCK_Q);
    take(at, row_weights, most_met ? BLOCK_Q * N : 0);
    take(at, row_changes, most_met ? BLOCK_Q * N : 0);
    take(at, kept_weights, most_met * BLOCK_Q * KEPT);
    take(at, kept_change, most_met * BLOCK_Q * KEPT);
    take(at, sum_a, back && plan.segment_starts ? call.segments * N : 0);
    take(at, sum_b, back && plan.segment_starts ? call.segments * N : 0);
    take(at, cursor, BLOCK_Q);
    take(at, window_tilt, back && plan.shared_bias ? (i64)WINDOW : 0);
    const bool search = in_pieces() && !plan.segment_starts;
    take(at, knots, search ? call.segments : 0);
    take(at, exact_window, search ? (i64)WINDOW : 0);
    take(at, segments, search ? max(most_met, 1) * BLOCK_Q * BLOCK_K : 0);
    take(at, finite_keys, blocks);
    return (i64)(at - (uintptr_t)base);
  }

  // Whether anybody asks for pieces, and not for a table of them.
  bool in_pieces() const { return call.slope && !plan.all_share_scale; }

  // Whether weights and changes of all keys are kept: see the top of the file.
  bool kept() const { return call.backward && (plan.grad_table || call.grad_slope || call.grad_rows); }

  // The most blocks of keys that any block of queries meets.
  i64 count_met() {
    i64 found = 0;
    for (i64 n = 0; n <= (call.batch - 1) * plan.sequence_step; n++) {
      layout = plan.sequences + n;
      for (i64 i = 0; i < layout->q_blocks; i++) {
        i64 count = 0;
        bool past = false;
        Pair pair;
        for (i64 m = 0; m < layout->k_blocks && !past; m++) count += meets(layout->q[i], layout->k[m], pair, past);
        found = max(found, count);
      }
    }
    return found;
  }

  bool prepare() {
    if (kept()) most_met = count_met();
    if (!thread_memory.reserve(arrange(nullptr))) return false;
    arrange(thread_memory.data);
    // Left and right of a row's keys are zeros, which sums along diagonals read.
    if (call.backward) memset(change, 0, sizeof(T) * BLOCK_Q * ROW);
    if (call.backward && call.slope) memset(spread, 0, sizeof(T) * BLOCK_Q * ROW);
    if (call.backward && plan.segment_starts) {
      memset(sum_a, 0, sizeof(double) * call.segments * N);
      memset(sum_b, 0, sizeof(double) * call.segments * N);
    }
    memset(cursor, 0, sizeof(int32_t) * BLOCK_Q);
    if (in_pieces() && !plan.segment_starts) {
      memcpy(knots, call.knots, sizeof(double) * (size_t)(call.segments - 1));
      knots[call.segments - 1] = (double)NAN;
    }
    return true;
  }

  // -- reading and writing

  // The rotation of queries or keys, for the row of the batch at hand; null: none.
  const T* turns(const void* of_all, i64 batch) const { return of_all ? (const T*)of_all + b * batch : nullptr; }
  const T* turns_q() const { return turns(call.cos_sin_q, call.cos_sin_q_stride); }
  const T* turns_k() const { return turns(call.cos_sin_k, call.cos_sin_k_stride); }
  // A row times `by`, rotated by its pairs' angles, or by their negatives (`sign`), which is the transpose. Never inlined, or
  // what there is without rotations would be slower.
  __attribute__((noinline)) void turn(const T* __restrict cos, T sign, const T* __restrict from, T by, T* __restrict to) const {
    const i64 pairs = call.pairs;
    const T* __restrict sin = cos + pairs;
    if (call.interleaved)
      for (i64 p = 0; p < pairs; p++) {
        const T one = from[2 * p] * by, other = from[2 * p + 1] * by, across = sign * sin[p];
        to[2 * p] = one * cos[p] - other * across;
        to[2 * p + 1] = other * cos[p] + one * across;
      }
    else
      for (i64 p = 0; p < pairs; p++) {
        const T one = from[p] * by, other = from[p + pairs] * by, across = sign * sin[p];
        to[p] = one * cos[p] - other * across;
        to[p + pairs] = other * cos[p] + one * across;
      }
    for (i64 d = 2 * pairs; d < width; d++) to[d] = from[d] * by;
  }

  // Rows that can be used where they lie: of the type that is computed in, whole vectors.
  bool direct(const TensorView&) const {
    return call.dim == width && call.dtype == (sizeof(T) == 4 ? (i64)FLOAT32 : (i64)FLOAT64);
  }
  const char* token(const TensorView& view, i64 head, i64 t) const {
    return (const char*)view.data + (b * view.batch_stride + head * view.head_stride + t * view.token_stride) * bytes_of(call.dtype);
  }
  // Towards the cache: rows of one head lie far apart where heads lie side by side, and no processor sees that coming.
  void fetch(const TensorView& view, i64 head, i64 t) const {
    const char* at = token(view, head, t);
    for (i64 x = 0; x < call.dim * bytes_of(call.dtype); x += 64) __builtin_prefetch(at + x);
  }
  // `count` rows times `by` into rows of `width`; whether all numbers are finite.
  bool read_rows(const TensorView& view, i64 head, i64 start, i64 count, T by, T* to) const {
    V check = {};
    const bool whole = direct(view);
    const i64 width = this->width;  // in a register, whatever is written
    for (i64 t = 0; t < count; t++, to += width) {
      const char* from = token(view, head, start + t);
      fetch(view, head, start + min(t + AHEAD, count - 1));
      if (!whole) {
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
        Vec::store(to + d, x * by);
      }
    }
    return Vec::reduce_add(check) == 0;
  }
  // The same, rotated.
  __attribute__((noinline)) bool read_turned(const TensorView& view, i64 head, i64 start, i64 count, T by, T* to,
                                             const T* turns) const {
    V check = {};
    for (i64 t = start; t < start + count; t++, to += width) {
      const T* from = turned;
      if (direct(view)) {
        fetch(view, head, min(t + AHEAD, start + count - 1));
        from = (const T*)token(view, head, t);
      } else {
        read_rows(view, head, t, 1, 1, turned);
      }
      turn(turns + t * 2 * call.pairs, 1, from, by, to);
      V own = {};  // which need not wait for the rows before
      for (i64 d = 0; d < width; d += N) own += Vec::load(to + d) * (T)0;
      check += own;
    }
    return Vec::reduce_add(check) == 0;
  }
  // A block of queries with the scale in units of log 2.
  bool read_queries(i64 head, const Block& block) const {
    const T by = (T)(call.scale * 1.4426950408889634);
    return turns_q() ? read_turned(call.q, head, block.start, block.size, by, q, turns_q())
                     : read_rows(call.q, head, block.start, block.size, by, q);
  }
  void write_row(const TensorView& view, i64 head, i64 t, i64 last, const T* from, T by) const {
    char* to = (char*)token(view, head, t);
    const i64 width = this->width;
    fetch(view, head, min(t + AHEAD, last));
    if (direct(view)) {
      for (i64 d = 0; d < width; d += N) Vec::store((T*)to + d, Vec::load(from + d) * by);
    } else if (call.dtype == BFLOAT16) {
      for (i64 d = 0; d < call.dim; d++) write<T>(to, d, BFLOAT16, from[d] * by);
    } else if (call.dtype == FLOAT16) {
      for (i64 d = 0; d < call.dim; d++) write<T>(to, d, FLOAT16, from[d] * by);
    } else {
      for (i64 d = 0; d < call.dim; d++) write<T>(to, d, call.dtype, from[d] * by);
    }
  }

  // Gradients of rotated rows as those of the rows before.
  const T* turned_back(const T* turns, i64 t, const T* from) const {
    turn(turns + t * 2 * call.pairs, -1, from, 1, turned);
    return turned;
  }
  __attribute__((noinline)) void write_rows(const TensorView& view, i64 head, i64 start, i64 count, i64 tokens, const T* from, T by,
                                            const T* turns) const {
    for (i64 t = start; t < start + count; t++, from += width)
      if (!turns)
        write_row(view, head, t, tokens - 1, from, by);
      else if (!direct(view))
        write_row(view, head, t, tokens - 1, turned_back(turns, t, from), by);
      else {
        fetch(view, head, min(t + AHEAD, tokens - 1));
        turn(turns + t * 2 * call.pairs, -1, from, by, (T*)token(view, head, t));
      }
  }

  // The rows of a block of keys: where they lie, or a copy.
  void keep_rows(const TensorView& view, const Block& block, T* kept, const T*& rows, i64& step, const T* turns) const {
    if (direct(view) && !turns) {
      rows = (const T*)token(view, head_k, 0);
      step = view.token_stride;
    } else {
      rows = kept;
      step = width;
      T* to = kept + block.start * width;
      turns ? read_turned(view, head_k, block.start, block.size, 1, to, turns)
            : read_rows(view, head_k, block.start, block.size, 1, to);
    }
  }
  // Whether all numbers of a block of keys are finite; one kind of rows in a pass (v forward, k backward).
  bool finite(i64 m, const T* rows, i64 step) {
    if (finite_keys[m] < 0) {
      const Block& block = layout->k[m];
      V check = {};
      for (i64 t = block.start; t < block.start + block.size; t++)
        for (i64 d = 0; d < width; d += N) check += Vec::load(rows + t * step + d) * (T)0;
      finite_keys[m] = Vec::reduce_add(check) == 0;
    }
    return finite_keys[m];
  }

  // Panels [dim, PANEL] of a block's rows, zeros past its end up to a whole vector; what comes then is never read.
  void to_panels(const T* rows, i64 step, i64 count, T* to) const {
    for (i64 j = 0; j < count; j += PANEL, to += PANEL * width)
      for (i64 x = 0; x < min(PANEL, count - j); x += N)
        for (i64 d = 0; d < width; d += N) {
          V square[N];
          for (i64 n = 0; n < N; n++) {
            i64 t = j + x + n;
            square[n] = t < count ? Vec::load(rows + t * step + d) : V{};
          }
          transpose<Vec>(square);
          for (i64 n = 0; n < N; n++) Vec::store(to + (d + n) * PANEL + x, square[n]);
        }
  }

  void keep_keys() {
    if (q_from >= q_to) return;
    i64 panel = 0;
    const i64 furthest = call.keys - call.queries + layout->q[q_to - 1].start + layout->q[q_to - 1].size;
    for (i64 n = k_from; n < k_to; n++) {
      const Block& block = layout->k[n];
      finite_keys[n] = -1;
      if (call.causal && block.start >= furthest) break;
      if (!behind(block, offset + layout->q[q_from].start)) {
        keep_rows(call.k, block, rows_k, k_rows, k_step, turns_k());
        keep_rows(call.v, block, rows_v, v_rows, v_step, nullptr);
        if (!few()) to_panels(k_rows + block.start * k_step, k_step, block.size, panels_k + panel);
        if (call.backward) to_panels(v_rows + block.start * v_step, v_step, block.size, panels_v + panel);
      }
      panel += round_up(block.size, PANEL) * width;
    }
  }

  // -- products of blocks. Row r of a block sees columns from begin + r up to edge + r.

  // to[r, c] = <rows of a, columns of a panel>
  void score(const T* a, const T* panel, T* to, i64 step, i64 rows, i64 columns, i64 begin, i64 edge) const {
    for (i64 c = 0; c < columns; c += PANEL, panel += PANEL * width)
      for (i64 r = 0; r < rows; r += Vec::TILE_ROWS) {
        i64 count = min(Vec::TILE_ROWS, rows - r), seen = min(columns, edge + r + count - 1) - c;
        if (seen <= 0 || begin + r >= c + PANEL) continue;
        i64 wide = min(Vec::TILE_COLUMNS, (seen + N - 1) / N);
        multiply_tile<Vec>(count, wide, a + r * width, width, 1, panel, PANEL, to + r * step + c, step, call.dim, false);
      }
  }
  // The same from the keys as they lie: for a few queries, as in decoding, panels would cost more than they save.
  bool few() const { return !call.backward && has_few_query_rows(call); }
  void score_few(const T* a, const T* keys, i64 step, T* to, i64 rows, i64 columns, i64 begin) const {
    for (i64 c = clamp(begin, 0, columns) / N * N; c < columns; c += N)
      for (i64 r = 0; r < rows; r++) {
        V dot[N];
        for (i64 n = 0; n < N; n++) {
          dot[n] = V{};
          if (c + n < columns)
            for (i64 d = 0; d < width; d += N)
              dot[n] += Vec::load(a + r * width + d) * Vec::load(keys + (c + n) * step + d);
        }
        transpose<Vec>(dot);
        V sum = dot[0];
        for (i64 n = 1; n < N; n++) sum += dot[n];
        Vec::store(to + r * ROW + c, sum);
      }
  }
  // to[r] += sum over c of weight[r, c] x[c]
  void gather_rows(const T* weight, const T* x, i64 step, T* to, i64 rows, i64 columns, i64 begin, i64 edge) const {
    for (i64 d = 0; d < vectors; d += Vec::TILE_COLUMNS)
      for (i64 r = 0; r < rows; r += Vec::TILE_ROWS) {
        i64 count = min(Vec::TILE_ROWS, rows - r), seen = min(columns, edge + r + count - 1), from = max(0, begin + r);
        if (seen <= from) continue;
        multiply_tile<Vec>(count, min(Vec::TILE_COLUMNS, vectors - d), weight + r * ROW + from, ROW, 1, x + from * step + d * N,
                    step, to + r * width + d * N, width, seen - from, true);
      }
  }
  // to[c] += sum over r of weight[r, c] x[r]
  void gather_columns(const T* weight, i64 row, const T* x, T* to, i64 rows, i64 columns, i64 begin, i64 edge) const {
    for (i64 d = 0; d < vectors; d += Vec::TILE_COLUMNS)
      for (i64 c = 0; c < columns; c += Vec::TILE_ROWS) {
        i64 count = min(Vec::TILE_ROWS, columns - c), r = max(0, c + 1 - edge), stop = min(rows, c + count - begin);
        if (r >= rows) break;
        if (r >= stop) continue;
        multiply_tile<Vec>(count, min(Vec::TILE_COLUMNS, vectors - d), weight + r * row + c, 1, row, x + r * width + d * N, width,
                    to + c * width + d * N, width, stop - r, true);
      }
  }

  // The same where some pairs are hidden and some numbers are not finite: what is hidden is not multiplied at all.
  struct Pair {
    const Block *q, *k;
    i64 begin, edge;
    bool documents;
  };
  INLINE bool sees(const Pair& pair, i64 r, i64 c) const {
    if (c < pair.begin + r || c >= pair.edge + r) return false;
    return !pair.documents || layout->document[offset + pair.q->start + r] == layout->document[pair.k->start + c];
  }
  // The order of the sums is that of the products above, so that what sees no such number does not change by a bit.
  void careful(const Pair& pair, const T* weight, i64 row, bool by_row, const T* x, i64 step, T* to) {
    const i64 many = by_row ? pair.q->size : pair.k->size, others = by_row ? pair.k->size : pair.q->size;
    for (i64 n = 0; n < many; n++, to += width) {
      memset(gathered, 0, sizeof(T) * width);
      for (i64 m = 0; m < others; m++) {
        const i64 r = by_row ? n : m, c = by_row ? m : n;
        if (!sees(pair, r, c)) continue;
        const V one = Vec::broadcast(weight[r * row + c]);
        for (i64 d = 0; d < width; d += N)
          Vec::store(gathered + d, Vec::load(gathered + d) + one * Vec::load(x + m * step + d));
      }
      for (i64 d = 0; d < width; d += N) Vec::store(to + d, Vec::load(to + d) + Vec::load(gathered + d));
    }
  }

  // -- biases

  void choose_head(i64 h) {
    if (call.table) table = (const T*)call.table + (call.table_heads > 1 ? h : 0) * call.table_size;
    if (call.rows) {
      const i64 of_head = b * call.rows_heads + (call.rows_heads > 1 ? h : 0);
      rows = (const T*)call.rows + of_head * call.queries * call.rows_size;
    }
    if (call.slope) {
      i64 at = (call.segment_heads > 1 ? h : 0) * call.segments;
      slope = (const T*)call.slope + at;
      intercept = (const T*)call.intercept + at;
      const i64 row = call.segment_heads > 1 ? h * call.feature_size : 0;
      if (plan.shared_bias) {
        level_table = (const T*)plan.shared_bias + row;
        if (plan.shared_slope) tilt = (const T*)plan.shared_slope + row;
      }
      for (i64 s = 0; in_pieces() && s < call.segments; s++) {
        pieces_a[s] = slope[s] * log2e;
        pieces_b[s] = intercept[s] * log2e;
      }
    }
  }
  bool of_distance() const { return call.table || call.slope; }
  bool biased() const { return of_distance() || call.rows; }

  // to[x] = by · from[furthest - x], the nearest entry past either end
  template <class X>
  static void slide(const X* from, i64 size, i64 furthest, i64 count, X by, X* to) {
    i64 x = 0, stop = clamp(furthest - (size - 1), 0, count);
    for (; x < stop; x++) to[x] = from[size - 1] * by;
    stop = clamp(furthest + 1, 0, count);
    for (const X* at = from + furthest; x < stop; x++) to[x] = at[-x] * by;
    for (; x < count; x++) to[x] = from[0] * by;
  }

  void choose_rows(const Block& q) {
    level_rows = plan.shared_bias;
    for (i64 r = 0; r < q.size && level_rows; r++) level_rows = exact_w_of(q.start + r) == plan.shared_scale;
  }

  // Four ways to a bias. By pair (lookup). A function of distance alone, which one window has for all rows: tables, or
  // pieces under one w (level). Pieces under a w that changes from query to query: in rows of segments (sloped), or,
  // where there are many, each pair's segment is searched for, many pairs at once (searched).
  void choose_bias(const Block& q, const Block& k) {
    const bool run = row_run = q.consecutive && k.consecutive;
    if (!of_distance()) return;
    level = run && level_rows;
    const i64 furthest = q.position + q.size - 1 - k.position, nearest = q.position - (k.position + k.size - 1);
    sloped = run && call.slope && !level && plan.segment_starts && furthest < UNREACHED && nearest > -UNREACHED;
    searched = run && call.slope && !level && !plan.segment_starts && plan.max_knots_per_cell <= 4;
    lookup = !run || (call.slope && !level && !sloped && !searched);
    if (lookup) return;
    const i64 count = q.size + k.size - 1 + N;
    if (call.table) slide(table, call.table_size, furthest - call.table_first, count, log2e, window);
    if (!call.slope) return;
    if (!level) {
      slide((const T*)call.distance_feature, call.feature_size, furthest, count, (T)1, window_u);
      if (searched) slide(plan.exact_feature, call.feature_size, furthest, count, 1.0, exact_window);
      return;
    }
    slide(level_table, call.feature_size, furthest, count, (T)1, call.table ? window_u : window);
    if (call.table)
      for (i64 n = 0; n < count; n++) window[n] += window_u[n];
    if (plan.shared_slope) slide(tilt, call.feature_size, furthest, count, (T)1, window_tilt);
  }

  const i64* positions_q() const { return call.position_q + b * call.position_q_stride; }
  const i64* positions_k() const { return call.position_k + b * call.position_k_stride; }
  i64 distance(i64 i, i64 j) const {
    return (call.position_q ? positions_q()[i] : offset + i) - (call.position_k ? positions_k()[j] : j);
  }
  T w_of(i64 i) const { return ((const T*)call.query_scale)[(call.query_scale_batch > 1 ? b : 0) * call.queries + i]; }
  double exact_w_of(i64 i) const { return plan.exact_query_scale[(call.query_scale_batch > 1 ? b : 0) * call.queries + i]; }
  const int32_t* bounds_of(i64 i) const {
    return plan.segment_starts + ((call.query_scale_batch > 1 ? b : 0) * call.queries + i) * (call.segments - 1);
  }
  INLINE i64 segment_of(double x) const {
    const double* knots = (const double*)call.knots;
    const i64 last = call.segments - 1;
    const double place = (x - plan.cell_low) * plan.cell_scale;
    i64 s = plan.search_cells[place > 0 ? place < (double)(plan.cells - 1) ? (i64)place : plan.cells - 1 : 0];
    while (s < last && knots[s] <= x) s++;
    return s;
  }

  // The segment of a distance, where it is not far from s.
  INLINE i64 segment_near(i64 distance, i64 s, const int32_t* bound) const {
    while (s > 0 && bound[s - 1] > distance) s--;
    while (s < call.segments - 1 && bound[s] <= distance) s++;
    return s;
  }
  // That of row r's first column, the furthest distance there.
  INLINE i64 segment_at(i64 r, i64 distance, const int32_t* bound) {
    return cursor[r] = (int32_t)segment_near(distance, cursor[r], bound);
  }
  // That of u[at] w, pair by pair, after one in segment s.
  INLINE i64 segment_looked_up(i64 i, i64 at, i64 s) const {
    return plan.segment_starts ? segment_near(at, s, bounds_of(i)) : segment_of(plan.exact_feature[at] * exact_w_of(i));
  }

  // Row r's segments, and what they add to its logits. Loops that a compiler turns into vectors.
  const T* search(const Block& q, i64 r, i64 seen) {
    const double exact_w = exact_w_of(q.start + r), low = plan.cell_low, scale = plan.cell_scale;
    const double most = (double)(plan.cells - 1);
    const T w = w_of(q.start + r);
    const T* __restrict u = window_u + (q.size - 1 - r);
    const double* __restrict exact_u = exact_window + (q.size - 1 - r);
    int32_t* __restrict s = segments + (met * BLOCK_Q + r) * BLOCK_K;
    T* __restrict to = row_bias;
    const int32_t* __restrict cell = plan.search_cells;
    const double* __restrict knot = knots;
    const T *a = pieces_a, *b = pieces_b;
    for (i64 c = 0; c < seen; c++) {
      double place = (exact_u[c] * exact_w - low) * scale;
      place = place > 0 ? place : 0;
      s[c] = (int32_t)(place < most ? place : most);
    }
    for (i64 c = 0; c < seen; c++) s[c] = cell[s[c]];
    for (i64 n = 0; n < plan.max_knots_per_cell; n++)
      for (i64 c = 0; c < seen; c++) {
        const double reached = knot[s[c]];
        s[c] += reached <= exact_u[c] * exact_w;
      }
    for (i64 c = 0; c < seen; c++) to[c] = a[s[c]] * (u[c] * w) + b[s[c]];
    if (call.table) {
      const T* t = window + (q.size - 1 - r);
      for (i64 c = 0; c < seen; c++) to[c] += t[c];
    }
    return row_bias;
  }

  // Row r's part in the gradients of pieces that were searched for.
  void change_searched(const Block& q, const Block& k, i64 r, i64 seen, double* dslope, double* dintercept,
                       double* dw) {
    const i64 i = q.start + r;
    const T w = w_of(i);
    const T *ds = change + N + r * ROW, *u = window_u + (q.size - 1 - r), *a = slope;
    const int32_t* s = segments + (met * BLOCK_Q + r) * BLOCK_K;
    T* __restrict to_u = spread + N + r * ROW;
    double sum_w[8] = {};
    for (i64 c = 0; c < seen; c++) to_u[c] = ds[c] * a[s[c]];
    for (i64 c = 0; c < seen; c++) sum_w[c % 8] += (double)to_u[c] * (double)u[c];
    for (i64 c = 0; c < seen; c++) to_u[c] *= w;
    for (i64 c = max(seen, 0); c < k.size + N; c++) to_u[c] = 0;
    for (i64 c = 0; c < seen; c++) {
      dslope[s[c]] += (double)ds[c] * (double)(u[c] * w);
      dintercept[s[c]] += (double)ds[c];
    }
    for (i64 n = 0; n < 8; n++) dw[i] += sum_w[n];
  }

  // What is added to row r's logits, in units of log 2; at least its first `seen` columns.
  INLINE const T* bias_of(const Block& q, const Block& k, i64 r, i64 seen) {
    if (!call.rows) return bias_of_distance(q, k, r, seen);
    const T* own = rows + (q.start + r) * call.rows_size;
    if (row_run) {
      slide(own, call.rows_size, q.position + r - k.position - call.rows_first, seen, log2e, own_bias);
    } else {
      for (i64 c = 0; c < seen; c++)
        own_bias[c] = own[column(q.start + r, k.start + c)] * log2e;
    }
    if (of_distance()) {
      const T* t = bias_of_distance(q, k, r, seen);
      for (i64 x = 0; x < seen; x += N) Vec::store(own_bias + x, Vec::load(own_bias + x) + Vec::load(t + x));
    }
    return own_bias;
  }
  T* drows_of(i64 h, i64 i) const {
    return (T*)call.grad_rows + ((b * call.heads + h) * call.queries + i) * call.rows_size;
  }
  // Where a query's own row has a key's distance.
  i64 column(i64 i, i64 j) const { return clamp(distance(i, j) - call.rows_first, 0, call.rows_size - 1); }

  INLINE const T* bias_of_distance(const Block& q, const Block& k, i64 r, i64 seen) {
    const i64 i = q.start + r;
    if (!lookup && !sloped && !searched) return window + (q.size - 1 - r);
    if (searched) return search(q, r, seen);
    if (lookup) {
      const T* u = (const T*)call.distance_feature;
      const T w = call.slope ? w_of(i) : 0;
      i64 s = 0;
      for (i64 c = 0; c < seen; c++) {
        i64 d = distance(i, k.start + c);
        T value = call.table ? table[clamp(d - call.table_first, 0, call.table_size - 1)] * log2e : 0;
        if (call.slope) {
          const i64 at = clamp(d, 0, call.feature_size - 1);
          const T x = u[at] * w;
          s = segment_looked_up(i, at, s);
          value += pieces_a[s] * x + pieces_b[s];
        }
        row_bias[c] = value;
      }
      return row_bias;
    }
    const i64 furthest = q.position + r - k.position;
    const int32_t* bound = bounds_of(i);
    const T* u = window_u + (q.size - 1 - r);
    const T w = w_of(i);
    i64 s = segment_at(r, furthest, bound);
    for (i64 c = 0;; s--) {
      i64 stop = s > 0 ? min(seen, furthest - bound[s - 1] + 1) : seen;
      V a = Vec::broadcast(pieces_a[s] * w), add = Vec::broadcast(pieces_b[s]);
      for (i64 x = c; x < stop; x += N) Vec::store(row_bias + x, a * Vec::load(u + x) + add);
      c = max(c, stop);
      if (c >= seen) break;
    }
    if (call.table) {
      const T* t = window + (q.size - 1 - r);
      for (i64 x = 0; x < seen; x += N) Vec::store(row_bias + x, Vec::load(row_bias + x) + Vec::load(t + x));
    }
    return row_bias;
  }

  // -- gradients of biases, from the change of the logits ("change", 0 where nothing is seen)

  // diagonal[x] = sum over r of from[r, x - (rows - 1 - r)]
  void sum_diagonals(const T* from, i64 rows, i64 columns) {
    for (i64 x = 0; x < rows + columns - 1; x += N) {
      i64 low = max(0, rows - x - N), high = min(rows, columns + rows - 1 - x);
      const T* at = from + x - (rows - 1) + low * (ROW + 1);
      Wide total = {};
      for (i64 r = low; r < high;) {
        V even = {}, odd = {};
        const i64 stop = min(r + 8, high);
        for (; r + 1 < stop; r += 2, at += 2 * (ROW + 1)) {
          even += Vec::load(at);
          odd += Vec::load(at + ROW + 1);
        }
        if (r < stop) {
          even += Vec::load(at);
          at += ROW + 1;
          r++;
        }
        total += WIDEN(even + odd);
      }
      add_wide<Vec>(diagonal + x, total, false);
    }
  }
  void add_diagonals(double* to, i64 size, i64 furthest, i64 count) const {
    i64 x = 0, stop = clamp(furthest - (size - 1), 0, count);
    for (; x < stop; x++) to[size - 1] += diagonal[x];
    stop = clamp(furthest + 1, 0, count);
    for (double* at = to + furthest; x < stop; x++) at[-x] += diagonal[x];
    for (; x < count; x++) to[0] += diagonal[x];
  }

  // Row r's part in the gradients of the pieces; spread = what goes to u.
  INLINE void change_pieces(const Block& q, const Block& k, i64 r, i64 seen, double* dw) {
    const i64 i = q.start + r, furthest = q.position + r - k.position;
    const int32_t* bound = bounds_of(i);
    const T* u = window_u + (q.size - 1 - r);
    const T* ds = change + N + r * ROW;
    T* to_u = spread + N + r * ROW;
    const T w = w_of(i);
    Wide sum_w = {};
    i64 s = segment_at(r, furthest, bound);
    touched_high = max(touched_high, s);
    for (i64 c = 0;; s--) {
      i64 stop = s > 0 ? min(seen, furthest - bound[s - 1] + 1) : seen;
      if (stop > c) {
        V zero = {}, one = {}, a = Vec::broadcast(slope[s] * w);
        i64 x = c;
        for (; x + N <= stop; x += N) {
          V change = Vec::load(ds + x);
          zero += change;
          one += change * Vec::load(u + x);
          Vec::store(to_u + x, a * change);
        }
        if (x < stop) {
          V change = Vec::load_first(ds + x, stop - x);
          zero += change;
          one += change * Vec::load_first(u + x, stop - x);
          Vec::store(to_u + x, a * change);
        }
        add_wide<Vec>(sum_b + s * N, WIDEN(zero));
        add_wide<Vec>(sum_a + s * N, WIDEN(one) * (double)w);
        sum_w += WIDEN(one) * (double)slope[s];
        c = stop;
      }
      if (c >= seen) break;
    }
    touched_low = min(touched_low, s);
    const V none = {};
    for (i64 x = seen; x < k.size + N; x += N) Vec::store(to_u + x, none);
    dw[i] += reduce_add_wide<Vec>(sum_w);
  }

  void change_looked_up(const Block& q, const Block& k, i64 r, i64 seen, double* dtable, double* dslope,
                        double* dintercept, double* du, double* dw) {
    const i64 i = q.start + r;
    const T* ds = change + N + r * ROW;
    const T* u = (const T*)call.distance_feature;
    const T w = call.slope ? w_of(i) : 0;
    double sum_w = 0;
    i64 s = 0;
    for (i64 c = 0; c < seen; c++) {
      const T one = ds[c];
      if (one == 0) continue;
      i64 d = distance(i, k.start + c);
      if (dtable) dtable[clamp(d - call.table_first, 0, call.table_size - 1)] += (double)one;
      if (dslope) {
        i64 at = clamp(d, 0, call.feature_size - 1);
        const T x = u[at] * w;
        s = segment_looked_up(i, at, s);
        dslope[s] += (double)one * (double)x;
        dintercept[s] += (double)one;
        du[at] += (double)one * (double)slope[s] * (double)w;
        sum_w += (double)one * (double)slope[s] * (double)u[at];
      }
    }
    if (dslope) dw[i] += sum_w;
  }

  // The sum of some of a row's changes; past the columns that it sees they are 0.
  static INLINE T sum_of(const T* from, i64 count) {
    V sum = {};
    for (i64 x = 0; x < count; x += N) sum += Vec::load_first(from + x, min(N, count - x));
    return Vec::reduce_add(sum);
  }

  void change_rows(const Block& q, const Block& k, const Pair& pair, i64 h) const {
    const i64 size = call.rows_size;
    for (i64 r = 0; r < q.size; r++) {
      const i64 seen = seen_of(pair, r), i = q.start + r;
      const T* __restrict ds = change + N + r * ROW;
      T* __restrict to = drows_of(h, i);
      if (row_run) {
        const i64 furthest = q.position + r - k.position - call.rows_first;
        const i64 far = clamp(furthest - (size - 1), 0, seen), near = clamp(furthest + 1, 0, seen);
        to[size - 1] += sum_of(ds, far);
        for (i64 c = far; c < near; c++) to[furthest - c] += ds[c];
        to[0] += sum_of(ds + near, seen - near);
      } else {
        double far = 0, near = 0;
        for (i64 c = 0; c < seen; c++) {
          const i64 at = column(i, k.start + c);
          if (at == 0)
            near += (double)ds[c];
          else if (at == size - 1)
            far += (double)ds[c];
          else
            to[at] += ds[c];
        }
        to[0] += (T)near;
        to[size - 1] += (T)far;
      }
    }
  }

  void change_bias(const Block& q, const Block& k, const Pair& pair, i64 h) {
    double *dtable = nullptr, *dslope = nullptr, *dintercept = nullptr, *du = nullptr, *dw = nullptr;
    const i64 of_head = b * call.heads + h;
    const i64 of_pieces = call.segment_heads > 1 ? of_head : unit;
    if (plan.grad_table) dtable = plan.grad_table + (call.table_heads > 1 ? of_head : unit) * call.table_size;
    if (plan.grad_query_scale) dw = plan.grad_query_scale + unit * call.queries;
    if (plan.grad_slope) {
      dslope = plan.grad_slope + of_pieces * call.segments;
      dintercept = plan.grad_intercept + of_pieces * call.segments;
      du = plan.grad_feature + unit * call.feature_size;
    }
    if (lookup) {
      for (i64 r = 0; r < q.size; r++)
        change_looked_up(q, k, r, seen_of(pair, r), dtable, dslope, dintercept, du, dw);
      return;
    }
    const i64 furthest = q.position + q.size - 1 - k.position, count = q.size + k.size - 1;
    if (dtable || (level && dw)) sum_diagonals(change + N, q.size, k.size);
    if (dtable) add_diagonals(dtable, call.table_size, furthest - call.table_first, count);
    if (!dw) return;
    if (level) {
      add_diagonals(plan.dS_by_distance + of_pieces * call.feature_size, call.feature_size, furthest, count);
      for (i64 r = 0; r < q.size; r++) {
        const T *ds = change + N + r * ROW, *by = window_tilt + (q.size - 1 - r);
        const i64 seen = seen_of(pair, r);
        V sum = {};
        for (i64 c = 0; c < seen; c += N) sum += Vec::load(ds + c) * Vec::load(by + c);
        if (seen > 0) dw[q.start + r] += reduce_add_wide<Vec>(WIDEN(sum));
      }
    }
    if (searched) {
      for (i64 r = 0; r < q.size; r++)
        change_searched(q, k, r, seen_of(pair, r), dslope, dintercept, dw);
      sum_diagonals(spread + N, q.size, k.size);
      add_diagonals(du, call.feature_size, furthest, count);
    }
    if (sloped) {
      touched_low = call.segments - 1;
      touched_high = 0;
      for (i64 r = 0; r < q.size; r++) {
        i64 seen = seen_of(pair, r);
        if (seen > 0)
          change_pieces(q, k, r, seen, dw);
        else
          memset(spread + N + r * ROW, 0, sizeof(T) * (ROW - N));
      }
      for (i64 s = touched_low; s <= touched_high; s++) {
        for (i64 x = 0; x < N; x++) {
          dslope[s] += sum_a[s * N + x];
          dintercept[s] += sum_b[s * N + x];
          sum_a[s * N + x] = sum_b[s * N + x] = 0;
        }
      }
      sum_diagonals(spread + N, q.size, k.size);
      add_diagonals(du, call.feature_size, furthest, count);
    }
  }

  // -- blocks

  // Whether any pair is visible; `past`: nor is any in later blocks of keys.
  bool meets(const Block& q, const Block& k, Pair& pair, bool& past) const {
    const i64 first = offset + q.start - k.start;  // the first query's own column
    pair.edge = call.causal ? first + 1 : call.window ? first + call.window : k.size;
    pair.begin = call.window ? first - call.window + 1 : -q.size;
    past = pair.edge + q.size <= 1;
    if (past || pair.begin >= k.size) return false;
    pair.q = &q;
    pair.k = &k;
    pair.documents = false;
    if (layout->document) {
      if (q.document_min > k.document_max || k.document_min > q.document_max) return false;
      pair.documents = !(q.document_min == q.document_max && k.document_min == k.document_max);
    }
    return true;
  }
  bool hides(const Pair& pair) const {
    return pair.documents || pair.edge < pair.k->size || pair.begin + pair.q->size > 1;
  }
  // Columns of row r before which nothing is hidden but by documents; 0 where it sees none of the block.
  i64 seen_of(const Pair& pair, i64 r) const {
    const i64 seen = clamp(pair.edge + r, 0, pair.k->size);
    return seen > pair.begin + r ? seen : 0;
  }
  // Whether no query of index `first` or later sees a block of keys: all are too far back.
  bool behind(const Block& k, i64 first) const { return call.window && k.start + k.size <= first - call.window + 1; }

  // Row r's logits with bias, -inf where hidden, from column `low` up to `wide` (whole vectors); their maximum.
  INLINE V finish_logits(const Pair& pair, T* s, i64 r, i64 seen, i64 low, i64 wide) {
    const T* t = biased() && seen > low ? bias_of(*pair.q, *pair.k, r, seen) : nullptr;
    V top = Vec::broadcast((T)-INFINITY);
    const i64 from = pair.begin + r;
    if (from <= low && !pair.documents) {
      // What is read back soon is stored in whole vectors at the places where it is read: anything else would wait.
      const i64 whole = max(seen / N * N, low);
      i64 x = low;
      if (t) {
        for (; x < whole; x += N) {
          V value = Vec::load(s + x) + Vec::load(t + x);
          Vec::store(s + x, value);
          top = Vec::maximum(top, value);
        }
      } else {
        for (; x < whole; x += N) top = Vec::maximum(top, Vec::load(s + x));
      }
      for (; x < wide; x += N) {
        V value = Vec::broadcast((T)-INFINITY);
        if (x < seen) value = Vec::keep_first(t ? Vec::load(s + x) + Vec::load(t + x) : Vec::load(s + x), seen - x, (T)-INFINITY);
        Vec::store(s + x, value);
        top = Vec::maximum(top, value);
      }
      return top;
    }
    if (t)
      for (i64 x = low; x < seen; x += N) Vec::store(s + x, Vec::load(s + x) + Vec::load(t + x));
    const V hidden = Vec::broadcast((T)-INFINITY);
    for (i64 x = max(seen, low); x < wide; x += N) Vec::store(s + x, hidden);
    for (i64 c = low; c < min(from, wide); c++) s[c] = (T)-INFINITY;
    if (pair.documents) {
      const int32_t own = layout->document[offset + pair.q->start + r], *code = layout->document + pair.k->start;
      for (i64 c = 0; c < seen; c++)
        if (code[c] != own) s[c] = (T)-INFINITY;
    }
    for (i64 x = low; x < wide; x += N) top = Vec::maximum(top, Vec::load(s + x));
    return top;
  }

  void softmax(const Pair& pair) {
    const i64 rows = pair.q->size, columns = pair.k->size;
    for (i64 r = 0; r < rows; r++) {
      // Of the rows that are multiplied at once: the last and the first.
      const i64 top_row = r / Vec::TILE_ROWS * Vec::TILE_ROWS, last = min(rows - 1, top_row + Vec::TILE_ROWS - 1);
      const i64 wide = round_up(clamp(pair.edge + last, 0, columns), N);
      const i64 low = clamp(pair.begin + top_row, 0, columns) / N * N;
      if (low >= wide) continue;
      T* s = logits + N + r * ROW;
      V top = finish_logits(pair, s, r, clamp(pair.edge + r, 0, columns), low, wide);
      const T before = peak[r], here = Vec::reduce_max(top), now = here > before ? here : before;
      const V by = Vec::broadcast(now == (T)-INFINITY ? 0 : now);
      V sum = {};
      for (i64 x = low; x < wide; x += N) {
        V weight = Vec::power_of_2(Vec::load(s + x) - by);
        Vec::store(s + x, weight);
        sum += weight;
      }
      if (now != before && before != (T)-INFINITY) {
        const T less = Vec::power_of_2(Vec::broadcast(before - now))[0];
        total[r] *= less;
        for (i64 d = 0; d < width; d += N) Vec::store(out + r * width + d, Vec::load(out + r * width + d) * less);
      }
      total[r] += Vec::reduce_add(sum);
      peak[r] = now;
    }
  }

  void forward() {
    keep_keys();
    for (i64 h = head_from; h < head_to; h++) {
      choose_head(h);
      i64 reached = k_from, reached_panel = 0;  // the first block of keys that is not behind the queries' windows
      for (i64 n = q_from; n < q_to; n++) {
        const Block& block = layout->q[n];
        choose_rows(block);
        read_queries(h, block);
        for (i64 r = 0; r < block.size; r++) {
          peak[r] = (T)-INFINITY;
          total[r] = 0;
        }
        memset(out, 0, sizeof(T) * block.size * width);
        if (call.statistics)
          memset(statistics_of(h, block.start), 0, sizeof(double) * (size_t)(block.size * (call.edges_size + 4)));
        for (; reached < k_to && behind(layout->k[reached], offset + block.start); reached++)
          reached_panel += round_up(layout->k[reached].size, PANEL) * width;
        bool past = false;
        for (i64 m = reached, panel = reached_panel; m < k_to && !past; m++) {
          const Block& keys = layout->k[m];
          Pair pair;
          if (meets(block, keys, pair, past)) {
            if (few())
              score_few(q, k_rows + keys.start * k_step, k_step, logits + N, block.size, keys.size, pair.begin);
            else
              score(q, panels_k + panel, logits + N, ROW, block.size, keys.size, pair.begin, pair.edge);
            choose_bias(block, keys);
            if (call.statistics) {
              observe(pair, h);
            } else {
              softmax(pair);
              const T* values = v_rows + keys.start * v_step;
              if (hides(pair) && !finite(m, v_rows, v_step))
                careful(pair, logits + N, ROW, true, values, v_step, out);
              else
                gather_rows(logits + N, values, v_step, out, block.size, keys.size, pair.begin, pair.edge);
            }
          }
          panel += round_up(keys.size, PANEL) * width;
        }
        for (i64 r = 0; r < block.size; r++) finish_row(h, block.start + r, r);
      }
    }
  }

  // -- statistics. Sums of weights that are not divided by their total yet: that is the sum of the bins.

  double* statistics_of(i64 h, i64 i) const {
    return call.statistics + ((b * call.heads + h) * call.queries + i) * (call.edges_size + 4);
  }
  // The number of edges up to a distance.
  i64 bin_of(i64 distance) const {
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
  static INLINE double mass(const T* weight, i64 from, i64 to) {
    V sum = {};
    for (; from + N <= to; from += N) sum += Vec::load(weight + from);
    if (from < to) sum += Vec::load_first(weight + from, to - from);
    return (double)Vec::reduce_add(sum);
  }

  // A pair of blocks: every weight goes to its bin, w log2 w to the entropy (both less the peak so far).
  void observe(const Pair& pair, i64 h) {
    const Block &q = *pair.q, &k = *pair.k;
    const i64 bins = call.edges_size + 1;
    const i64* rank = call.rank ? call.rank + b * call.rank_stride : nullptr;
    for (i64 r = 0; r < q.size; r++) {
      const i64 from = clamp(pair.begin + r, 0, k.size), seen = clamp(pair.edge + r, 0, k.size), i = q.start + r;
      if (seen <= from) continue;
      T* s = logits + N + r * ROW;
      double *row = statistics_of(h, i), *entropy = row + bins, *first = entropy + 1, *last = entropy + 2;
      V top = finish_logits(pair, s, r, seen, from / N * N, round_up(seen, N));
      const T before = peak[r], here = Vec::reduce_max(top), now = here > before ? here : before;
      if (now != before && before != (T)-INFINITY) {
        const double lower = (double)before - (double)now, less = exp2(lower);
        *entropy += lower * total_of(row);
        for (i64 n = 0; n < bins + 3; n++) row[n] *= less;
      }
      peak[r] = now;
      const V by = Vec::broadcast(now == (T)-INFINITY ? 0 : now), hidden = Vec::broadcast((T)-1000);
      V inner = {};
      for (i64 x = from / N * N; x < seen; x += N) {
        const V gap = Vec::load(s + x) - by, weight = Vec::power_of_2(gap);
        Vec::store(s + x, weight);
        inner += weight * Vec::maximum(gap, hidden);  // 0 times infinity is no number
      }
      *entropy += (double)Vec::reduce_add(inner);
      if (q.consecutive && k.consecutive) {
        const i64 furthest = q.position + r - k.position;
        i64 n = bin_of(furthest - from);
        for (i64 c = from; c < seen; n--) {
          const i64 stop = n > 0 ? clamp(furthest - call.edges[n - 1] + 1, c, seen) : seen;
          row[n] += mass(s, c, stop);
          c = stop;
        }
      } else {
        for (i64 c = from; c < seen; c++) row[bin_of(distance(i, k.start + c))] += (double)s[c];
      }
      const i64 own = rank ? rank[offset + i] : offset + i;
      if (!rank || k.document_min == k.document_max) {  // of one document: side by side
        const i64 at = rank ? rank[k.start] : k.start;
        const i64 start = clamp(own - call.last_keys + 1 - at, from, seen);
        *first += mass(s, from, clamp(call.first_keys - at, from, seen));
        *last += mass(s, start, clamp(own + 1 - at, start, seen));
      } else {
        for (i64 c = from; c < seen; c++) {
          const i64 at = rank[k.start + c];
          if (at < call.first_keys) *first += (double)s[c];
          if (at <= own && at > own - call.last_keys) *last += (double)s[c];
        }
      }
    }
  }
  double total_of(const double* row) const {
    double total = 0;
    for (i64 n = 0; n <= call.edges_size; n++) total += row[n];
    return total;
  }
  void finish_statistics(i64 h, i64 i) const {
    double *row = statistics_of(h, i), total = total_of(row);
    for (i64 n = 0; n < call.edges_size + 4; n++) row[n] /= total;
    double* entropy = row + call.edges_size + 1;
    *entropy = (log2(total) - *entropy) * 0.6931471805599453;
  }

  void finish_row(i64 h, i64 i, i64 r) {
    if (call.statistics) return finish_statistics(h, i);
    if (plan.split_keys) {
      T* to = (T*)plan.partial + ((unit * group + h - head_k * group) * call.queries + i) * (call.dim + 2);
      memcpy(to, out + r * width, sizeof(T) * (size_t)call.dim);
      to[call.dim] = peak[r];
      to[call.dim + 1] = total[r];
    } else {
      write_row(call.out, h, i, call.queries - 1, out + r * width, 1 / total[r]);
      const double lse = ((double)peak[r] + log2((double)total[r])) * 0.6931471805599453;
      ((T*)call.lse)[(b * call.heads + h) * call.queries + i] = (T)lse;
    }
  }

  // 0 in row r where nothing is seen, up to column `stop`.
  INLINE void hide(const Pair& pair, i64 r, T* x, i64 stop) const {
    const i64 columns = pair.k->size, seen = clamp(pair.edge + r, 0, columns), from = clamp(pair.begin + r, 0, columns);
    const V none = {};
    for (i64 c = seen; c < stop; c += N) Vec::store(x + c, none);
    for (i64 c = 0; c < from; c++) x[c] = 0;
    if (pair.documents) {
      const int32_t own = layout->document[offset + pair.q->start + r], *code = layout->document + pair.k->start;
      for (i64 c = 0; c < seen; c++)
        if (code[c] != own) x[c] = 0;
    }
  }
  // The whole vectors with what row r sees.
  struct Columns {
    i64 low, wide;
  };
  INLINE Columns columns_of(const Pair& pair, i64 r) const {
    const i64 columns = pair.k->size;
    return {clamp(pair.begin + r, 0, columns) / N * N, round_up(clamp(pair.edge + r, 0, columns), N)};
  }
  static bool hides_only_what_follows(const Pair& pair) { return !pair.documents && pair.begin + pair.q->size <= 1; }
  // Up to where any row sees that is multiplied together with row r, in rows or in columns.
  i64 reached_by_group(const Pair& pair, i64 r) const {
    return round_up(clamp(pair.edge + r + Vec::TILE_ROWS, 0, pair.k->size), N);
  }
  const T* bias_of_seen(const Pair& pair, i64 r) {
    const i64 seen = seen_of(pair, r);
    return biased() && seen ? bias_of(*pair.q, *pair.k, r, seen) : nullptr;
  }

  // logits -> weights, and change = weights · (change - delta): the gradient of the logits (in nats).
  void weights_and_change(const Pair& pair) {
    const bool plain = hides_only_what_follows(pair);
    for (i64 r = 0; r < pair.q->size; r++) {
      const Columns at = columns_of(pair, r);
      T *s = logits + N + r * ROW, *ds = change + N + r * ROW;
      const T* t = bias_of_seen(pair, r);
      const V by = Vec::broadcast(peak[r]), less = Vec::broadcast(delta[r]), times = Vec::broadcast(total[r]);
      if (plain) {
        const i64 seen = clamp(pair.edge + r, 0, pair.k->size), whole = seen / N * N;
        for (i64 x = 0; x < whole; x += N) {
          const V logit = t ? Vec::load(s + x) + Vec::load(t + x) : Vec::load(s + x);
          const V weight = Vec::power_of_2(logit - by) * times;
          Vec::store(s + x, weight);
          Vec::store(ds + x, weight * (Vec::load(ds + x) - less));
        }
        // Of the rows that are multiplied at once none sees more than this. Stored in whole vectors where they are read.
        const i64 stop = reached_by_group(pair, r);
        if (whole < stop) {
          const V logit = t && whole < seen ? Vec::load(s + whole) + Vec::load(t + whole) : Vec::load(s + whole);
          const V weight = Vec::keep_first(Vec::power_of_2(logit - by) * times, seen - whole, 0);
          Vec::store(s + whole, weight);
          Vec::store(ds + whole, Vec::keep_first(weight * (Vec::load(ds + whole) - less), seen - whole, 0));
        }
        for (i64 x = whole + N; x < stop; x += N) {
          Vec::store(s + x, V{});
          Vec::store(ds + x, V{});
        }
        continue;
      }
      if (t) {
        for (i64 x = at.low; x < at.wide; x += N) {
          V weight = Vec::power_of_2(Vec::load(s + x) + Vec::load(t + x) - by) * times;
          Vec::store(s + x, weight);
          Vec::store(ds + x, weight * (Vec::load(ds + x) - less));
        }
      } else {
        for (i64 x = at.low; x < at.wide; x += N) {
          V weight = Vec::power_of_2(Vec::load(s + x) - by) * times;
          Vec::store(s + x, weight);
          Vec::store(ds + x, weight * (Vec::load(ds + x) - less));
        }
      }
      hide(pair, r, s, pair.k->size + N);
      hide(pair, r, ds, pair.k->size + N);
    }
  }

  // The same in two steps, in what is kept. The first: logits -> weights; they and the changes make delta.
  void keep_weights(const Pair& pair) {
    const bool plain = hides_only_what_follows(pair);
    for (i64 r = 0; r < pair.q->size; r++) {
      const Columns at = columns_of(pair, r);
      T *s = weights_kept() + r * KEPT, *ds = change_kept() + r * KEPT;
      const T* t = bias_of_seen(pair, r);
      const V by = Vec::broadcast(peak[r]), times = Vec::broadcast(total[r]);
      V weights = {}, changes = {};
      if (t && plain) {
        const i64 seen = clamp(pair.edge + r, 0, pair.k->size), whole = seen / N * N;
        for (i64 x = 0; x < whole; x += N) {
          const V weight = Vec::power_of_2(Vec::load(s + x) + Vec::load(t + x) - by) * times;
          Vec::store(s + x, weight);
          weights += weight;
          changes += weight * Vec::load(ds + x);
        }
        const i64 stop = reached_by_group(pair, r);
        if (whole < seen) {
          const V weight = Vec::keep_first(Vec::power_of_2(Vec::load(s + whole) + Vec::load(t + whole) - by) * times, seen - whole, 0);
          Vec::store(s + whole, weight);
          weights += weight;
          changes += Vec::keep_first(weight * Vec::load(ds + whole), seen - whole, 0);
        }
        for (i64 x = round_up(seen, N); x < stop; x += N) Vec::store(s + x, V{});
      } else {
        for (i64 x = at.low; x < at.wide; x += N) {
          const V logit = t ? Vec::load(s + x) + Vec::load(t + x) : Vec::load(s + x);
          Vec::store(s + x, Vec::power_of_2(logit - by) * times);
        }
        hide(pair, r, s, round_up(pair.k->size, N));
        hide(pair, r, ds, round_up(pair.k->size, N));
        for (i64 x = at.low; x < at.wide; x += N) {
          weights += Vec::load(s + x);
          changes += Vec::load(s + x) * Vec::load(ds + x);
        }
      }
      add_wide<Vec>(row_weights + r * N, WIDEN(weights));
      add_wide<Vec>(row_changes + r * N, WIDEN(changes));
    }
  }
  T* weights_kept() const { return kept_weights + met * BLOCK_Q * KEPT; }
  T* change_kept() const { return kept_change + met * BLOCK_Q * KEPT; }
  // Between them: delta, with what a single number of its type loses of it.
  void find_delta(i64 rows) {
    for (i64 r = 0; r < rows; r++) {
      Wide weights, changes;
      memcpy(&weights, row_weights + r * N, sizeof weights);
      memcpy(&changes, row_changes + r * N, sizeof changes);
      const double all = reduce_add_wide<Vec>(weights), exact = all == 0 ? 0 : reduce_add_wide<Vec>(changes) / all;
      delta[r] = (T)exact;
      const double lost = exact - (double)delta[r];
      delta_rest[r] = lost == lost ? (T)lost : 0;
    }
  }
  // The second: change = weights · (change - delta).
  void change_of_kept(const Pair& pair) {
    const bool plain = hides_only_what_follows(pair);
    for (i64 r = 0; r < pair.q->size; r++) {
      const Columns at = columns_of(pair, r);
      const T *s = weights_kept() + r * KEPT, *from = change_kept() + r * KEPT;
      T* ds = change + N + r * ROW;
      const V less = Vec::broadcast(delta[r]), rest = Vec::broadcast(delta_rest[r]);
      if (plain) {  // zeros up to where sums along diagonals read
        const i64 seen = clamp(pair.edge + r, 0, pair.k->size), whole = seen / N * N;
        for (i64 x = 0; x < whole; x += N)
          Vec::store(ds + x, Vec::load(s + x) * (Vec::load(from + x) - less - rest));
        i64 x = whole;
        if (whole < seen) {
          Vec::store(ds + x, Vec::keep_first(Vec::load(s + x) * (Vec::load(from + x) - less - rest), seen - whole, 0));
          x += N;
        }
        for (; x < pair.k->size + N; x += N) Vec::store(ds + x, V{});
        continue;
      }
      for (i64 x = at.low; x < at.wide; x += N)
        Vec::store(ds + x, Vec::load(s + x) * (Vec::load(from + x) - less - rest));
      hide(pair, r, ds, pair.k->size + N);
    }
  }

  double dot(const T* a, const T* b) const {
    Wide sum = {};
    for (i64 d = 0; d < width; d += N) sum += WIDEN(Vec::load(a + d)) * WIDEN(Vec::load(b + d));
    return reduce_add_wide<Vec>(sum);
  }

  // What a pair of blocks gives to the gradients of values, and of everything else. `careful_of`: some numbers are not finite.
  void add_to_values(const Pair& pair, bool careful_of, const T* weights, i64 row) {
    T* to = sum_v + pair.k->start * width;
    if (careful_of)
      careful(pair, weights, row, false, grad, width, to);
    else
      gather_columns(weights, row, grad, to, pair.q->size, pair.k->size, pair.begin, pair.edge);
  }
  void add_to_others(const Pair& pair, bool careful_of, i64 h) {
    const Block &block = *pair.q, &keys = *pair.k;
    T* to = sum_k + keys.start * width;
    const T* rows = k_rows + keys.start * k_step;
    if (careful_of) {
      careful(pair, change + N, ROW, true, rows, k_step, dq);
      careful(pair, change + N, ROW, false, q, width, to);
    } else {
      gather_rows(change + N, rows, k_step, dq, block.size, keys.size, pair.begin, pair.edge);
      gather_columns(change + N, ROW, q, to, block.size, keys.size, pair.begin, pair.edge);
    }
    if (plan.grad_table || call.grad_slope) change_bias(block, keys, pair, h);
    if (call.grad_rows) change_rows(block, keys, pair, h);
  }

  // delta, where nothing is kept, and the logarithms of the rows' sums.
  void prepare_rows(const Block& block, i64 h) {
    const T* lse = (const T*)call.lse;
    if (kept()) {
      memset(row_weights, 0, sizeof(double) * BLOCK_Q * N);
      memset(row_changes, 0, sizeof(double) * BLOCK_Q * N);
    } else {
      read_rows(call.out, h, block.start, block.size, 1, out);
    }
    for (i64 r = 0; r < block.size; r++) {
      if (!kept()) delta[r] = (T)dot(grad + r * width, out + r * width);
      // In units of log 2, and what is lost by rounding it: an error here would be one of the whole row.
      const double exact = (double)lse[(b * call.heads + h) * call.queries + block.start + r] * 1.4426950408889634;
      peak[r] = (T)exact;
      const double lost = exact - (double)peak[r];
      total[r] = (T)(lost > -1 && lost < 1 ? exp2(-lost) : 1);
    }
  }

  // Whether rounding a row's lse to its type has cost more than 2^-12 of its weights: its logits are large.
  static bool coarse(double lse) { return isfinite(lse) && fabs(lse) * (sizeof(T) == 4 ? 0x1p-24 : 0x1p-53) > 0x1p-12; }
  // Peaks and totals of such rows from the very logits that the weights are made of, as in the forward pass. Otherwise a
  // weight could be any power of 2, infinity too.
  void refine_rows(const Block& block, i64 first, i64 panel) {
    T peaks[BLOCK_Q], totals[BLOCK_Q];
    bool any = false;
    for (i64 r = 0; r < block.size; r++) any |= coarse((double)peak[r]);
    if (!any) return;
    for (i64 r = 0; r < block.size; r++) {
      peaks[r] = peak[r];
      totals[r] = total[r];
      peak[r] = (T)-INFINITY;
      total[r] = 0;
    }
    bool past = false;
    met = 0;
    for (i64 m = first; m < k_to && !past; m++) {
      const Block& keys = layout->k[m];
      Pair pair;
      if (meets(block, keys, pair, past)) {
        score(q, panels_k + panel, logits + N, ROW, block.size, keys.size, pair.begin, pair.edge);
        choose_bias(block, keys);
        softmax(pair);  // of `out` nobody needs anything any more
        if (kept()) met++;
      }
      panel += round_up(keys.size, PANEL) * width;
    }
    for (i64 r = 0; r < block.size; r++) {
      const bool better = coarse((double)peaks[r]);
      peak[r] = better ? peak[r] : peaks[r];
      total[r] = better ? 1 / total[r] : totals[r];
    }
  }

  void backward() {
    keep_keys();
    memset(sum_k, 0, sizeof(T) * call.keys * width);
    memset(sum_v, 0, sizeof(T) * call.keys * width);
    for (i64 h = head_from; h < head_to; h++) {
      choose_head(h);
      i64 reached = k_from, reached_panel = 0;  // the first block of keys that is not behind the queries' windows
      for (i64 n = q_from; n < q_to; n++) {
        const Block& block = layout->q[n];
        choose_rows(block);
        bool finite_rows = read_queries(h, block);
        finite_rows &= read_rows(call.grad, h, block.start, block.size, 1, grad);
        prepare_rows(block, h);
        memset(dq, 0, sizeof(T) * block.size * width);
        if (call.grad_rows) memset(drows_of(h, block.start), 0, sizeof(T) * block.size * call.rows_size);
        for (; reached < k_to && behind(layout->k[reached], offset + block.start); reached++)
          reached_panel += round_up(layout->k[reached].size, PANEL) * width;
        refine_rows(block, reached, reached_panel);
        bool past = false;
        met = 0;
        for (i64 m = reached, panel = reached_panel; m < k_to && !past; m++) {
          const Block& keys = layout->k[m];
          Pair pair;
          if (meets(block, keys, pair, past)) {
            const bool careful_of = hides(pair) && !(finite_rows && finite(m, k_rows, k_step));
            T *to = kept() ? weights_kept() : logits + N, *to_change = kept() ? change_kept() : change + N;
            const i64 row = kept() ? (i64)KEPT : (i64)ROW;
            score(q, panels_k + panel, to, row, block.size, keys.size, pair.begin, pair.edge);
            score(grad, panels_v + panel, to_change, row, block.size, keys.size, pair.begin, pair.edge);
            choose_bias(block, keys);
            if (kept())
              keep_weights(pair);
            else
              weights_and_change(pair);
            add_to_values(pair, careful_of, to, row);
            if (!kept()) add_to_others(pair, careful_of, h);
            if (kept()) met++;
          }
          panel += round_up(keys.size, PANEL) * width;
        }
        if (kept()) {
          find_delta(block.size);
          past = false;
          met = 0;
          for (i64 m = reached; m < k_to && !past; m++) {
            const Block& keys = layout->k[m];
            Pair pair;
            if (!meets(block, keys, pair, past)) continue;
            choose_bias(block, keys);
            change_of_kept(pair);
            add_to_others(pair, hides(pair) && !(finite_rows && finite(m, k_rows, k_step)), h);
            met++;
          }
        }
        write_rows(call.dq, h, block.start, block.size, call.queries, dq, (T)call.scale, turns_q());
      }
    }
    if (plan.splits > 1) {
      T* to = (T*)plan.partial + unit * 2 * call.keys * call.dim;
      for (i64 t = 0; t < call.keys; t++, to += call.dim) {
        const T* row = sum_k + t * width;
        memcpy(to, turns_k() ? turned_back(turns_k(), t, row) : row, sizeof(T) * (size_t)call.dim);
      }
      for (i64 t = 0; t < call.keys; t++, to += call.dim) memcpy(to, sum_v + t * width, sizeof(T) * (size_t)call.dim);
      return;
    }
    write_rows(call.dk, head_k, 0, call.keys, call.keys, sum_k, ln2, turns_k());  // q has scale / ln 2 in it
    write_rows(call.dv, head_k, 0, call.keys, call.keys, sum_v, 1, nullptr);
  }

  void choose_part() {
    const i64 part = unit % plan.splits;
    b = unit / plan.splits / call.kv_heads;
    head_k = unit / plan.splits % call.kv_heads;
    layout = plan.sequences + b * plan.sequence_step;
    head_from = head_k * group;
    head_to = head_from + group;
    q_from = k_from = 0;
    q_to = layout->q_blocks;
    k_to = layout->k_blocks;
    if (call.backward) {
      if (plan.splits > 1) {
        head_from += part;
        head_to = head_from + 1;
      }
    } else if (plan.split_keys) {
      while (k_from < k_to && layout->k[k_from].start < part * KEYS_PER_SPLIT) k_from++;
      while (k_to > k_from && layout->k[k_to - 1].start >= (part + 1) * KEYS_PER_SPLIT) k_to--;
    } else {
      q_from = part * layout->q_blocks / plan.splits;
      q_to = (part + 1) * layout->q_blocks / plan.splits;
    }
  }

  void run() {
    offset = call.keys - call.queries;
    if (!prepare()) {
      *plan.out_of_memory = 1;
      return;
    }
    while ((unit = plan.next_unit(plan.queue)) >= 0) {
      choose_part();
      if (call.backward)
        backward();
      else if (q_from < q_to)
        forward();
    }
  }
};

}  // namespace

#define TARGET_RUN JOIN(lengthwise_run_, LENGTHWISE_TARGET)

extern "C" void TARGET_RUN(const Plan* plan) {
#if !defined(__AVX2__)
  if (plan->call->dtype == FLOAT64) return Unit<Float64Vec>(*plan).run();
#endif
  Unit<Float32Vec>(*plan).run();
}
