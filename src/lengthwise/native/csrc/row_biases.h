// The biases that are not functions of the distance, computed for one query at a time. A new one is a struct with the
// members of CumulativeBias, in a file of its own, and its two lines in RowBiases.
#pragma once

#include "bias_cumulative.h"

namespace {

template <class Vec>
struct RowBiases {
  bool exist = false;  // whether the call has any of them
  bool learn = false;  // whether it asks for the gradient of any

  CumulativeBias<Vec> cumulative;

  explicit RowBiases(const Call& call) {
    for_each(call, [&](const auto& bias) {
      exist = true;
      learn |= bias.learns(call);
    });
  }

  // Calls a function with each bias that the call has.
  template <class Function>
  INLINE void for_each(const Call& call, Function function) {
    if (cumulative.exists(call)) function(cumulative);
  }
};

}  // namespace
