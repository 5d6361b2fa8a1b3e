// Made by attention/fused/call.py from the list of arguments in attention/fused/arguments.py, which explains them.
// params.h explains the fields that every call has.
#pragma once

struct Call {
  i64 batch;
  i64 heads;
  i64 queries;
  i64 keys;
  i64 dim;
  i64 kv_heads;
  i64 dtype;
  i64 target;
  i64 backward;
  Threads threads;
  TensorView q;
  TensorView k;
  TensorView v;
  TensorView out;
  TensorView grad;
  TensorView dq;
  TensorView dk;
  TensorView dv;
  void* lse;
  double* statistics;
  const i64* edges;
  const i64* rank;
  i64 edges_size;
  i64 rank_batch;
  i64 first_keys;
  i64 last_keys;
  const void* table;  // [1 or heads, table_size] in the compute dtype
  void* grad_table;
  i64 table_heads;
  i64 table_size;
  i64 table_first;
  const void* slope;  // [1 or heads, segments] in float64
  void* grad_slope;
  i64 slope_heads;
  i64 segments;
  const void* intercept;  // [1 or heads, segments] in float64
  void* grad_intercept;
  i64 intercept_heads;
  const void* knots;  // [segments - 1] in float64
  const void* distance_feature;  // [feature_size] in float64
  void* grad_distance_feature;
  i64 feature_size;
  const void* query_scale;  // [1 or batch, queries] in float64
  void* grad_query_scale;
  i64 query_scale_batch;
  const void* content;  // [batch, heads, queries, content_dim] in the compute dtype
  void* grad_content;
  i64 content_dim;
  const void* key_vectors;  // [1 or heads, key_vectors_size, content_dim] in the compute dtype
  void* grad_key_vectors;
  i64 key_vectors_heads;
  i64 key_vectors_size;
  i64 key_vectors_first;
  const void* value_vectors;  // [1 or heads, value_vectors_size, dim] in the compute dtype
  void* grad_value_vectors;
  i64 value_vectors_heads;
  i64 value_vectors_size;
  i64 value_vectors_first;
  const void* prefix_sum;  // [batch, 1 or heads, keys] in float64
  double* grad_prefix_sum;
  i64 prefix_sum_heads;
  const void* sink;  // [heads] in the compute dtype
  double* grad_sink;
  const i64* position_q;  // [1 or batch, queries]
  i64 position_q_batch;
  const i64* position_k;  // [1 or batch, keys]
  i64 position_k_batch;
  const i64* documents;  // [1 or batch, keys]
  i64 documents_batch;
  i64 causal;
  i64 window;
  double scale;
  const void* cos_sin_q;  // [1 or batch, queries, 2, pairs] in the compute dtype
  i64 cos_sin_q_batch;
  i64 pairs;
  const void* cos_sin_k;  // [1 or batch, keys, 2, pairs] in the compute dtype
  i64 cos_sin_k_batch;
  i64 interleaved;
};
