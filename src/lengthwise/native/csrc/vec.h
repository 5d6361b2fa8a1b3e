// Vectors of numbers, by the vector extensions of GCC and Clang, and with AVX-512's own instructions where they are faster.
//
// `Float32Vec` and `Float64Vec` offer the same operations, and the kernel is a template over them: T is the type of one number,
// V a vector of N of them, and Wide a vector of N float64 numbers for sums in which much cancels.
#pragma once

#include <math.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "integers.h"

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define LENGTHWISE_SHUFFLE 1
#endif
#endif

// A vector as one of float64 numbers. This is a macro because a function that returns so wide a vector would have another ABI
// on another target.
#define WIDEN(x) __builtin_convertvector(x, Wide)

namespace {

typedef float floats __attribute__((vector_size(LANES * 4)));
typedef float unaligned_floats __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef uint32_t float_bits __attribute__((vector_size(LANES * 4)));
typedef double wide_doubles __attribute__((vector_size(LANES * 8)));

struct Float32Vec {
  typedef float T;
  typedef floats V;
  typedef wide_doubles Wide;
  // N: numbers in a vector. A tile of a matrix product is TILE_ROWS rows of TILE_COLUMNS vectors, which fit into the registers.
#if defined(__AVX512F__)
  enum : i64 { N = 16, TILE_ROWS = 6, TILE_COLUMNS = 4 };
#elif defined(__AVX2__)
  enum : i64 { N = 8, TILE_ROWS = 6, TILE_COLUMNS = 2 };
#else
  enum : i64 { N = 4, TILE_ROWS = 4, TILE_COLUMNS = 2 };
#endif
  static INLINE V load(const T* from) { return *(const unaligned_floats*)from; }
  static INLINE void store(T* to, V x) { *(unaligned_floats*)to = x; }
  static INLINE V broadcast(T x) { return x - (V){}; }
  // The first n numbers, and zeros after them.
  static INLINE V load_first(const T* from, i64 n) {
#if defined(__AVX512F__)
    return (V)_mm512_maskz_loadu_ps(n >= N ? 0xffff : (__mmask16)((1u << n) - 1), from);
#else
    if (n >= N) return load(from);
    T padded[N] = {};
    for (i64 x = 0; x < n; x++) padded[x] = from[x];
    return load(padded);
#endif
  }
  // The first n numbers of x, and `other` after them.
  static INLINE V keep_first(V x, i64 n, T other) {
#if defined(__AVX512F__)
    return (V)_mm512_mask_mov_ps((__m512)broadcast(other), (__mmask16)(n >= N ? 0xffff : (1u << n) - 1), (__m512)x);
#else
    typedef int32_t ints __attribute__((vector_size(N * 4)));
    ints lane;
    for (i64 x = 0; x < N; x++) lane[x] = (int32_t)x;
    return lane < (ints{} + (int32_t)n) ? x : broadcast(other);
#endif
  }
  static INLINE V maximum(V a, V b) {  // b where either is NaN
#if defined(__AVX512F__)
    return (V)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return a > b ? a : b;
#endif
  }
  static INLINE T reduce_max(V a) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)a);
#else
    T out = a[0];
    for (i64 x = 1; x < N; x++) out = a[x] > out ? a[x] : out;
    return out;
#endif
  }
  static INLINE T reduce_add(V a) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)a);
#else
    T lanes[N];
    store(lanes, a);
    for (i64 half = N / 2; half; half /= 2)
      for (i64 x = 0; x < half; x++) lanes[x] += lanes[x + half];
    return lanes[0];
#endif
  }
  // 2^x for x <= 0, with a relative error of at most 7e-8. Exactly 0 below -125, because arithmetic on denormal numbers would
  // cost more than the whole attention. NaN stays NaN.
  static INLINE V power_of_2(V x) {
#if defined(__AVX512F__)
    V n = (V)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    V r = x - n;
#else
    V shifted = x + 12582912.0f;  // 1.5 * 2^23: the last bits of the sum are the nearest integer
    V r = x - (shifted - 12582912.0f);
#endif
    V p = r * 1.5453162945718252e-4f + 1.3390863364648752e-3f;
    p = p * r + 9.618082557275802e-3f;
    p = p * r + 5.5503571142191184e-2f;
    p = p * r + 2.4022650760568143e-1f;
    p = p * r + 6.931471880262288e-1f;
    p = p * r + 1.0f;
#if defined(__AVX512F__)
    __mmask16 normal = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-125.0f), _CMP_NLT_UQ);
    return (V)_mm512_maskz_scalef_ps(normal, (__m512)p, (__m512)n);
