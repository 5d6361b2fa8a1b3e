// Arithmetic on indices and sizes.
#pragma once

#include <stdint.h>

// A function that Python calls. All others are hidden.
#define EXPORTED extern "C" __attribute__((visibility("default")))

#define INLINE inline __attribute__((always_inline))

typedef int64_t i64;

// Everything in these headers has internal linkage, because they are compiled once for each instruction set. Functions with
// external linkage and the same name would be merged by the linker, and the portable kernel could call one that was compiled
// for AVX-512. For the same reason the kernel uses no templates of the standard library, and these take the place of std::min,
// std::max and std::clamp.
namespace {

INLINE i64 min(i64 a, i64 b) { return a < b ? a : b; }
INLINE i64 max(i64 a, i64 b) { return a > b ? a : b; }
INLINE i64 clamp(i64 x, i64 low, i64 high) { return x < low ? low : x > high ? high : x; }
INLINE i64 round_up(i64 x, i64 step) { return (x + step - 1) / step * step; }

}  // namespace
