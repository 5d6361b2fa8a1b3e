// The state of one thread, and the list of its functions. The heading of each group names the file that defines it.
#pragma once

#include "convert.h"
#include "plan.h"
#include "scratch.h"
#include "vec.h"

// Rows of a tensor that are prefetched before they are needed.
enum : i64 { PREFETCH_ROWS = 6 };

namespace {

// How the part of the bias that depends on distances is computed for a pair of blocks.
enum class BiasPath {
  DIAGONAL,        // one row of bias for all diagonals: a table, or segments whose queries share a scale
  SEGMENT_RUNS,    // few segments: in each row, the pairs of one segment are contiguous
  SEGMENT_SEARCH,  // many segments: each pair's segment is searched for, many pairs at once
  PER_PAIR,        // positions are not consecutive, or knots lie too close together: everything is looked up pair by pair
};

// One of the two tables of vectors, and what depends on the head and the pair of blocks.
template <class Vec>
struct RelativeVectors {
  const DistanceVectors vectors;
  i64 width;  // their dim, rounded up to whole vectors
  typename ::Scratch<Vec>::VectorBuffers& buffers;
  const typename Vec::T* table = nullptr;  // of the head that the buffers hold
  bool finite = true;                      // whether they are
  bool is_skewed = false;                  // whether products of the pair are skewed: see relative.h
  i64 first_diagonal = 0;                  // the row of the buffers that belongs to the pair's first diagonal
  i64 low = 0, high = 0;                   // the diagonals whose vectors are not those of an end of the table
};

template <class Vec>
struct Worker {
  typedef typename Vec::T T;
  typedef typename Vec::V V;
  typedef typename Vec::Wide Wide;
  typedef ::Scratch<Vec> Scratch;
  typedef RelativeVectors<Vec> Relative;
  enum : i64 { N = Vec::N, PANEL = Scratch::PANEL, ROW = Scratch::ROW, SAVED_ROW = Scratch::SAVED_ROW };
  // Of relative.h. A row of weights has N zeros before it.
  enum : i64 { PADDING = Scratch::DIAGONALS };
  enum : i64 { SKEW_ROWS = (i64)Vec::TILE_ROWS < (i64)Vec::N ? (i64)Vec::TILE_ROWS : (i64)Vec::N };

  const Plan& plan;
  const Call& call;
  const i64 width, vectors;  // the head dim, rounded up to whole vectors: in numbers, and in vectors
  const i64 group;           // query heads of a key head
  const i64 query_offset;    // the index of the first query among the keys
  const T log2e = (T)1.4426950408889634, ln2 = (T)0.6931471805599453;
  RowBiases<Vec> row_biases;
  Scratch scratch;

  // The unit of work: sequence `b` and a key head with its query heads and all blocks, or a part of them.
  i64 unit, b, kv_head;
  i64 head_begin, head_end, q_begin, q_end, k_begin, k_end;
  const SequenceBlocks* sequence;
  const T *k_rows, *v_rows;  // row 0 of the keys and of the values: in the tensor or in a copy
  i64 k_stride, v_stride;

  // The query head.
  const T *table, *slope, *intercept, *shared_bias, *shared_slope;
  Relative key_vectors, value_vectors;

  // The block of queries, and its pair with a block of keys.
  bool shares_scale;           // all queries of the block have the plan's shared scale
  bool consecutive;            // both blocks have consecutive positions
  BiasPath bias_path;          // set where the bias depends on distances
  bool content_is_finite;      // set where there are vectors that are multiplied by queries
  i64 visible_index = 0;       // where P is saved: which of the visible blocks of keys this is
  i64 max_visible_blocks = 0;  // where P is saved: the largest number of them that any block of queries has
  i64 first_touched_segment, last_touched_segment;

  // ---- attention.cpp

  explicit Worker(const Plan& plan)
      : plan(plan), call(*plan.call), width(round_up(plan.call->dim, N)), vectors(width / N),
        group(plan.call->heads / plan.call->kv_heads), query_offset(plan.call->keys - plan.call->queries), row_biases(call),
        key_vectors{key_vectors_of(call), round_up(call.content_dim, N), scratch.key_vectors},
        value_vectors{value_vectors_of(call), width, scratch.value_vectors} {}
  ~Worker() {
    if (thread_memory.size > LENGTHWISE_KEEP_BYTES) thread_memory.release();
  }
  void run();
  bool prepare_scratch();
  void select_unit();

  bool has_distance_bias() const { return call.table || call.slope; }
  bool has_bias() const { return has_distance_bias() || row_biases.exist; }
  // The logit of the head's sink in units of log 2; -infinity where there is none, or where another unit counts it.
  T sink_logit(i64 h) const {
    const bool counted = call.sink && !(plan.split_keys && unit % plan.splits);
    return counted ? ((const T*)call.sink)[h] * log2e : (T)-INFINITY;
  }
  // Whether backward saves P and dP of a block of queries: see DELTA in attention.cpp.
  bool saves_weights() const {
    // The output of half precision is rounded too coarsely to compute delta from it.
    const bool is_half = call.dtype == BFLOAT16 || call.dtype == FLOAT16;
    return call.backward && (plan.grad_table || call.grad_slope || call.grad_content || row_biases.learn || is_half);
  }
  // Whether q k^T reads the keys in place instead of in panels.
  bool multiplies_in_place() const { return !call.backward && has_few_query_rows(call); }

