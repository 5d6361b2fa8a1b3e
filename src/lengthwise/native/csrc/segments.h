// Piecewise linear functions of one number, as FIRE has them: computed in one call in place of dozens of small tensor
// operations.
//
// An MLP has `layers` layers. `widths` are its layers + 1 sizes, the first of them 1. `parameters` are weight [out, in] and
// bias [out] of each layer in turn, all float32 (`single`) or all float64. There is a ReLU between layers, and one after the
// last layer if `final`. On [0, 1] such a function is linear in each of a number of segments, whose borders inside (0, 1) are
// its knots.
#pragma once

#include "integers.h"

// Returns the number of segments, or -1 when memory ran out. If there are at most `room`, fills slope and intercept [heads,
// segments], knots [segments - 1], and `gates` [segments, widths of all layers with a ReLU], which are 1 where the ReLU of a
// neuron is open. All without gaps.
EXPORTED i64 lengthwise_pieces(i64 layers, const i64* widths, const void* const* parameters, i64 single, i64 final, i64 room,
                               double* slope, double* intercept, double* knots, uint8_t* gates);

// Computes the gradient of every parameter, in its dtype, from those of slope and intercept. Returns 0, or 1 when memory ran
// out.
EXPORTED i64 lengthwise_pieces_backward(i64 layers, const i64* widths, const void* const* parameters, i64 single, i64 final,
                                        i64 segments, const double* grad_slope, const double* grad_intercept,
                                        const uint8_t* gates, void* const* gradients);

// Computes, for every distance and every query,
//     feature = log1p(|c| distance) / unit  and  query_scale = unit / (log1p(|c| max(threshold, query)) + eps),
// with unit = log1p(|c| L). The unit and the divisor count as 1 where they are not positive. `size` is |c|.
EXPORTED void lengthwise_fire_tables(double size, double threshold, double L, double eps, const i64* distance, i64 distances,
                                     const i64* query, i64 queries, double* feature, double* query_scale);

// Computes the gradients of FIRE's |c| (to[0]) and of its threshold |multiplier| L (to[1]) from those of feature and query_scale.
EXPORTED void lengthwise_fire_tables_backward(double size, double threshold, double L, double eps, const i64* distance,
                                              i64 distances, const i64* query, i64 queries, const double* grad_feature,
                                              const double* grad_query_scale, double* to);
