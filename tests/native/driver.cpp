// Calls the library of csrc/ on random cases and compares every number with plain loops in double precision.
//
//     driver SEED CASES      runs the cases SEED, SEED + 1, ...; a case that failed runs alone as `driver ITS_SEED 1`
//
// Each case is a shape (head dims 1 to 256, up to 300 tokens, grouped queries, fewer queries than keys), a dtype, strides,
// and any of: a table, pieces (one to thousands), vectors of distances, a running sum, rotations, a sink, positions, documents, a window, causal or not; in some a
// number that is not finite; some are large (up to 3000 tokens), so that several threads share the work. It is computed forwards and
// backwards, and its statistics, on every target that the processor has, with one thread and with
// several, whose bits have to be the same: of the library's pool, or, for odd seeds, of OpenMP.
//
// Around every tensor, between the rows of the results and between the buffers of the kernel's own memory lie bytes that
// have to be as they were; where AddressSanitizer is there, it sees who reads them as well. The kernel's memory is full of
// NaN before, and full of zeros in the run with several threads: what it never wrote it may not read.
//
// How close: a result is a sum of terms; its error may be ROUNDINGS · epsilon · (4 + sqrt(keys) / 4 + the largest sum of the
// absolute values of what makes a logit of the row) times the sum of the absolute values of these terms (twice that for the
// output, a quotient), and half a unit in the last place of a half precision result. Backward has to agree for the output
// and the logarithms that it was given.
//
// Each case comes with a network for segments.cpp, of which networks.h says what is asked.
//
// `struct Call` comes from csrc/call.h, and a new field stops the build below.

#include "memory.h"

#undef posix_memalign
#undef free

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "convert.h"
#include "params.h"

extern "C" void GOMP_parallel(void (*work)(void*), void* state, unsigned threads, unsigned flags);

static_assert(sizeof(Call) == 103 * 8, "Call has another number of fields: let random_case choose the new ones");

#if defined(__SANITIZE_ADDRESS__)
#define LENGTHWISE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LENGTHWISE_ASAN 1
#endif
#endif
#if defined(LENGTHWISE_ASAN)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, size) ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(at, size) ((void)0)
#endif

namespace {

const double ROUNDINGS = 8;
const double VECTORS = 0.25, TOTALS = 0.2, TURNS = 0.3, SINKS = 0.3;  // how often there are vectors, running sums, ...
const unsigned char GUARD = 0xA5, UNWRITTEN = 0xFB;  // UNWRITTEN is a number of -1e4 and less in every dtype
const size_t MARGIN = 64;

[[noreturn]] void fail(const std::string& what);

// ---- the kernel's own memory -----------------------------------------------------------------------------------

struct Arena {
  char* base = nullptr;
  size_t size = 0;
  std::vector<std::pair<char*, size_t>> guards;
};
thread_local Arena arena;
std::atomic<i64> arenas{0}, buffers_guarded{0};
std::atomic<bool> out_of_memory{false};
std::atomic<int> filled_with{0xFF};

}  // namespace

extern "C" int guarded_memalign(void** at, size_t alignment, size_t size) {
  if (out_of_memory) return 12;
  if (arena.base) fail("one thread took memory twice");
  arenas++;
  if (posix_memalign(at, alignment, size + MARGIN)) abort();
  memset(*at, filled_with, size);
  arena.base = (char*)*at;
  arena.size = size;
  return 0;
}

extern "C" size_t guarded_bytes(uintptr_t at, size_t size) {
  const size_t step = (size + 63) / 64 * 64 + MARGIN;
  if (arena.base && at >= (uintptr_t)arena.base && at < (uintptr_t)arena.base + arena.size) {
    char* guard = arena.base + (at - (uintptr_t)arena.base) + size;
    memset(guard, GUARD, step - size);
    ASAN_POISON_MEMORY_REGION(guard, step - size);
    arena.guards.emplace_back(guard, step - size);
    buffers_guarded++;
  }
  return step;
}

extern "C" void guarded_free(void* at) {
  if (!at) return;
  if (at != arena.base) fail("memory was given back by a thread that did not take it");
  for (auto& guard : arena.guards) {
    ASAN_UNPOISON_MEMORY_REGION(guard.first, guard.second);
    for (size_t n = 0; n < guard.second; n++)
      if ((unsigned char)guard.first[n] != GUARD) fail("the kernel wrote between two buffers of its memory");
  }
  arena = Arena();
  free(at);
}

namespace {

// ---- random numbers and halves ---------------------------------------------------------------------------------

struct Random {
  uint64_t state;
  uint64_t next() {  // splitmix64
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  i64 from(i64 low, i64 high) { return low + (i64)(next() % (uint64_t)(high - low + 1)); }
  double unit() { return (double)(next() >> 11) / 9007199254740992.0; }
  bool often(double probability) { return unit() < probability; }
  double normal() {
    const double length = sqrt(-2 * log(1 - unit()));
    return length * cos(6.283185307179586 * unit());
  }
  template <class X>
  X of(std::initializer_list<X> some) {
    return some.begin()[from(0, (i64)some.size() - 1)];
  }
};

// Halves by arithmetic, not by bits as in the kernel.
struct Half {
  int digits, lowest, highest;  // 2^highest is the first power of two past the range, 2^lowest the last denormal digit
};
const Half BF16 = {8, -133, 128}, F16 = {11, -24, 16};

double decode(uint16_t bits, const Half& half) {
  const int mantissa_bits = half.digits - 1, exponents = 15 - mantissa_bits;
  const int exponent = bits >> mantissa_bits & ((1 << exponents) - 1), mantissa = bits & ((1 << mantissa_bits) - 1);
  double x = exponent == (1 << exponents) - 1 ? (mantissa ? NAN : INFINITY)
             : exponent == 0                  ? ldexp(mantissa, half.lowest)
                                              : ldexp(mantissa + (1 << mantissa_bits), half.lowest + exponent - 1);
  return bits >> 15 ? -x : x;
}
uint16_t encode(double x, const Half& half) {
  const int mantissa_bits = half.digits - 1, exponents = 15 - mantissa_bits;
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0, top = (uint16_t)(((1 << exponents) - 1) << mantissa_bits);
  if (x != x) return (uint16_t)(top | 1);
  x = fabs(x);
  if (x >= ldexp(1, half.highest)) return sign | top;
  int e = x > 0 ? ilogb(x) : half.lowest;
  e = std::max(e, half.lowest + mantissa_bits);
  const i64 digits = (i64)nearbyint(ldexp(x, mantissa_bits - e));  // may be one more than fits: then it carries on
  return (uint16_t)(sign + (((i64)(e - half.lowest - mantissa_bits) << mantissa_bits) + digits));
}

double get(const char* at, i64 dtype) {
  float f;
  double d;
  uint16_t h;
  switch (dtype) {
    case FLOAT32: return memcpy(&f, at, 4), (double)f;
    case FLOAT64: return memcpy(&d, at, 8), d;
    default: return memcpy(&h, at, 2), decode(h, dtype == BFLOAT16 ? BF16 : F16);
  }
}
void put(char* at, i64 dtype, double x) {
  const float f = (float)x;
  const uint16_t h = encode(x, dtype == BFLOAT16 ? BF16 : F16);
  switch (dtype) {
    case FLOAT32: memcpy(at, &f, 4); break;
    case FLOAT64: memcpy(at, &x, 8); break;
    default: memcpy(at, &h, 2);
  }
}
i64 computed_in(i64 dtype) { return dtype == FLOAT64 ? FLOAT64 : FLOAT32; }

// ---- tensors ---------------------------------------------------------------------------------------------------

// Bytes with guards around them. `tight`: without guards, on addresses that a sanitizer or valgrind watches.
struct Buffer {
  char *base, *at;
  size_t size, total;
  Buffer(size_t size, size_t shift, bool tight) : size(size) {
    const size_t before = tight ? shift : MARGIN + shift;
    total = before + size + (tight ? 0 : MARGIN);
    base = (char*)malloc(total ? total : 1);
    memset(base, GUARD, total);
    at = base + before;
    memset(at, UNWRITTEN, size);
  }
  Buffer(const Buffer&) = delete;
  ~Buffer() { free(base); }
  bool guarded() const {
    for (char* x = base; x < base + total; x++)
      if ((x < at || x >= at + size) && (unsigned char)*x != GUARD) return false;
    return true;
  }
};

// A tensor [batch, head, token, dim], or any other of up to four axes, with strides.
struct Tensor {
  std::string name;
  i64 dtype, shape[4], stride[4];
  std::unique_ptr<Buffer> buffer;
  std::vector<char> before;  // of what is read alone

