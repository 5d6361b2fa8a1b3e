// The functions that Python calls: a driver that plans a call, runs it on several threads, and combines the results.
//
// The unit of work is one sequence of the batch and one key head, with all query heads that share it. Where there are few such
// units, each is split. A unit owns every sum that it computes; sums over several units are formed at the end, in order. Where
// splitting changes sums, it depends on the shapes alone. So results do not depend on the number of threads.
//
// This file is compiled once. The kernel, attention.cpp, is compiled once for each target, and the driver chooses the best one
// that the processor supports. LENGTHWISE_AVX2 and LENGTHWISE_AVX512 say which of them there are.

#include <atomic>
#include <new>
#include <vector>

#include "convert.h"
#include "plan.h"
#include "reduce.h"
#include "segment_tables.h"
#include "sequence_blocks.h"
#include "threads.h"

extern "C" void lengthwise_run_portable(const Plan*);
extern "C" void lengthwise_run_avx2(const Plan*);
extern "C" void lengthwise_run_avx512(const Plan*);

namespace {

enum : i64 { PORTABLE = 0, AVX2 = 1, AVX512 = 2 };

i64 best_target() {
#if defined(LENGTHWISE_AVX2) && defined(LENGTHWISE_AVX512)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl"))
    return AVX512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return AVX2;
#endif
  return PORTABLE;
}

// The kernel of the call's target, or of the best target where the call names none that this processor supports.
void (*kernel_of(const Call& call))(const Plan*) {
#if defined(LENGTHWISE_AVX2) && defined(LENGTHWISE_AVX512)
  const i64 target = call.target < 0 || call.target > best_target() ? best_target() : call.target;
  if (call.dtype != FLOAT64 && target == AVX2) return lengthwise_run_avx2;
  if (call.dtype != FLOAT64 && target == AVX512) return lengthwise_run_avx512;
#else
  (void)call;
#endif
  return lengthwise_run_portable;
}

// Units of work. Each thread begins with a part of its own, because its cache may hold these sequences and heads from the operation
// or the pass before, and then takes what is left of the other parts.
struct UnitQueue {
  i64 units;
  std::vector<std::atomic<i64>> taken;  // of each part