#else
    float_bits scaled = (float_bits)p + ((float_bits)shifted << 23);
    return (V)(scaled & ~(float_bits)(x < -125.0f));
#endif
  }
};

#if !defined(__AVX2__)
typedef double doubles __attribute__((vector_size(16)));
typedef double unaligned_doubles __attribute__((vector_size(16), aligned(8), may_alias));

// For tests and small studies: correct, but not written for speed. Only the portable target has it.
struct Float64Vec {
  typedef double T;
  typedef doubles V;
  typedef doubles Wide;
  enum : i64 { N = 2, TILE_ROWS = 4, TILE_COLUMNS = 2 };
  static INLINE V load(const T* from) { return *(const unaligned_doubles*)from; }
  static INLINE void store(T* to, V x) { *(unaligned_doubles*)to = x; }
  static INLINE V broadcast(T x) { return x - (V){}; }
  static INLINE V load_first(const T* from, i64 n) { return n >= 2 ? load(from) : (V){from[0], 0.0}; }
  static INLINE V keep_first(V x, i64 n, T other) { return (V){n > 0 ? x[0] : other, n > 1 ? x[1] : other}; }
  static INLINE V maximum(V a, V b) { return a > b ? a : b; }
  static INLINE T reduce_max(V a) { return a[0] > a[1] ? a[0] : a[1]; }
  static INLINE T reduce_add(V a) { return a[0] + a[1]; }
  static INLINE V power_of_2(V x) { return (V){x[0] < -1021 ? 0 : exp2(x[0]), x[1] < -1021 ? 0 : exp2(x[1])}; }
};
#endif

// The sum of x[from] up to, but not including, x[to].
template <class Vec>
INLINE double sum_between(const typename Vec::T* x, i64 from, i64 to) {
  typename Vec::V sum = {};
  for (; from + Vec::N <= to; from += Vec::N) sum += Vec::load(x + from);
  if (from < to) sum += Vec::load_first(x + from, to - from);
  return (double)Vec::reduce_add(sum);
}

// N float64 numbers are stored without alignment; with `add`, they are added to what is there.
template <class Vec>
INLINE void add_wide(double* to, const typename Vec::Wide& x, bool add = true) {
  typedef double unaligned __attribute__((vector_size(Vec::N * 8), aligned(8), may_alias));
  *(unaligned*)to = add ? *(unaligned*)to + x : x;
}
template <class Vec>
INLINE double reduce_add_wide(const typename Vec::Wide& x) {
#if defined(__AVX512F__)
  __m512d halves[2];
  memcpy(halves, &x, sizeof x);
  return _mm512_reduce_add_pd(halves[0] + halves[1]);
#endif
  double lanes[Vec::N];
  add_wide<Vec>(lanes, x, false);
  for (i64 half = Vec::N / 2; half; half /= 2)
    for (i64 n = 0; n < half; n++) lanes[n] += lanes[n + half];
  return lanes[0];
}

#if defined(LENGTHWISE_SHUFFLE)
// 0, 1, ..., N - 1 as template arguments (std::make_integer_sequence, without the standard library).
template <i64... I>
struct Lanes {};
template <i64 N, i64... I>
struct CountLanes : CountLanes<N - 1, N - 1, I...> {};
template <i64... I>
struct CountLanes<0, I...> {
  typedef Lanes<I...> type;
};
// One step of a transpose: a and b exchange blocks of `width` numbers.
template <i64 width, i64 N, class V, i64... I>
INLINE void exchange(V& a, V& b, Lanes<I...>) {
  V low = __builtin_shufflevector(a, b, ((I & width) ? N + I - width : I)...);
  V high = __builtin_shufflevector(a, b, ((I & width) ? N + I : I + width)...);
  a = low;
  b = high;
}
template <i64 width, i64 N, class V>
INLINE void exchange_rows(V* rows) {
#pragma GCC unroll 16
  for (i64 n = 0; n < N; n++)
    if (!(n & width)) exchange<width, N>(rows[n], rows[n + width], typename CountLanes<N>::type());
}
#endif

