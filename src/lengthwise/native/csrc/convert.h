// Conversion between float32 and the two 16-bit formats, and reading and writing one element of any dtype.
#pragma once

#include <string.h>

#include "params.h"

namespace {

INLINE float float_of_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
INLINE uint32_t bits_of_float(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return bits;
}

INLINE float from_bfloat16(uint16_t x) { return float_of_bits((uint32_t)x << 16); }

// Rounds to nearest, ties to even.
INLINE uint16_t to_bfloat16(float x) {
  uint32_t bits = bits_of_float(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40);  // NaN stays NaN
  return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

INLINE float from_float16(uint16_t x) {
  uint32_t sign = (uint32_t)(x & 0x8000) << 16, rest = x & 0x7fff;
  if (rest >= 0x7c00) return float_of_bits(sign | 0x7f800000u | (rest & 0x3ff) << 13);
  if (rest >= 0x400) return float_of_bits(sign | ((rest << 13) + 0x38000000u));
  float small = (float)rest * 5.9604644775390625e-8f;  // a denormal float16 is a normal float32: multiply by 2^-24
  return float_of_bits(sign | bits_of_float(small));
}

// Rounds to nearest, ties to even.
INLINE uint16_t to_float16(float x) {
  uint32_t bits = bits_of_float(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return (uint16_t)(sign | 0x7e00);
  if (rest >= 0x47800000u) return (uint16_t)(sign | 0x7c00);
  if (rest < 0x38800000u)  // denormal in float16: adding 0.5 makes 2^-24 the last bit of the sum
    return (uint16_t)(sign | (bits_of_float(float_of_bits(rest) + 0.5f) - 0x3f000000u));
  rest += 0xfffu + ((rest >> 13) & 1);
  return (uint16_t)(sign | ((rest - 0x38000000u) >> 13));
}

INLINE i64 bytes_of(i64 dtype) { return dtype == FLOAT32 ? 4 : dtype == FLOAT64 ? 8 : 2; }

// Element n of an array of any dtype.
template <class T>
INLINE T read(const void* data, i64 n, i64 dtype) {
  switch (dtype) {
    case FLOAT32: return (T)((const float*)data)[n];
    case BFLOAT16: return (T)from_bfloat16(((const uint16_t*)data)[n]);
    case FLOAT16: return (T)from_float16(((const uint16_t*)data)[n]);
    default: return (T)((const double*)data)[n];
  }
}
template <class T>
INLINE void write(void* data, i64 n, i64 dtype, T x) {
  switch (dtype) {
    case FLOAT32: ((float*)data)[n] = (float)x; break;
    case BFLOAT16: ((uint16_t*)data)[n] = to_bfloat16((float)x); break;
    case FLOAT16: ((uint16_t*)data)[n] = to_float16((float)x); break;
    default: ((double*)data)[n] = (double)x;
  }
}

}  // namespace