  UnitQueue(i64 units, i64 parts) : units(units), taken((size_t)parts) {
    for (auto& count : taken) count = 0;
  }
};
struct Taker {
  UnitQueue* queue;
  i64 thread;
};
i64 take_unit(void* state) {
  const Taker* taker = (Taker*)state;
  UnitQueue& queue = *taker->queue;
  const i64 parts = (i64)queue.taken.size();
  for (i64 n = 0; n < parts; n++) {
    const i64 part = (taker->thread + n) % parts, end = (part + 1) * queue.units / parts;
    const i64 unit = part * queue.units / parts + queue.taken[(size_t)part].fetch_add(1);
    if (unit < end) return unit;
  }
  return -1;
}

// Into how many units each pair of a sequence and a key head is split, and by what. What is decided here changes the order of
// sums, so it must not depend on the number of threads.
void choose_splits(const Call& call, Plan& plan) {
  const bool few_units = call.batch * call.kv_heads < ENOUGH_UNITS;
  plan.splits = 1;
  if (call.backward) {
    if (few_units) plan.splits = call.heads / call.kv_heads;
  } else if (!call.statistics && (has_few_query_rows(call) || (few_units && call.queries <= BLOCK_Q))) {
    plan.splits = (call.keys + KEYS_PER_SPLIT - 1) / KEYS_PER_SPLIT;
    plan.split_keys = plan.splits > 1;
  } else if (few_units) {
    plan.splits = clamp(call.queries / (4 * BLOCK_Q), 1, ENOUGH_UNITS);
  }
}

// Replaces a float64 array by a copy in the compute dtype, unless that is float64 too.
template <class T>
void narrow(const void*& array, i64 count, std::vector<T>& copy) {
  if (sizeof(T) == sizeof(double)) return;
  const double* from = (const double*)array;
  copy.assign(from, from + count);
  copy.push_back(0);  // an empty vector has no data, and a null pointer would mean that there is no such tensor
  array = copy.data();
}

// The memory behind a Plan: all but the gradients' sums.
template <class T>
struct PlanStorage {
  std::vector<SequenceStorage> sequences;
  std::vector<SequenceBlocks> blocks;
  std::vector<int32_t> segment_starts, search_cells;
  SharedScaleTables<T> shared;
  std::vector<T> slope, intercept, feature, query_scale, partial, key_vector_sums, value_vector_sums;
};

template <class T>
void plan_sequences(const Call& call, Plan& plan, PlanStorage<T>& storage) {
  plan.sequence_step = call.position_q_batch > 1 || call.position_k_batch > 1 || call.documents_batch > 1;
  storage.sequences.resize((size_t)(plan.sequence_step ? call.batch : 1));
  for (size_t n = 0; n < storage.sequences.size(); n++)
    storage.blocks.push_back(cut_sequence(call, (i64)n, storage.sequences[n]));
  plan.sequences = storage.blocks.data();
}

// `call` is the thread's own copy of the parameters: its segments are narrowed to the compute dtype.
template <class T>
void plan_segments(const Call& original, Call& call, Plan& plan, PlanStorage<T>& storage) {
  plan.exact_feature = (const double*)original.distance_feature;
  plan.exact_query_scale = (const double*)original.query_scale;
  if (find_segment_starts(original, storage.segment_starts)) plan.segment_starts = storage.segment_starts.data();
  fill_search_cells(original, storage.search_cells, plan);
  measure_knot_spacing(original, plan);
  plan.search_cells = storage.search_cells.data();
  // For fewer queries the tables would cost more than they save.
  if (call.queries && !(plan.segment_starts && call.queries < 8)) fill_shared_scale_tables(original, plan, storage.shared);
  if (plan.all_share_scale) return;
  narrow(call.slope, call.slope_heads * call.segments, storage.slope);
  narrow(call.intercept, call.intercept_heads * call.segments, storage.intercept);
  narrow(call.distance_feature, call.feature_size, storage.feature);
  narrow(call.query_scale, call.query_scale_batch * call.queries, storage.query_scale);
}

// How many rows of sums the gradients of a bias have: one for each head of each sequence, or one for each unit.
struct SumRows {
  i64 table, segments;
};

// Gives every gradient of a bias that the call asks for its sums, which are 0 at first.
void allocate_gradient_sums(const Call& call, i64 units, const SumRows& rows, std::vector<double>& sums, Plan& plan) {
  const bool segments = call.grad_slope, other_scales = segments && !plan.all_share_scale;
  const struct {
    double** sums;
    i64 size;
  } gradients[] = {
      {&plan.grad_table, call.grad_table ? rows.table * call.table_size : 0},
      {&plan.grad_query_scale, segments ? units * call.queries : 0},
      {&plan.dS_by_distance, segments && plan.shared_bias ? rows.segments * call.feature_size : 0},
      {&plan.grad_lines, other_scales ? rows.segments * call.segments * 2 : 0},
      {&plan.grad_feature, other_scales ? units * call.feature_size : 0},
  };
  i64 total = 0;
  for (const auto& gradient : gradients) total += gradient.size;
  sums.assign((size_t)total, 0.0);
  total = 0;
  for (const auto& gradient : gradients) {
    if (gradient.size) *gradient.sums = sums.data() + total;
    total += gradient.size;
  }
}

// How many rows of sums the gradient of vectors has, as in SumRows.
i64 vector_sum_rows(const Call& call, const DistanceVectors& vectors, i64 units) {
  return vectors.heads > 1 ? call.batch * call.heads : units;
}

// Returns the sums of the gradient of vectors, which are 0 at first; null where the call does not ask for it.
template <class T>
void* allocate_vector_sums(const Call& call, const DistanceVectors& vectors, i64 units, std::vector<T>& sums) {
  if (!call.backward || !vectors.grad) return nullptr;
  sums.assign((size_t)(vector_sum_rows(call, vectors, units) * vectors.size * vectors.dim + 1), 0);
  return sums.data();
}

template <class T>
void reduce_vector_gradient(const Call& call, const DistanceVectors& vectors, i64 units, const void* sums, double factor) {
  if (sums)
    sum_rows<T>((const T*)sums, vector_sum_rows(call, vectors, units), vectors.size * vectors.dim,
                vectors.heads > 1 ? call.heads : 1, vectors.grad, factor);
}

// How many threads are worth waking for this call, in whose work a million multiplications take about 40 microseconds. Waking one
// takes 2 of them with OpenMP, whose threads are awake, and 10 in the pool. But on a busy machine the system may let a thread wait
// for milliseconds, and OpenMP waits for all of them. So a call with little work has one.
i64 useful_threads(const Call& call, i64 units) {
  const double work = (double)call.batch * call.heads * call.queries * call.keys * call.dim;
  return clamp((i64)(work / (call.threads.openmp ? 1e6 : 4e6)) + 1, 1, max(min(call.threads.count, units), 1));
}

// Runs the kernel on every thread. Returns false where one of them had no memory.
bool run_kernel(const Call& call, Plan& plan, i64 units) {
  const i64 threads = useful_threads(call, units);
  UnitQueue queue(units, threads);
  int out_of_memory = 0;
  plan.next_unit = take_unit;
  plan.queue = &queue;
  plan.out_of_memory = &out_of_memory;
  const auto work = [](void* state, i64 thread) {
    Plan plan = *(const Plan*)state;
    Taker taker = {(UnitQueue*)plan.queue, thread};
    plan.queue = &taker;
    kernel_of(*plan.call)(&plan);
  };
  run_on_threads(call.threads, threads, work, &plan);
  return !out_of_memory;
}

template <class T>
void reduce_bias_gradients(const Call& original, const Call& call, const Plan& plan, i64 units, const SumRows& rows,
                           const int32_t* shared_segment) {
  if (call.grad_table)
    sum_rows<T>(plan.grad_table, rows.table, call.table_size, call.table_heads > 1 ? call.heads : 1, call.grad_table);
  if (!call.grad_slope) return;
  const i64 heads = call.slope_heads > 1 ? call.heads : 1;
  // Where all queries share a scale, these sums have no rows, and the gradients become 0 here.
  std::vector<double> lines((size_t)(2 * heads * call.segments));
  sum_rows<double>(plan.grad_lines, plan.grad_lines ? rows.segments : 0, 2 * call.segments, heads, lines.data());
  for (i64 n = 0; n < heads * call.segments; n++) {
    ((double*)call.grad_slope)[n] = lines[(size_t)(2 * n)];
    ((double*)call.grad_intercept)[n] = lines[(size_t)(2 * n + 1)];
  }
  sum_rows<double>(plan.grad_feature, plan.grad_lines ? units : 0, call.feature_size, 1, call.grad_distance_feature);
  if (plan.shared_bias) add_shared_scale_gradients(original, plan, shared_segment, rows.segments, heads);
  if (call.query_scale_batch == 1) {
    sum_rows<double>(plan.grad_query_scale, units, call.queries, 1, call.grad_query_scale);
    return;
  }
  for (i64 b = 0; b < call.batch; b++)  // the units of one sequence follow each other
    sum_rows<double>(plan.grad_query_scale + b * units / call.batch * call.queries, units / call.batch, call.queries, 1,
                     (double*)call.grad_query_scale + b * call.queries);
}

template <class T>
int run_call(const Call& original) {
  Call call = original;
  Plan plan = {};
  PlanStorage<T> storage;
  plan.call = &call;
  choose_splits(call, plan);
  const i64 group = call.heads / call.kv_heads, units = call.batch * call.kv_heads * plan.splits;
  plan_sequences(call, plan, storage);
  if (call.slope) plan_segments(original, call, plan, storage);
  if (plan.split_keys) storage.partial.resize((size_t)(units * group * call.queries * (call.dim + 2)));
  if (call.backward && plan.splits > 1) storage.partial.resize((size_t)(units * 2 * call.keys * call.dim));
  plan.partial = storage.partial.data();
  const SumRows rows = {call.table_heads > 1 ? call.batch * call.heads : units,
                        call.slope_heads > 1 ? call.batch * call.heads : units};
  thread_local std::vector<double> sums;
  allocate_gradient_sums(call, units, rows, sums, plan);
  plan.grad_key_vectors = allocate_vector_sums(call, key_vectors_of(call), units, storage.key_vector_sums);
  plan.grad_value_vectors = allocate_vector_sums(call, value_vectors_of(call), units, storage.value_vector_sums);
  if (!run_kernel(call, plan, units)) return 1;
  if (plan.split_keys) combine_key_splits<T>(call, plan);
  if (call.backward && plan.splits > 1) combine_head_splits<T>(call, plan);
  reduce_bias_gradients<T>(original, call, plan, units, rows, storage.shared.segment.data());
  // The content was multiplied by 1 / ln 2.
  reduce_vector_gradient<T>(call, key_vectors_of(call), units, plan.grad_key_vectors, 0.6931471805599453);
  reduce_vector_gradient<T>(call, value_vectors_of(call), units, plan.grad_value_vectors, 1);
  if (sums.capacity() > LENGTHWISE_KEEP_BYTES / sizeof(double)) std::vector<double>().swap(sums);
  return 0;
}

}  // namespace

EXPORTED int lengthwise_attention(const Call* call) {
  try {
    return call->dtype == FLOAT64 ? run_call<double>(*call) : run_call<float>(*call);
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

EXPORTED int lengthwise_target() { return (int)best_target(); }