  i64 numbers() const { return shape[0] * shape[1] * shape[2] * shape[3]; }
  char* at(i64 a, i64 b, i64 c, i64 d) const {
    return buffer->at + (a * stride[0] + b * stride[1] + c * stride[2] + d * stride[3]) * bytes_of(dtype);
  }
  double operator()(i64 a, i64 b, i64 c, i64 d) const { return get(at(a, b, c, d), dtype); }
  double flat(i64 n) const { return get(buffer->at + n * bytes_of(dtype), dtype); }
  void set(i64 a, i64 b, i64 c, i64 d, double x) { put(at(a, b, c, d), dtype, x); }
  TensorView view() const { return {buffer->at, stride[0], stride[1], stride[2]}; }
  explicit operator bool() const { return (bool)buffer; }
};

Tensor make(Random& random, const char* name, i64 dtype, i64 a, i64 b, i64 c, i64 d, bool result, bool dense) {
  Tensor t;
  t.name = name;
  t.dtype = dtype;
  const i64 shape[] = {a, b, c, d};
  std::copy(shape, shape + 4, t.shape);
  const i64 width = d + (!dense && random.often(0.3) ? random.from(0, 5) : 0);
  const bool heads_last = !dense && random.often(0.5);
  t.stride[3] = 1;
  t.stride[2] = heads_last ? b * width : width;
  t.stride[1] = heads_last ? width : c * width;
  t.stride[0] = b * c * width;
  if (!dense && !result)  // one for all
    for (int axis = 0; axis < 3; axis++)
      if (random.often(0.05)) t.stride[axis] = 0;
  i64 last = d;  // one past the last number
  for (int axis = 0; axis < 3; axis++) last += shape[axis] ? (shape[axis] - 1) * t.stride[axis] : 0;
  const bool empty = a * b * c * d == 0;
  const size_t bytes = empty ? 0 : (size_t)(last * bytes_of(dtype));
  const size_t shift = (size_t)(random.from(0, 15) * bytes_of(dtype));
  t.buffer.reset(new Buffer(bytes, shift, random.often(0.5)));
  return t;
}
void fill(Tensor& t, const std::function<double(i64)>& number) {
  i64 n = 0;
  for (i64 a = 0; a < t.shape[0]; a++)
    for (i64 b = 0; b < t.shape[1]; b++)
      for (i64 c = 0; c < t.shape[2]; c++)
        for (i64 d = 0; d < t.shape[3]; d++) t.set(a, b, c, d, number(n++));
}

// ---- a case ----------------------------------------------------------------------------------------------------

struct Case {
  uint64_t seed;
  Call call = {};
  bool large = false, is_not_finite = false;
  std::vector<i64> position_q, position_k, documents, edges, rank;
  Tensor q, k, v, grad, table, slope, intercept, knots, u, w, content, vectors, values, total, turn_q, turn_k, sink;
  std::vector<Tensor*> inputs() {
    return {&q, &k, &v, &grad, &table, &slope, &intercept, &knots, &u, &w, &content, &vectors, &values, &total, &turn_q, &turn_k, &sink};
  }
  std::string says;
};
Case* current = nullptr;
i64 current_target = -1;

void fail(const std::string& what) {
  printf("FAILED: %s\n  case %llu on target %lld: %s\n", what.c_str(),
         (unsigned long long)(current ? current->seed : 0), (long long)current_target,
         current ? current->says.c_str() : "");
  fflush(stdout);
  abort();
}

i64 some_tokens(Random& random) {
  switch (random.from(0, 4)) {
    case 0: return random.from(1, 8);
    case 1: return random.from(1, 40);
    case 2: return random.of<i64>({95, 96, 97, 127, 128, 129, 191, 192, 193, 224, 255, 256, 257});
    case 3: return random.from(80, 140);
    default: return random.from(1, 300);
  }
}
i64 some_dim(Random& random) {
  switch (random.from(0, 3)) {
    case 0: return random.of<i64>({4, 8, 16, 32, 64, 80, 96, 128, 256});
    case 1: return random.from(1, 256);
    default: return random.from(1, 20);
  }
}

std::vector<i64> some_positions(Random& random, i64 batch, i64 keys, int kind) {
  std::vector<i64> out;
  for (i64 b = 0; b < batch; b++) {
    i64 at = kind == 1 ? random.of<i64>({0, 5, 1000000, (i64)1 << 40}) : 0;
    for (i64 n = 0; n < keys; n++) {
      if (kind == 1) out.push_back(at++);                                            // from somewhere on
      if (kind == 2) out.push_back(at += random.often(0.1) ? random.from(0, 50) : 1);  // with gaps
      if (kind == 3) out.push_back(random.from(0, keys));                            // in no order
      if (kind == 4) out.push_back(at += random.often(0.02) ? (i64)1 << 35 : 1);       // far apart
    }
  }
  return out;
}

std::vector<i64> some_documents(Random& random, i64 batch, i64 keys, int kind) {
  std::vector<i64> out;
  const i64 period = random.from(1, 9), padding = random.from(0, keys);
  for (i64 b = 0; b < batch; b++) {
    i64 id = random.of<i64>({0, -3, (i64)1 << 50});
    for (i64 n = 0; n < keys; n++) {
      if (kind == 1) out.push_back(n && random.often(0.02) ? ++id : id);  // packed
      if (kind == 2) out.push_back(n / period % 3);                       // in turns
      if (kind == 3) out.push_back(n < padding ? -1 : 0);                 // padded on the left
      if (kind == 4) out.push_back(random.from(0, 3));
    }
  }
  return out;
}

void spoil(Random& random, Tensor& t) {
  if (!t || !t.numbers()) return;
  i64 at[4];
  for (int axis = 0; axis < 4; axis++) at[axis] = random.from(0, t.shape[axis] - 1);
  t.set(at[0], at[1], at[2], at[3], random.of<double>({NAN, INFINITY, -INFINITY}));
}

void random_case(uint64_t seed, Case& c) {
  Random random = {seed * 0x2545f4914f6cdd1du + 1};
  Call& call = c.call;
  c.seed = seed;
  c.large = random.often(0.04);
  const i64 how_large = c.large ? random.from(1, 3) : 0;
  double work;
  do {
    call.batch = random.often(0.01) ? 0 : random.from(1, 3);
    call.kv_heads = random.from(1, 3);
    call.heads = call.kv_heads * (random.often(0.5) ? 1 : random.from(1, 6));
    call.dim = some_dim(random);
    call.keys = some_tokens(random);
    call.queries = random.often(0.5)   ? call.keys
                   : random.often(0.4) ? std::min<i64>(call.keys, random.from(1, 4))
                                       : random.from(1, call.keys);
    if (how_large == 2) {  // decoding, or a piece of a prompt: keys are shared out
      call.keys = random.from(400, 3000);
      call.queries = random.often(0.6) ? random.from(1, 4) : random.from(1, 100);
    }
    if (how_large == 3) {  // queries are shared out
      call.keys = random.from(700, 1300);
      call.queries = random.often(0.5) ? call.keys : random.from(600, call.keys);
    }
    work = (double)call.batch * (double)(call.heads * call.queries * call.keys) * (double)call.dim;
  } while (work > (c.large ? 3e7 : 3e5) || (how_large == 1 && work < 9e6) || (how_large > 1 && work < 4e5));
  const i64 dtype = call.dtype = random.of<i64>({FLOAT32, FLOAT32, FLOAT32, BFLOAT16, FLOAT16, FLOAT64});
  const i64 wide = computed_in(dtype), b = call.batch, h = call.heads, i = call.queries, j = call.keys, d = call.dim;
  call.causal = random.often(0.7);
  call.window = random.often(0.6) ? 0 : random.often(0.5) ? random.from(1, 20) : random.from(1, j + 5);
  call.scale = random.of<double>({1 / sqrt((double)d), 1 / sqrt((double)d), 1, 0.05});
  const bool dense = random.often(0.4);
  auto normal = [&](i64) { return random.normal(); };
  fill(c.q = make(random, "q", dtype, b, h, i, d, false, dense), normal);
  fill(c.k = make(random, "k", dtype, b, call.kv_heads, j, d, false, dense), normal);
  fill(c.v = make(random, "v", dtype, b, call.kv_heads, j, d, false, dense), normal);
  fill(c.grad = make(random, "grad", dtype, b, h, i, d, false, dense), normal);
  auto row = [&](const char* name, i64 heads, i64 count, const std::function<double(i64)>& number, i64 type) {
    Tensor t = make(random, name, type, 1, 1, heads, count, false, true);
    fill(t, number);
    return t;
  };
  auto heads = [&] { return random.often(0.5) ? h : 1; };
  if (random.often(0.5)) {
    const double spread = random.of<double>({1, 1, 10, 100});
    call.table_heads = heads();
    call.table_size = random.often(0.3) ? random.from(1, 9) : random.from(1, j + 20);
    call.table_first = random.often(0.5) ? 0 : random.from(-j - 3, j + 3);
    c.table = row("table", call.table_heads, call.table_size, [&](i64) { return spread * random.normal(); }, wide);
  }
  if (random.often(0.45)) {
    call.slope_heads = call.intercept_heads = heads();
    switch (random.from(0, 4)) {
      case 0: call.segments = random.from(1, 3); break;
      case 1: call.segments = random.from(62, 67); break;  // as many as have bounds of distances, and more
      case 2: call.segments = random.from(1000, 4200); break;
      default: call.segments = random.from(2, 33);
    }
    call.feature_size = random.often(0.2) ? random.from(1, 9) : random.from(1, j + 20);
    call.query_scale_batch = random.often(0.5) ? b : 1;
    if (!b) call.query_scale_batch = 1;
    const i64 many = call.segments;
    c.slope = row("slope", call.slope_heads, many, normal, FLOAT64);
    c.intercept = row("intercept", call.slope_heads, many, normal, FLOAT64);
    const i64 crooked = random.from(0, 3);
    const double bend = 0.05 + random.unit();
    auto coordinate = [&](i64 n) { return crooked ? log1p(bend * (double)n) : random.normal(); };
    c.u = row("u", 1, call.feature_size, coordinate, FLOAT64);
    const i64 how = random.from(0, 4);
    auto inverse = [&](i64 n) {
      const double at = (double)(n % i + j - i);
      return how == 0   ? 0.25                                    // the same for all
             : how == 1 ? 1 / log1p(bend * std::max(at, 60.0))    // the same up to some query
             : how == 2 ? random.normal()
                        : 1 / (1 + log1p(bend * at));
    };
    c.w = row("w", call.query_scale_batch, i, inverse, FLOAT64);
    std::vector<double> places;
    const i64 uneven = random.from(0, 3);
    for (i64 n = 0; n < many - 1; n++)
      places.push_back(uneven == 0            ? random.normal()
                       : uneven == 1          ? pow(random.unit(), 9)  // many close to 0
                       : uneven == 2 && n % 7 ? 0.5
                                              : 0.01 + 1.3 * (double)n / (double)many);
    std::sort(places.begin(), places.end());
    c.knots = row("knots", 1, many - 1, [&](i64 n) { return places[(size_t)n]; }, FLOAT64);
  }
  auto vectors = [&](const char* name, i64 dim, i64& own_heads, i64& size, i64& first) {
    own_heads = heads();
    size = random.often(0.5) ? random.from(1, 40) : random.from(1, j + 3);
    first = random.often(0.3) ? 0 : random.often(0.5) ? random.from(-20, 5) : random.from(-j - 3, j + 3);
    Tensor t = make(random, name, wide, 1, own_heads, size, dim, false, true);
    fill(t, normal);
    return t;
  };
  if (random.often(VECTORS)) {
    call.content_dim = random.often(0.5) ? d : random.from(1, 20);
    c.vectors =
        vectors("vectors", call.content_dim, call.key_vectors_heads, call.key_vectors_size, call.key_vectors_first);
    fill(c.content = make(random, "content", wide, b, h, i, call.content_dim, false, true),
         [&](i64) { return 0.3 * random.normal(); });
  }
  if (random.often(VECTORS))
    c.values = vectors("values", d, call.value_vectors_heads, call.value_vectors_size, call.value_vectors_first);
  if (random.often(TOTALS)) {
    call.prefix_sum_heads = heads();
    const double step = random.of<double>({0, 0.01, 1, 50});
    i64 key = 0;
    double total = 0;
    fill(c.total = make(random, "total", FLOAT64, 1, b, call.prefix_sum_heads, j, false, true), [&](i64) {
      if (key++ % j == 0) total = 1000 * random.normal();
      return step ? total -= step * random.unit() : random.normal();
    });
  }
  if (d > 1 && random.often(TURNS)) {
    call.pairs = random.often(0.5) ? d / 2 : random.from(1, d / 2);
    call.interleaved = random.often(0.5);
    auto turns = [&](const char* name, i64 tokens, i64& own) {
      own = random.often(0.5) && b > 1 ? b : 1;
      Tensor t = make(random, name, wide, own, tokens, 2, call.pairs, false, true);
      for (i64 n = 0; n < own; n++)
        for (i64 at = 0; at < tokens; at++)
          for (i64 p = 0; p < call.pairs; p++) {
            const double angle = 9 * random.normal(), gain = 0.5 + random.unit();
            t.set(n, at, 0, p, gain * cos(angle));
            t.set(n, at, 1, p, gain * sin(angle));
          }
      return t;
    };
    const i64 sides = random.from(0, 4);  // queries alone, keys alone, both
    if (sides) c.turn_q = turns("turn_q", i, call.cos_sin_q_batch);
    if (sides != 1) c.turn_k = turns("turn_k", j, call.cos_sin_k_batch);
  }
  if (random.often(SINKS)) {
    const double spread = random.of<double>({1, 1, 10});
    c.sink = row("sink", 1, h, [&](i64) { return spread * random.normal(); }, wide);
  }
  if (const int kind = random.often(0.6) ? 0 : (int)random.from(1, 4)) {
    const bool own = random.often(0.5) && b > 1;
    c.position_k = some_positions(random, own ? b : 1, j, kind);
    call.position_k_batch = call.position_q_batch = own ? b : 1;
    for (i64 n = 0; n < (own ? b : 1); n++)
      for (i64 t = j - i; t < j; t++) c.position_q.push_back(c.position_k[(size_t)(n * j + t)]);
  }
  if (const int kind = random.often(0.6) ? 0 : (int)random.from(1, 4)) {
    const bool own = random.often(0.5) && b > 1;
    c.documents = some_documents(random, own ? b : 1, j, kind);
    call.documents_batch = own ? b : 1;
  }
  if ((c.is_not_finite = random.often(0.2))) {
    Tensor* some[] = {&c.q, &c.k, &c.v, &c.grad, &c.table, &c.content, &c.vectors, &c.values};
    spoil(random, *some[random.from(0, 7)]);
    if (random.often(0.3)) spoil(random, *some[random.from(0, 7)]);
  }
  char text[600];
  snprintf(text, sizeof text,
           "batch %lld heads %lld/%lld queries %lld keys %lld dim %lld dtype %lld causal %lld window %lld table %lld+%lld "
           "pieces %lld u %lld vectors %lld+%lld values %lld+%lld turns%s%s of %lld%s positions %zu documents %zu%s%s%s%s",
           (long long)b, (long long)h, (long long)call.kv_heads, (long long)i, (long long)j, (long long)d,
           (long long)dtype, (long long)call.causal, (long long)call.window, (long long)call.table_first,
           (long long)call.table_size, (long long)call.segments, (long long)call.feature_size, (long long)call.key_vectors_first,
           (long long)call.key_vectors_size, (long long)call.value_vectors_first, (long long)call.value_vectors_size, c.turn_q ? " q" : "", c.turn_k ? " k" : "", (long long)call.pairs,
           call.interleaved ? " side by side" : "", c.position_k.size(), c.documents.size(), c.sink ? " sink" : "", c.total ? " total" : "",
           c.is_not_finite ? " not finite" : "",
           c.large ? " large" : "");
  c.says = text;
  for (Tensor* t : c.inputs())
    if (*t) t->before.assign(t->buffer->base, t->buffer->base + t->buffer->total);
  call.q = c.q.view();
  call.k = c.k.view();
  call.v = c.v.view();
  auto start = [](const Tensor& t) { return t ? t.buffer->at : nullptr; };
  call.table = start(c.table);
  call.slope = start(c.slope);
  call.intercept = start(c.intercept);
  call.knots = start(c.knots);
  call.distance_feature = start(c.u);
  call.query_scale = start(c.w);
  call.content = start(c.content);
  call.key_vectors = start(c.vectors);
  call.value_vectors = start(c.values);
  call.prefix_sum = start(c.total);
  call.cos_sin_q = start(c.turn_q);
  call.cos_sin_k = start(c.turn_k);
  call.sink = start(c.sink);
  call.position_q = c.position_q.empty() ? nullptr : c.position_q.data();
  call.position_k = c.position_k.empty() ? nullptr : c.position_k.data();
  call.documents = c.documents.empty() ? nullptr : c.documents.data();
  i64 edge = random.from(-j - 3, j + 3);
  for (i64 n = random.from(0, 9); n > 0; n--, edge += random.often(0.7) ? random.from(1, 5) : random.from(1, j + 1))
    c.edges.push_back(edge);
  call.edges = c.edges.data();
  call.edges_size = (i64)c.edges.size();
  call.first_keys = random.often(0.5) ? random.from(1, 5) : random.from(1, j + 3);
  call.last_keys = random.often(0.5) ? random.from(1, 5) : random.from(1, j + 3);
  for (size_t n = 0; n < c.documents.size(); n++) {
    const auto row = c.documents.begin() + (std::ptrdiff_t)(n / (size_t)j * (size_t)j);
    c.rank.push_back(std::count(row, c.documents.begin() + (std::ptrdiff_t)n, c.documents[n]));
  }
  call.rank = c.rank.empty() ? nullptr : c.rank.data();
  call.rank_batch = call.documents_batch;
}

// ---- what the kernel gives ---------------------------------------------------------------------------------------

struct Results {
  Tensor out, lse, dq, dk, dv, dtable, dslope, dintercept, du, dw, dcontent, dvectors, dvalues, dtotal, dsink, statistics;
  std::vector<Tensor*> all() {
    return {&out, &lse, &dq, &dk, &dv, &dtable, &dslope, &dintercept, &du, &dw, &dcontent, &dvectors, &dvalues, &dtotal,
            &dsink, &statistics};
  }
};

std::unique_ptr<Results> results_for(const Case& c, uint64_t seed) {
  Random random = {seed};
  const Call& call = c.call;
  const i64 wide = computed_in(call.dtype), b = call.batch, i = call.queries, j = call.keys, d = call.dim;
  std::unique_ptr<Results> r(new Results);
  const bool dense = random.often(0.4);
  r->out = make(random, "out", call.dtype, b, call.heads, i, d, true, dense);
  r->lse = make(random, "lse", wide, 1, b, call.heads, i, true, true);
  r->dq = make(random, "dq", call.dtype, b, call.heads, i, d, true, dense);
  r->dk = make(random, "dk", call.dtype, b, call.kv_heads, j, d, true, dense);
  r->dv = make(random, "dv", call.dtype, b, call.kv_heads, j, d, true, dense);
  // Some biases learn and others beside them do not.
  if (c.table && random.often(0.8)) r->dtable = make(random, "dtable", wide, 1, 1, call.table_heads, call.table_size, true, true);
  if (c.slope && random.often(0.8)) {
    r->dslope = make(random, "dslope", FLOAT64, 1, 1, call.slope_heads, call.segments, true, true);
    r->dintercept = make(random, "dintercept", FLOAT64, 1, 1, call.slope_heads, call.segments, true, true);
    r->du = make(random, "du", FLOAT64, 1, 1, 1, call.feature_size, true, true);
    r->dw = make(random, "dw", FLOAT64, 1, 1, call.query_scale_batch, i, true, true);
  }
  auto like = [&](const char* name, const Tensor& t) {
    return make(random, name, t.dtype, t.shape[0], t.shape[1], t.shape[2], t.shape[3], true, true);
  };
  if (c.vectors && random.often(0.8)) {
    r->dcontent = like("dcontent", c.content);
    r->dvectors = like("dvectors", c.vectors);
  }
  if (c.values && random.often(0.8)) r->dvalues = like("dvalues", c.values);
  if (c.total && random.often(0.8)) r->dtotal = make(random, "dtotal", FLOAT64, 1, b, call.heads, j, true, true);
  if (c.sink && random.often(0.8)) r->dsink = make(random, "dsink", FLOAT64, 1, 1, b, call.heads, true, true);
  r->statistics = make(random, "statistics", FLOAT64, b, call.heads, i, call.edges_size + 4, true, true);
  return r;
}

void check_untouched(Case& c, Results& results) {
  for (const Tensor* t : c.inputs())
    if (*t && !std::equal(t->before.begin(), t->before.end(), t->buffer->base))
      fail(t->name + " was changed, or bytes beside it");
  for (Tensor* t : results.all()) {
    if (!*t) continue;
    if (!t->buffer->guarded()) fail("bytes beside " + t->name + " were changed");
    std::vector<bool> own(t->buffer->size);
    for (i64 a = 0; a < t->shape[0]; a++)
      for (i64 b = 0; b < t->shape[1]; b++)
        for (i64 x = 0; x < t->shape[2]; x++) {
          const size_t from = (size_t)(t->at(a, b, x, 0) - t->buffer->at);
          std::fill_n(own.begin() + (std::ptrdiff_t)from, t->shape[3] * bytes_of(t->dtype), true);
        }
    for (size_t n = 0; n < own.size(); n++)
      if (!own[n] && (unsigned char)t->buffer->at[n] != UNWRITTEN) fail("bytes between rows of " + t->name + " were changed");
  }
}

i64 calls = 0;

void run_kernel(const Case& c, Results& r, i64 target, Threads threads) {
  Call call = c.call;
  auto start = [](const Tensor& t) { return t ? (void*)t.buffer->at : nullptr; };
  call.target = target;
  call.threads = threads;
  call.out = r.out.view();
  call.lse = start(r.lse);
  if (lengthwise_attention(&call)) fail("forward has no memory");
  call.backward = 1;
  call.grad = c.grad.view();
  call.dq = r.dq.view();
  call.dk = r.dk.view();
  call.dv = r.dv.view();
  call.grad_table = start(r.dtable);
  call.grad_slope = start(r.dslope);
  call.grad_intercept = start(r.dintercept);
  call.grad_distance_feature = start(r.du);
  call.grad_query_scale = start(r.dw);
  call.grad_content = start(r.dcontent);
  call.grad_key_vectors = start(r.dvectors);
  call.grad_value_vectors = start(r.dvalues);
  call.grad_prefix_sum = (double*)start(r.dtotal);
  if (r.dtotal) fill(r.dtotal, [](i64) { return 0; });  // the kernel adds to it
  call.grad_sink = (double*)start(r.dsink);
  if (r.dsink) fill(r.dsink, [](i64) { return 0; });  // the kernel adds to it
  const std::vector<char> out(r.out.buffer->base, r.out.buffer->base + r.out.buffer->total);
  const std::vector<char> lse(r.lse.buffer->base, r.lse.buffer->base + r.lse.buffer->total);
  if (lengthwise_attention(&call)) fail("backward has no memory");
  if (!std::equal(out.begin(), out.end(), r.out.buffer->base) || !std::equal(lse.begin(), lse.end(), r.lse.buffer->base))
    fail("backward changed what forward made");
  Call asked = c.call;  // without values and room for an output
  asked.target = target;
  asked.threads = threads;
  asked.v = asked.k;
  asked.value_vectors = {};
  asked.statistics = (double*)start(r.statistics);
  if (lengthwise_attention(&asked)) fail("statistics have no memory");
  calls += 3;
}

// ---- plain loops -------------------------------------------------------------------------------------------------

// Sums with the sums of what they may be off by. `spoiled`: something that is not finite went into it.
struct Sums {
  std::vector<double> value, bound;
  std::vector<char> spoiled;
  explicit Sums(i64 size) : value((size_t)size), bound((size_t)size), spoiled((size_t)size) {}
  void add(i64 at, double x, double off, bool spoils) {
    value[(size_t)at] += spoils ? 0 : x;
    bound[(size_t)at] += spoils ? 0 : off;
    spoiled[(size_t)at] |= spoils;
  }
};

struct Worst {
  double ratio = 0;
  i64 numbers = 0;
};
std::unordered_map<std::string, Worst> worst;

void report(const char* name) {
  printf("  %-10s %12lld numbers, at worst %.2f of what is allowed\n", name, (long long)worst[name].numbers, worst[name].ratio);
}

void compare(const Tensor& t, const Sums& sums) {
  i64 n = 0;
  const double last = t.dtype == BFLOAT16 ? 0.00390625 : t.dtype == FLOAT16 ? 0.00048828125 : 0;
  Worst& record = worst[t.name];
  for (i64 a = 0; a < t.shape[0]; a++)
    for (i64 b = 0; b < t.shape[1]; b++)
      for (i64 x = 0; x < t.shape[2]; x++)
        for (i64 y = 0; y < t.shape[3]; y++, n++) {
          const double got = t(a, b, x, y), wanted = sums.value[(size_t)n];
          if (sums.spoiled[(size_t)n]) continue;
          if (t.dtype == FLOAT16 && fabs(wanted) > 65000) continue;  // past its range
          const double floor = t.dtype == FLOAT16 ? 3e-8 : 1e-32;
          const double allowed = sums.bound[(size_t)n] + last * fabs(wanted) + floor;
          const double off = fabs(got - wanted);
          record.numbers++;
          if (off <= allowed) {
            if (!last) record.ratio = std::max(record.ratio, off / allowed);  // halves are mostly rounding
            continue;
          }
          char text[300];
          snprintf(text, sizeof text, "%s[%lld, %lld, %lld, %lld] is %.9g, and has to be %.9g to %.1e", t.name.c_str(),
                   (long long)a, (long long)b, (long long)x, (long long)y, got, wanted, allowed);
          fail(text);
        }
}

// A vector as a token's rotation turns it, or its transpose (`back`); and the sizes of what makes each number of it.
struct Turned {
  std::vector<double> value, size;
  explicit Turned(i64 dim) : value((size_t)dim), size((size_t)dim) {}
  void set(i64 d, double x) {
    value[(size_t)d] = x;
    size[(size_t)d] = fabs(x);
  }
  void turn(const Call& call, const Tensor& by, i64 b, i64 t, bool back) {
    for (i64 p = 0; by && p < call.pairs; p++) {
      const size_t one = (size_t)(call.interleaved ? 2 * p : p), other = one + (size_t)(call.interleaved ? 1 : call.pairs);
      const double c = by(by.shape[0] > 1 ? b : 0, t, 0, p), s = by(by.shape[0] > 1 ? b : 0, t, 1, p) * (back ? -1 : 1);
      const double x = value[one], y = value[other], m = size[one], n = size[other];
      value[one] = c * x - s * y;
      value[other] = s * x + c * y;
      size[one] = fabs(c) * m + fabs(s) * n;
      size[other] = fabs(s) * m + fabs(c) * n;
    }
  }
};

i64 clamp(i64 x, i64 high) { return x < 0 ? 0 : x > high ? high : x; }

void check_numbers(const Case& c, Results& r) {
  const Call& call = c.call;
  const i64 B = call.batch, H = call.heads, I = call.queries, J = call.keys, D = call.dim, group = H / call.kv_heads;
  const double unit = call.dtype == FLOAT64 ? 1.1e-16 : 6e-8;
  Sums out(B * H * I * D), lse(B * H * I), dq(B * H * I * D), dk(B * call.kv_heads * J * D), dv(dk);
  Sums dtable(call.table_heads * call.table_size), dslope(call.slope_heads * call.segments), dintercept(dslope);
  const DistanceVectors kv_ = key_vectors_of(call), vv = value_vectors_of(call);
  const i64 C = kv_.dim;
  Sums du(call.feature_size), dw(call.query_scale_batch * I), dcontent(c.content ? B * H * I * C : 0);
  Sums dvectors(kv_.heads * kv_.size * C), dvalues(vv.heads * vv.size * D), dtotal(c.total ? B * H * J : 0);
  Sums dsink(B * H), statistics(B * H * I * (call.edges_size + 4));
  std::vector<double> logit((size_t)J), weight((size_t)J), g((size_t)D), o((size_t)D), v((size_t)(J * D));
  std::vector<Turned> k((size_t)J, Turned(D));
  Turned q(D);
  std::vector<i64> column((size_t)J), place((size_t)J), segment((size_t)J), vector((size_t)J), value((size_t)J);
  std::vector<char> seen((size_t)J), bad_key((size_t)J);
  std::vector<double> knots, u;
  for (i64 n = 0; c.slope && n < call.feature_size; n++) u.push_back(c.u.flat(n));
  for (i64 n = 0; c.slope && n < call.segments - 1; n++) knots.push_back(c.knots.flat(n));
  for (i64 b = 0; b < B; b++)
    for (i64 h = 0; h < H; h++) {
      const i64 kv = h / group, th = call.table_heads > 1 ? h : 0, ph = call.slope_heads > 1 ? h : 0;
      const i64 rh = kv_.heads > 1 ? h : 0, vh = vv.heads > 1 ? h : 0, oh = call.prefix_sum_heads > 1 ? h : 0;
      // The value of a key for a query: its own, and the vector of the distance. `value` is the vector's place.
      auto value_of = [&](i64 j, i64 d) {
        return v[(size_t)(j * D + d)] + (c.values ? c.values(0, vh, value[(size_t)j], d) : 0);
      };
      auto value_size = [&](i64 j, i64 d) {
        return fabs(v[(size_t)(j * D + d)]) + (c.values ? fabs(c.values(0, vh, value[(size_t)j], d)) : 0);
      };
      if (h % group == 0)
        for (i64 j = 0; j < J; j++) {
          bad_key[(size_t)j] = 0;
          for (i64 d = 0; d < D; d++) {
            const double x = c.k(b, kv, j, d), y = v[(size_t)(j * D + d)] = c.v(b, kv, j, d);
            k[(size_t)j].set(d, x);
            bad_key[(size_t)j] |= !std::isfinite(x) || !std::isfinite(y);
          }
          k[(size_t)j].turn(call, c.turn_k, b, j, false);
        }
      for (i64 i = 0; i < I; i++) {
        const i64 own = J - I + i;
        const double w = c.w ? c.w((i64)0, 0, call.query_scale_batch > 1 ? b : 0, i) : 0;
        bool bad = false, bad_grad = false;
        double gout = 0;  // sum of the absolute values of what makes delta
        for (i64 d = 0; d < D; d++) {
          q.set(d, c.q(b, h, i, d));
          g[(size_t)d] = c.grad(b, h, i, d);
          o[(size_t)d] = r.out(b, h, i, d);
          bad |= !std::isfinite(q.value[(size_t)d]);
          bad_grad |= !std::isfinite(g[(size_t)d]);
        }
        q.turn(call, c.turn_q, b, i, false);
        double largest = -INFINITY, most = 0;
        for (i64 j = 0; j < J; j++) {
          const size_t J_ = (size_t)j;
          bool sees = (!call.causal || j <= own) && (!call.window || (j > own - call.window && j < own + call.window));
          if (call.documents) {
            const i64* ids = call.documents + start_of_sequence(call.documents_batch, b, J);
            sees = sees && ids[j] == ids[own];
          }
          seen[J_] = sees;
          if (!sees) continue;
          bad |= bad_key[J_];
          double dot = 0, size = 0;
          for (i64 d = 0; d < D; d++) {
            const size_t D_ = (size_t)d;
            dot += q.value[D_] * k[J_].value[D_] * call.scale;
            size += q.size[D_] * k[J_].size[D_] * call.scale;
          }
          const i64 pq = call.position_q ? call.position_q[start_of_sequence(call.position_q_batch, b, I) + i] : own;
          const i64 pk = call.position_k ? call.position_k[start_of_sequence(call.position_k_batch, b, J) + j] : j;
          auto add = [&](double x) {
            dot += x;
            bad |= x != x || x == INFINITY;
            if (std::isfinite(x)) size += fabs(x);
          };
          if (c.table) {
            column[J_] = th * call.table_size + clamp(pq - pk - call.table_first, call.table_size - 1);
            add(c.table.flat(column[J_]));
          }
          if (c.slope) {
            place[J_] = clamp(pq - pk, call.feature_size - 1);
            const double x = u[(size_t)place[J_]] * w;
            // Pieces are told apart in float64, whatever is computed in.
            segment[J_] = ph * call.segments + (std::upper_bound(knots.begin(), knots.end(), x) - knots.begin());
            add(c.slope.flat(segment[J_]) * x);
            add(c.intercept.flat(segment[J_]));
          }
          if (c.vectors) {
            vector[J_] = clamp(pq - pk - kv_.first, kv_.size - 1);
            for (i64 d = 0; d < C; d++) {
              const double x = c.content(b, h, i, d) * c.vectors(0, rh, vector[J_], d);
              dot += x;
              bad |= !std::isfinite(x);
              if (std::isfinite(x)) size += fabs(x);
            }
          }
          if (c.values) {
            value[J_] = clamp(pq - pk - vv.first, vv.size - 1);
            for (i64 d = 0; d < D; d++) bad |= !std::isfinite(c.values(0, vh, value[J_], d));
          }
          if (c.total) add(c.total(0, b, oh, own) - c.total(0, b, oh, j));
          logit[J_] = dot;
          largest = std::max(largest, dot);
          most = std::max(most, size);
        }
        const double sink = c.sink ? c.sink.flat(h) : -INFINITY;
        largest = std::max(largest, sink);
        if (c.sink) most = std::max(most, fabs(sink));
        bad |= !std::isfinite(largest);
        const double off = ROUNDINGS * unit * (4 + sqrt((double)J) / 4 + most);
        const i64 line = (b * H + h) * I + i;
        double total = c.sink ? exp(sink - largest) : 0;
        for (i64 j = 0; j < J; j++) total += seen[(size_t)j] ? weight[(size_t)j] = exp(logit[(size_t)j] - largest) : 0;
        for (i64 j = 0; j < J; j++) {
          if (!seen[(size_t)j]) continue;
          const double p = weight[(size_t)j] / total;
          for (i64 d = 0; d < D; d++) {
            out.add(line * D + d, p * value_of(j, d), 2 * off * p * value_size(j, d), bad);  // numerator and denominator
          }
        }
        const i64 entropy = line * (call.edges_size + 4) + call.edges_size + 1;
        const i64* rank = call.rank ? call.rank + start_of_sequence(call.rank_batch, b, J) : nullptr;
        for (i64 j = 0; j < J; j++) {
          const double p = seen[(size_t)j] ? weight[(size_t)j] / total : 0;
          const i64 pq = call.position_q ? call.position_q[start_of_sequence(call.position_q_batch, b, I) + i] : own;
          const i64 pk = call.position_k ? call.position_k[start_of_sequence(call.position_k_batch, b, J) + j] : j;
          const i64 bin = std::upper_bound(c.edges.begin(), c.edges.end(), pq - pk) - c.edges.begin();
          const i64 before = rank ? rank[j] : j, back = (rank ? rank[own] : own) - before;
          if (!seen[(size_t)j]) continue;
          const double size = p > 0 ? fabs(log(p)) : 0;
          statistics.add(line * (call.edges_size + 4) + bin, p, 2 * off * p, bad);
          statistics.add(entropy, p * size, 2 * off * p * (2 + size + log(total)), bad);
          if (before < call.first_keys) statistics.add(entropy + 1, p, 2 * off * p, bad);
          if (back >= 0 && back < call.last_keys) statistics.add(entropy + 2, p, 2 * off * p, bad);
        }
        for (i64 n = 0; n < call.edges_size + 4; n++) statistics.add(entropy - call.edges_size - 1 + n, 0, 0, bad);
        const double sum = largest + log(total);
        lse.add(line, sum, off + ROUNDINGS * unit * fabs(sum), bad);
        // Backward, for the output and the logarithm that the kernel was given.
        // Where a bias has a gradient, and in half precision, the kernel makes the output anew instead of reading the rounded one.
        if (r.dtable || r.dslope || r.dcontent || r.dtotal || call.dtype == BFLOAT16 || call.dtype == FLOAT16) {
          std::fill(o.begin(), o.end(), 0.0);
          for (i64 j = 0; j < J; j++)
            for (i64 d = 0; d < D && seen[(size_t)j]; d++)
              o[(size_t)d] += weight[(size_t)j] / total * value_of(j, d);
          // Its delta is then a sum over keys, whose terms may cancel where each number of the output is small.
          for (i64 j = 0; j < J; j++)
            for (i64 d = 0; d < D && seen[(size_t)j]; d++)
              gout += fabs(weight[(size_t)j] / total * g[(size_t)d]) * value_size(j, d);
        } else {
          for (i64 d = 0; d < D; d++) gout += fabs(g[(size_t)d] * o[(size_t)d]);
        }
        const double given = r.lse.flat(line);
        const bool spoils = bad || bad_grad;
        if (c.sink) {
          const double p = exp(sink - given);
          double delta = 0;
          for (i64 d = 0; d < D; d++) delta += g[(size_t)d] * o[(size_t)d];
          dsink.add(b * H + h, -p * delta, off * gout * p, spoils);
        }
        double dw_i = 0, dw_off = 0;
        for (i64 j = 0; j < J; j++) {
          if (!seen[(size_t)j]) continue;
          const size_t J_ = (size_t)j;
          const double p = exp(logit[J_] - given);
          double change = 0, size = gout;
          for (i64 d = 0; d < D; d++) {
            change += g[(size_t)d] * (value_of(j, d) - o[(size_t)d]);
            size += fabs(g[(size_t)d]) * value_size(j, d);
          }
          change *= p;
          const double wrong = off * size * p;
          Turned to_q = k[J_], to_k = q;
          to_q.turn(call, c.turn_q, b, i, true);
          to_k.turn(call, c.turn_k, b, j, true);
          for (i64 d = 0; d < D; d++) {
            const size_t D_ = (size_t)d;
            const i64 at = ((b * call.kv_heads + kv) * J + j) * D + d;
            dq.add(line * D + d, change * to_q.value[D_] * call.scale, wrong * to_q.size[D_] * call.scale, spoils);
            dk.add(at, change * to_k.value[D_] * call.scale, wrong * to_k.size[D_] * call.scale, spoils);
            dv.add(at, p * g[(size_t)d], off * p * fabs(g[(size_t)d]), spoils);
          }
          if (c.table) dtable.add(column[J_], change, wrong, spoils);
          if (c.slope) {
            const double uu = u[(size_t)place[J_]], a = c.slope.flat(segment[J_]);
            dslope.add(segment[J_], change * uu * w, wrong * fabs(uu * w), spoils);
            dintercept.add(segment[J_], change, wrong, spoils);
            du.add(place[J_], change * a * w, wrong * fabs(a * w), spoils);
            dw_i += change * a * uu;
            dw_off += wrong * fabs(a * uu);
          }
          for (i64 d = 0; c.vectors && d < C; d++) {
            const double x = c.content(b, h, i, d), y = c.vectors(0, rh, vector[J_], d);
            dcontent.add(line * C + d, change * y, wrong * fabs(y), spoils);
            dvectors.add((rh * kv_.size + vector[J_]) * C + d, change * x, wrong * fabs(x), spoils);
          }
          for (i64 d = 0; c.values && d < D; d++) {
            const double x = p * g[(size_t)d];
            dvalues.add((vh * vv.size + value[J_]) * D + d, x, off * fabs(x), spoils);
          }
          if (c.total) {
            dtotal.add((b * H + h) * J + own, change, wrong, spoils);
            dtotal.add((b * H + h) * J + j, -change, wrong, spoils);
          }
        }
        if (c.slope) dw.add((call.query_scale_batch > 1 ? b : 0) * I + i, dw_i, dw_off, spoils);
      }
    }
  const std::pair<Tensor*, Sums*> both[] = {{&r.out, &out},       {&r.lse, &lse},     {&r.dq, &dq},
                                            {&r.dk, &dk},         {&r.dv, &dv},       {&r.dtable, &dtable},
                                            {&r.dslope, &dslope}, {&r.du, &du},       {&r.dintercept, &dintercept},
                                            {&r.dw, &dw},         {&r.dsink, &dsink}, {&r.statistics, &statistics},
                                            {&r.dcontent, &dcontent}, {&r.dvectors, &dvectors}, {&r.dvalues, &dvalues},
                                            {&r.dtotal, &dtotal}};
  for (auto& one : both)
    if (*one.first) compare(*one.first, *one.second);
}

void require_the_same(Results& one, Results& other) {
  const std::vector<Tensor*> a = one.all(), b = other.all();
  for (size_t n = 0; n < a.size(); n++)
    if (*a[n] && !std::equal(a[n]->buffer->base, a[n]->buffer->base + a[n]->buffer->total, b[n]->buffer->base))
      fail(a[n]->name + " is another with another number of threads, or after other numbers in the kernel's memory");
}

// Memory that is refused: forward and backward say so, and that is all.
void check_without_memory(const Case& c) {
  std::unique_ptr<Results> r = results_for(c, c.seed);
  Call call = c.call;
  call.threads = {nullptr, 1};
  call.target = -1;
  call.out = r->out.view();
  call.lse = r->lse.buffer->at;
  out_of_memory = true;
  const int said = lengthwise_attention(&call);
  out_of_memory = false;
  if (said != 1) fail("there was no memory, and forward does not say so");
}

}  // namespace

#include "networks.h"

int main(int count, char** words) {
  if (count != 3) {
    printf("driver SEED CASES\n");
    return 2;
  }
  const uint64_t seed = strtoull(words[1], nullptr, 10), cases = strtoull(words[2], nullptr, 10);
  const i64 best = lengthwise_target();
  i64 large = 0, not_finite = 0, threaded = 0;
  for (uint64_t n = 0; n < cases; n++) {
    Case c;
    current = &c;
    random_case(seed + n, c);
    large += c.large;
    not_finite += c.is_not_finite;
    for (i64 target = 0; target <= best; target++) {
      if (c.call.dtype == FLOAT64 && target) continue;  // there is one for all
      current_target = target;
      std::unique_ptr<Results> one = results_for(c, c.seed);
      filled_with = 0xFF;
      run_kernel(c, *one, target, {nullptr, 1});
      check_untouched(c, *one);
      check_numbers(c, *one);
      filled_with = 0;
      std::unique_ptr<Results> again = results_for(c, c.seed);
      const i64 before = arenas;
      run_kernel(c, *again, target, {(seed + n) % 2 ? &GOMP_parallel : nullptr, 4});
      threaded += arenas - before > 3;
      check_untouched(c, *again);
      require_the_same(*one, *again);
    }
    if (n % 50 == 0) check_without_memory(c);
    current = nullptr;
    check_network(seed + n);
    check_tables(seed + n);
  }
  if (!buffers_guarded) fail("the kernel's memory has no guards: LENGTHWISE_BUFFER_BYTES is not used");
  printf("%llu cases (%lld with numbers that are not finite, %lld large), targets 0 to %lld: %lld calls, %lld of them pairs "
         "on several threads\n",
         (unsigned long long)cases, (long long)not_finite, (long long)large, (long long)best, (long long)calls,
         (long long)threaded);
  for (const char* name : {"out", "lse", "dq", "dk", "dv", "dtable", "dslope", "dintercept", "du", "dw", "dcontent", "dvectors",
                           "dvalues", "dtotal", "dsink", "statistics"})
    report(name);
  printf("%lld networks (%lld with numbers that are not finite) of %lld pieces, memory refused %lld times\n",
         (long long)networks, (long long)networks_not_finite, (long long)straight_pieces, (long long)refusals);
  for (const char* name : {"lines", "changes", "tables"}) report(name);
  return 0;
}
