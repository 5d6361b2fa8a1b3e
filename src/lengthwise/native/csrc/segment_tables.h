// Tables that say which segment of a piecewise linear bias a pair is in. Part of driver.cpp.
//
// All decisions are made in float64, on the numbers that the caller passed.
#pragma once

#include <math.h>

#include <vector>

#include "plan.h"

namespace {

bool ascends(const double* x, i64 count) {
  for (i64 n = 1; n < count; n++)
    if (!(x[n] >= x[n - 1])) return false;
  return count < 1 || x[0] == x[0];
}

// Finds, for every query and knot, the first distance whose x reaches the knot. Returns false where x does not grow with the
// distance, or where there are so many segments that searching is faster.
bool find_segment_starts(const Call& call, std::vector<int32_t>& starts) {
  const double *feature = (const double*)call.distance_feature, *scale = (const double*)call.query_scale;
  const double* knots = (const double*)call.knots;
  const i64 rows = call.query_scale_batch * call.queries, count = call.segments - 1, size = call.feature_size;
  if (call.segments > 64 || size >= UNREACHED || !ascends(feature, size) || !ascends(knots, count)) return false;
  for (i64 r = 0; r < rows; r++)
    if (!(scale[r] >= 0)) return false;
  starts.resize((size_t)(rows * count + 1));
  for (i64 s = 0; s < count; s++) {
    i64 d = 0;
    for (i64 high = rows ? size : 0; d < high;) {  // for the first row, by bisection
      const i64 middle = (d + high) / 2;
      if (feature[middle] * scale[0] >= knots[s])
        high = middle;
      else
        d = middle + 1;
    }
    for (i64 r = 0; r < rows; r++) {  // for the others from the row before, because it moves little
      while (d < size && !(feature[d] * scale[r] >= knots[s])) d++;
      while (d > 0 && feature[d - 1] * scale[r] >= knots[s]) d--;
      starts[(size_t)(r * count + s)] = (int32_t)(d == 0 ? -UNREACHED : d == size ? UNREACHED : d);
    }
  }
  return true;
}

void fill_search_cells(const Call& call, std::vector<int32_t>& cells, Plan& plan) {
  const double* knots = (const double*)call.knots;
  const i64 count = call.segments - 1;
  plan.cells = 4 * call.segments + 1;
  cells.assign((size_t)plan.cells, 0);
  const double low = count ? knots[0] : 0, high = count ? knots[count - 1] : 0;
  double scale = high > low ? (double)(plan.cells - 1) / (high - low) : 0;
  if (!(scale < 1e30)) scale = 0;
  plan.cell_low = low;
  plan.cell_scale = scale;
  i64 knots_in_last = 0;
  for (i64 s = 0; s < count; s++) {  // a knot counts for the cells after its own
    const double place = (knots[s] - low) * scale;
    i64 cell = place > 0 ? place < (double)(plan.cells - 1) ? (i64)place : plan.cells - 1 : 0;
    if (cell + 1 < plan.cells)
      cells[(size_t)cell + 1]++;
    else
      knots_in_last++;
  }
  plan.max_knots_per_cell = knots_in_last;
  for (i64 n = 1; n < plan.cells; n++) plan.max_knots_per_cell = max(plan.max_knots_per_cell, cells[(size_t)n]);
  for (i64 n = 1; n < plan.cells; n++) cells[(size_t)n] += cells[(size_t)n - 1];
}

// Recognizes evenly spaced knots.
void measure_knot_spacing(const Call& call, Plan& plan) {
  const double* knots = (const double*)call.knots;
  const i64 count = call.segments - 1;
  if (count < 2) return;
  const double density = (double)(count - 1) / (knots[count - 1] - knots[0]);
  double off = 0;
  for (i64 s = 0; s < count; s++) {
    const double own = fabs((knots[s] - knots[0]) * density - (double)s);
    if (!(own < 1e-6)) return;
    off = own > off ? own : off;
  }
  plan.knot_density = density;
  const double largest = fmax(fabs(knots[0]), fabs(knots[count - 1]));
  plan.knot_margin = off + 1e-9 + 1e-14 * largest * density;  // the rounding of x and of the difference from the first knot
}

// The memory behind the shared_* members of a Plan.
template <class T>
struct SharedScaleTables {
  std::vector<int32_t> segment;  // of each distance
  std::vector<T> bias, slope;
};

// Fills the tables for queries that have the first query's scale. Segments are exact, as those of find_segment_starts.
template <class T>
void fill_shared_scale_tables(const Call& call, Plan& plan, SharedScaleTables<T>& tables) {
  const double *slope = (const double*)call.slope, *intercept = (const double*)call.intercept;
  const double *knots = (const double*)call.knots, *feature = (const double*)call.distance_feature;
  const double* scale = (const double*)call.query_scale;
  const i64 size = call.feature_size, last = call.segments - 1;
  plan.shared_scale = *scale;
  tables.segment.resize((size_t)size);
  tables.bias.resize((size_t)(call.slope_heads * size));
  if (call.grad_slope) tables.slope.resize(tables.bias.size());
  i64 s = 0;
  double before = -INFINITY;
  for (i64 d = 0; d < size; d++) {
    const double x = feature[d] * plan.shared_scale, place = (x - plan.cell_low) * plan.cell_scale;
    if (!(x >= before) || (s + 8 < last && knots[s + 8] <= x)) {  // x is not a little after the one before: begin at its cell
      s = plan.search_cells[place > 0 ? place < (double)(plan.cells - 1) ? (i64)place : plan.cells - 1 : 0];
      while (s > 0 && !(knots[s - 1] <= x)) s--;
    }
    before = x;
    while (s < last && knots[s] <= x) s++;
    tables.segment[(size_t)d] = (int32_t)s;
  }
  for (i64 h = 0; h < call.slope_heads; h++, slope += call.segments, intercept += call.segments)
    for (i64 d = 0; d < size; d++) {
      const i64 s = tables.segment[(size_t)d];
      const size_t n = (size_t)(h * size + d);
      tables.bias[n] = (T)((slope[s] * (feature[d] * plan.shared_scale) + intercept[s]) * 1.4426950408889634);
      if (call.grad_slope) tables.slope[n] = (T)(slope[s] * feature[d]);
    }
  plan.shared_bias = tables.bias.data();
  if (call.grad_slope) plan.shared_slope = tables.slope.data();
  bool all = !call.position_q && !call.position_k;
  for (i64 r = 0; r < call.query_scale_batch * call.queries && all; r++) all = scale[r] == plan.shared_scale;
  plan.all_share_scale = all;
}

// Adds what the sums of dS at each distance contribute to the gradients of the segments and the features. Their part in the
// gradient of the query scales has been added row by row.
void add_shared_scale_gradients(const Call& call, const Plan& plan, const int32_t* segment, i64 rows, i64 heads) {
  const double *feature = (const double*)call.distance_feature, *slope = (const double*)call.slope;
  double *grad_slope = (double*)call.grad_slope, *grad_intercept = (double*)call.grad_intercept;
  double* grad_feature = (double*)call.grad_distance_feature;
  for (i64 h = 0; h < heads; h++, slope += call.segments, grad_slope += call.segments, grad_intercept += call.segments)
    for (i64 d = 0; d < call.feature_size; d++) {
      const i64 s = segment[d];
      double sum = 0;
      for (i64 row = h; row < rows; row += heads) sum += plan.dS_by_distance[row * call.feature_size + d];
      grad_intercept[s] += sum;
      grad_slope[s] += sum * (feature[d] * plan.shared_scale);
      grad_feature[d] += sum * slope[s] * plan.shared_scale;
    }
}

}  // namespace
