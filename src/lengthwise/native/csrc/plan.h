// What the driver prepares once for a call, and every thread reads.
#pragma once

#include "params.h"

// A thread keeps up to this many bytes from one call to the next. Memory that is returned to the system has to be fetched again
// page by page.
#if !defined(LENGTHWISE_KEEP_BYTES)
#define LENGTHWISE_KEEP_BYTES (8 << 20)
#endif

// Tokens of a block of queries and of a block of keys. 96 is a multiple of TILE_ROWS on every target.
enum : i64 { BLOCK_Q = 96, BLOCK_K = 128 };
// Keys of one unit of work where units share the keys of a head, and the number of units from which on none has to be split.
enum : i64 { KEYS_PER_SPLIT = 512, ENOUGH_UNITS = 16 };
// The first distance of a segment that no distance reaches. Where every distance reaches it, it is -UNREACHED.
enum : i64 { UNREACHED = 1 << 30 };

// A block of queries or of keys.
struct Block {
  i64 start, size;
  i64 position;     // of its first token
  i64 consecutive;  // whether the positions of its tokens are consecutive
  int32_t document_min, document_max;
};

// A block of queries and a block of keys. Without documents, row r of the block sees the columns from begin + r up to, but not
// including, end + r.
struct BlockPair {
  const Block *q, *k;
  i64 begin, end;
  bool documents;  // whether some pairs are hidden because they belong to different documents
};

// One sequence of the batch, cut into blocks.
struct SequenceBlocks {
  const Block *q, *k;
  i64 q_blocks, k_blocks;
  i64 panel_tokens;         // the keys, with every block padded to whole panels
  const int32_t* document;  // the document of each key, numbered from 0; or null
};

struct Plan {
  const Call* call;  // the driver's copy, whose segments are narrowed to the compute dtype
  const SequenceBlocks* sequences;
  i64 sequence_step;  // 0 where all sequences of the batch have the same blocks, otherwise 1

  // Segments. If features and query scales are such that segments follow each other as distances grow, `segment_starts` holds
  // the first distance of every segment but the first: [query_scale_batch, queries, segments - 1]. Otherwise it is null, and
  // the segment of each x is searched for. The search begins at a cell, one of `cells` equal intervals of x: search_cells[n] is
  // the number of knots in the cells before the nth.
  const int32_t* segment_starts;
  const int32_t* search_cells;
  i64 cells, max_knots_per_cell;
  double cell_low, cell_scale;
  // Where knots are evenly spaced up to rounding, as those of a smooth activation: how many knots there are in one unit of x,
  // and how far from a knot, in distances between two knots, x has to be for arithmetic alone to say on which side it is.
  // Otherwise 0.
  double knot_density, knot_margin;
  const double *exact_feature, *exact_query_scale;  // in float64, where the call's copies are narrowed to float32

  // Queries whose scale is `shared_scale` have a segment bias that depends on the distance alone:
  //   shared_bias [slope_heads, feature_size], in units of log 2;
  //   shared_slope, its derivative by the query scale: slope times feature;
  //   dS_by_distance, the sums of dS at each distance, from which all gradients but that of the query scales follow.
  // Null where they are not needed.
  const void *shared_bias, *shared_slope;
  double* dS_by_distance;
  double shared_scale;
  bool all_share_scale;  // no query has another scale

  // Each pair of a sequence and a key head is split into `splits` units of work: by query heads (backward), by keys (forward,
  // with `split_keys`) or by blocks of queries (forward, otherwise).
  i64 splits, split_keys;
  // Results of the units, if they have to be combined. With `split_keys`: [units, group, queries, dim + 2], the outputs before
  // division, row_max and row_sum. With heads split: the gradients of keys and then of values, [units, 2, keys, dim].
  void* partial;
  // Sums of the gradients, one row for each unit (or for each head, where the bias has heads). `grad_lines` has those of slope
  // and intercept of each segment in turn.
  double *grad_table, *grad_lines, *grad_feature, *grad_query_scale;
  void *grad_key_vectors, *grad_value_vectors;  // in the compute dtype

  i64 (*next_unit)(void* queue);  // returns -1 when no unit is left
  void* queue;
  int* out_of_memory;  // set by a thread that had no memory
};

namespace {

// Whether a unit has so few rows of queries, as in decoding, that packing the keys into panels would cost more than it saves.
INLINE bool has_few_query_rows(const Call& call) { return call.queries * (call.heads / call.kv_heads) <= 4; }

// Whether any pair needs its own segment. Where all queries share a scale, their segments are a bias per distance instead.
INLINE bool evaluates_segments(const Plan& plan) { return plan.call->slope && !plan.all_share_scale; }

}  // namespace