#if defined(LENGTHWISE_SHUFFLE)
template <class Vec, i64... H, i64... I>
INLINE void load_pairs(const typename Vec::T* table, const int32_t* at, typename Vec::V& first, typename Vec::V& second,
                       Lanes<H...>, Lanes<I...>) {
  typedef double eight_bytes __attribute__((aligned(4), may_alias));
  typedef double halves __attribute__((vector_size(Vec::N * 4)));
  const eight_bytes* pairs = (const eight_bytes*)table;
  const halves low = {pairs[at[H]]...}, high = {pairs[at[Vec::N / 2 + H]]...};
  first = __builtin_shufflevector((typename Vec::V)low, (typename Vec::V)high, 2 * I...);
  second = __builtin_shufflevector((typename Vec::V)low, (typename Vec::V)high, 2 * I + 1 ...);
}
template <class Vec, i64... H>
INLINE void store_pairs(typename Vec::T* to, typename Vec::V first, typename Vec::V second, Lanes<H...>) {
  const i64 N = Vec::N;
  Vec::store(to, __builtin_shufflevector(first, second, (H / 2 + H % 2 * N)...));
  Vec::store(to + N, __builtin_shufflevector(first, second, (N / 2 + H / 2 + H % 2 * N)...));
}
#endif

// The pairs table[2 at[x]], table[2 at[x] + 1] of N places. Both float32 numbers of a pair are loaded at once, because gathering
// single numbers is slow on most processors.
template <class Vec>
INLINE void load_pairs(const typename Vec::T* table, const int32_t* at, typename Vec::V& first, typename Vec::V& second) {
#if defined(LENGTHWISE_SHUFFLE)
  if constexpr (sizeof(typename Vec::T) == 4) {
    load_pairs<Vec>(table, at, first, second, typename CountLanes<Vec::N / 2>::type(), typename CountLanes<Vec::N>::type());
    return;
  }
#endif
  first = second = (typename Vec::V){};
  for (i64 x = 0; x < Vec::N; x++) {
    first[x] = table[2 * at[x]];
    second[x] = table[2 * at[x] + 1];
  }
}

// Stores two vectors as N pairs.
template <class Vec>
INLINE void store_pairs(typename Vec::T* to, typename Vec::V first, typename Vec::V second) {
#if defined(LENGTHWISE_SHUFFLE)
  store_pairs<Vec>(to, first, second, typename CountLanes<Vec::N>::type());
#else
  for (i64 x = 0; x < Vec::N; x++) {
    to[2 * x] = first[x];
    to[2 * x + 1] = second[x];
  }
#endif
}

// Adds a pair.
template <class T>
INLINE void add_pair(double* to, const T* from) {
  typedef double both __attribute__((vector_size(16), aligned(8), may_alias));
  typedef T pair __attribute__((vector_size(2 * sizeof(T)), aligned(sizeof(T)), may_alias));
  *(both*)to += __builtin_convertvector(*(const pair*)from, both);
}

// Transposes a square of N vectors in place.
template <class Vec>
INLINE void transpose(typename Vec::V* rows) {
  const i64 N = Vec::N;
#if defined(LENGTHWISE_SHUFFLE)
  if (N > 8) exchange_rows<(N > 8 ? 8 : 1), N>(rows);
  if (N > 4) exchange_rows<(N > 4 ? 4 : 1), N>(rows);
  if (N > 2) exchange_rows<(N > 2 ? 2 : 1), N>(rows);
  exchange_rows<1, N>(rows);
#else
  typename Vec::T from[N][N], to[N];
  for (i64 n = 0; n < N; n++) Vec::store(from[n], rows[n]);
  for (i64 m = 0; m < N; m++) {
    for (i64 n = 0; n < N; n++) to[n] = from[n][m];
    rows[m] = Vec::load(to);
  }
#endif
}

}  // namespace