  // ---- tensors.h

  bool rows_in_place() const;
  const char* token(const TensorView& view, i64 head, i64 t) const;
  void prefetch(const TensorView& view, i64 head, i64 t) const;
  bool load_rows(const TensorView& view, i64 head, i64 start, i64 count, T factor, T* to) const;
  bool load_queries(i64 head, const Block& block) const;
  void store_row(const TensorView& view, i64 head, i64 t, i64 last, const T* from, T factor) const;
  void store_rows(const TensorView& view, i64 head, i64 start, i64 count, i64 tokens, const T* from, T factor,
                  const T* cos_sin) const;
  void load_keys();
  void load_key_block(const TensorView& view, const Block& block, T* copy, const T*& rows, i64& stride, const T* cos_sin) const;
  void pack_panels(const T* rows, i64 stride, i64 count, T* to) const;
  bool is_finite(i64 k_block, const T* rows, i64 stride);

  // ---- rotary.h

  const T* cos_sin_of(const void* all, i64 batch, i64 tokens) const {
    return all ? (const T*)all + start_of_sequence(batch, b, tokens * 2 * call.pairs) : nullptr;
  }
  const T* cos_sin_q() const { return cos_sin_of(call.cos_sin_q, call.cos_sin_q_batch, call.queries); }
  const T* cos_sin_k() const { return cos_sin_of(call.cos_sin_k, call.cos_sin_k_batch, call.keys); }
  void rotate(const T* cos, T sign, const T* from, T factor, T* to) const;
  bool load_rotated_rows(const TensorView& view, i64 head, i64 start, i64 count, T factor, T* to, const T* cos_sin) const;
  const T* rotate_back(const T* cos_sin, i64 t, const T* from) const;

  // ---- mask.h

  bool block_is_visible(const Block& q, const Block& k, BlockPair& pair, bool& past_last) const;
  bool hides_pairs(const BlockPair& pair) const;
  static bool hides_only_later_keys(const BlockPair& pair);
  bool is_before_window(const Block& k, i64 first_query) const;
  bool pair_is_visible(const BlockPair& pair, i64 r, i64 c) const;
  i64 visible_columns(const BlockPair& pair, i64 r) const;
  i64 count_visible_blocks();
  void clear_hidden(const BlockPair& pair, i64 r, T* x, i64 stop) const;

  // ---- gemm.h

  void multiply_panels(const T* a, const T* panel, T* to, i64 stride, i64 rows, i64 columns, i64 begin, i64 end) const;
  void multiply_rows(const T* a, const T* keys, i64 stride, T* to, i64 rows, i64 columns, i64 begin) const;
  void accumulate_rows(const T* weight, const T* x, i64 stride, T* to, i64 rows, i64 columns, i64 begin, i64 end) const;
  void accumulate_columns(const T* weight, i64 weight_row, const T* x, T* to, i64 rows, i64 columns, i64 begin, i64 end) const;
  void masked_gemm(const BlockPair& pair, const T* weight, i64 weight_row, bool by_row, const T* x, i64 stride, T* to);

  // ---- bias.h

  const T* dS_row(i64 r) const { return scratch.dS + N + r * ROW; }  // row r of the block of queries
  void select_head(i64 h);
  void check_shared_scale(const Block& q);
  void prepare_bias(const Block& q, const Block& k);
  i64 distance(i64 i, i64 j) const;
  const T* bias_row(const Block& q, const Block& k, i64 r, i64 visible);
  const T* distance_bias_row(const Block& q, const Block& k, i64 r, i64 visible);
  const T* per_pair_bias(const Block& q, const Block& k, i64 r, i64 visible);
  void accumulate_bias_gradients(const BlockPair& pair, i64 h);
  void accumulate_distance_gradients(const BlockPair& pair, i64 h);
  struct BiasGradients {  // the sums of the unit at hand; null where a gradient is not asked for
    double *table, *lines, *feature, *query_scale, *dS_by_distance;
  };
  BiasGradients bias_gradients(i64 h) const;
  void accumulate_per_pair(const BlockPair& pair, i64 r, const BiasGradients& grad);

  // ---- bias_table.h

  void sum_diagonals(const T* from, i64 rows, i64 columns);
  void add_diagonals(double* to, i64 size, i64 furthest, i64 count) const;

  // ---- bias_piecewise.h

  T query_scale(i64 i) const { return ((const T*)call.query_scale)[query_scale_index(i)]; }
  double exact_query_scale(i64 i) const { return plan.exact_query_scale[query_scale_index(i)]; }
  i64 query_scale_index(i64 i) const { return (call.query_scale_batch > 1 ? b : 0) * call.queries + i; }
  const int32_t* segment_starts(i64 i) const { return plan.segment_starts + query_scale_index(i) * (call.segments - 1); }
  i64 find_segment(double x) const;
  void find_segments(const double* feature, double scale, i64 count, int32_t* s) const;
  void find_evenly_spaced_segments(const double* feature, double scale, i64 count, int32_t* s) const;
  i64 find_segment_from(i64 distance, i64 s, const int32_t* starts) const;
  i64 first_segment(i64 r, i64 furthest, const int32_t* starts);
  i64 segment_of_pair(i64 i, i64 feature_index, i64 s) const;
  const T* segment_runs_bias(const Block& q, const Block& k, i64 r, i64 visible);
  const T* segment_search_bias(const Block& q, i64 r, i64 visible);
  void accumulate_segment_runs(const BlockPair& pair, const BiasGradients& grad);
  void accumulate_segment_runs_row(const BlockPair& pair, i64 r, i64 visible, double* grad_query_scale);
  void accumulate_segment_search(const BlockPair& pair, i64 r, const BiasGradients& grad);
  void accumulate_shared_scale(const BlockPair& pair, const BiasGradients& grad);

  // ---- relative.h

  struct SkewedTile {
    i64 rows, diagonals;                // how many
    i64 first_column, first_diagonal;  // where its first row begins
  };
  bool copy_vectors(Relative& relative, i64 h);
  void select_relative_head(Relative& relative, i64 h);
  void store_relative_gradient(const Relative& relative, void* sums, i64 h) const;
  void prepare_relative(Relative& relative, const Block& q, const Block& k) const;
  i64 vector_of_pair(const Relative& relative, i64 i, i64 j) const;
  SkewedTile skewed_tile(const BlockPair& pair, const Relative& relative, i64 r) const;
  struct EndSums {
    T before, after;
  };
  EndSums sum_ends(const BlockPair& pair, const Relative& relative, const T* weight, i64 r) const;
  static i64 column_of(const BlockPair& pair, i64 diagonal, i64 r);
  T end_product(const Relative& relative, i64 vector, const T* row) const;
  void add_products_per_pair(const BlockPair& pair, const Relative& relative, const T* a, T* to, i64 stride) const;
  void add_relative_products(const BlockPair& pair, const Relative& relative, const T* a, T* to, i64 stride) const;
  const T* visible_weights(const BlockPair& pair, const T* P, i64 stride) const;
  void accumulate_relative_rows(const BlockPair& pair, const Relative& relative, const T* weight, T* to);
  void accumulate_relative_gradient(const BlockPair& pair, const Relative& relative, const T* weight, const T* x,
                                    bool finite) const;
  i64 content_row(i64 h, i64 i) const;
  bool load_content(i64 h, const Block& block) const;
  void store_content_gradient(i64 h, const Block& block) const;

  // ---- softmax.h

  V finish_logits(const BlockPair& pair, T* s, i64 r, i64 visible, i64 low, i64 high);
  void online_softmax(const BlockPair& pair);
  const T* visible_bias_row(const BlockPair& pair, i64 r);
  i64 end_of_tile(const BlockPair& pair, i64 r) const;
  struct Columns {  // the whole vectors that hold what a row sees
    i64 low, high;
  };
  Columns columns_of(const BlockPair& pair, i64 r) const;
  void compute_P_and_dS(const BlockPair& pair);
  void save_P(const BlockPair& pair);
  void compute_delta(i64 h, i64 rows);
  void compute_dS_from_saved(const BlockPair& pair);
  T* saved_P() const { return scratch.saved_P + N + visible_index * BLOCK_Q * SAVED_ROW; }
  T* saved_dP() const { return scratch.saved_dP + N + visible_index * BLOCK_Q * SAVED_ROW; }

  // ---- forward.h

  void forward();
  void select_head_and_vectors(i64 h);
  void start_rows(i64 h, i64 rows);
  void compute_logits(const BlockPair& pair, const T* panel, T* to, i64 stride);
  void finish_row(i64 h, i64 i, i64 r);

  // ---- statistics.h

  double* statistics(i64 h, i64 i) const;
  i64 bin_of(i64 distance) const;
  double sum_of_bins(const double* row) const;
  void accumulate_statistics(const BlockPair& pair, i64 h);
  void finish_statistics(i64 h, i64 i, double sink) const;

  // ---- backward.h

  void backward();
  void backward_block(i64 h, const Block& block, i64 first_k_block, i64 first_panel);
  double dot(const T* x, const T* y) const;
  void load_row_sums(const Block& block, i64 h);
  double sink_weight(i64 h, i64 r) const;
  void accumulate_grad_sink(i64 h, i64 rows) const;
  static bool is_coarse(double lse);
  void refine_row_sums(i64 h, const Block& block, i64 first_k_block, i64 first_panel);
  void accumulate_dv(const BlockPair& pair, bool masked, const T* P, i64 P_row);
  void accumulate_dq_dk(const BlockPair& pair, bool masked, i64 h);
  void store_key_gradients();
};

}  // namespace
