// Random networks for segments.cpp: an MLP with ReLUs of one number, its segments, the gradients of its weights through them,
// and those of FIRE's tables, compared with plain loops that do not know how the segments were found.
//
// Of the segments it is asked that knots ascend within (0, 1); that every segment's lines are those of its gates; that the gates
// are what the network says at the middle of the piece, and still at both of its ends (or a knot is missing); and that at
// each knot some neuron is 0 (or it is one too many). To rounding: every line carries what it may be off by.
//
// Among the networks are dead and equal neurons, kinks at the same place and on the edges of [0, 1], numbers that are not
// finite, tiny and huge ones, and layers without neurons. Memory is refused at every place where some is asked for.
//
// Part of driver.cpp, which has Random, Buffer, fail and worst.
#pragma once

#include <cstddef>
#include <new>

#include "segments.h"

namespace {

thread_local i64 until_refused = -1;  // how many times `new` still gives memory; below 0: always
thread_local bool refused = false;

}  // namespace

// ThreadSanitizer has its own, which Clang does not let be replaced: there memory is never refused.
#if defined(__SANITIZE_THREAD__)
#define LENGTHWISE_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LENGTHWISE_TSAN 1
#endif
#endif
#if !defined(LENGTHWISE_TSAN)
void* operator new(size_t size) {
  if (until_refused == 0) {
    refused = true;
    throw std::bad_alloc();
  }
  if (until_refused > 0) until_refused--;
  if (void* at = malloc(size ? size : 1)) return at;
  throw std::bad_alloc();
}
void operator delete(void* at) noexcept { free(at); }
void operator delete(void* at, size_t) noexcept { free(at); }
#endif

namespace {

const double ROUNDED = 2.3e-16;  // half a unit in the last place of 1, twice: segments.cpp and the loops here are both in double

// A value, and what a computation in double may be off by.
struct Near {
  double value = 0, off = 0;
};

struct Network {
  uint64_t seed;
  std::vector<i64> widths;
  bool single, final;
  std::vector<std::unique_ptr<Buffer>> numbers;  // weight and bias of each layer in turn
  std::vector<const void*> at;
  i64 layers() const { return (i64)widths.size() - 1; }
  i64 hidden() const { return layers() - 1 + final; }
  i64 heads() const { return widths.back(); }
  i64 gated() const {
    i64 sum = 0;
    for (i64 n = 0; n < hidden(); n++) sum += widths[(size_t)n + 1];
    return sum;
  }
  i64 size(i64 n) const {  // of numbers[n]
    return widths[(size_t)(n / 2) + 1] * (n % 2 ? 1 : widths[(size_t)(n / 2)]);
  }
  i64 bytes() const { return single ? 4 : 8; }
  double number(i64 which, i64 n) const { return get(numbers[(size_t)which]->at + n * bytes(), single ? FLOAT32 : FLOAT64); }
  double weight(i64 layer, i64 o, i64 i) const { return number(2 * layer, o * widths[(size_t)layer] + i); }
  double bias(i64 layer, i64 o) const { return number(2 * layer + 1, o); }
};

[[noreturn]] void fail_network(const Network& net, const std::string& what) {
  std::string says = what + " (network " + std::to_string(net.seed) + ", widths";
  for (i64 width : net.widths) says += " " + std::to_string(width);
  fail(says + (net.single ? ", float32" : ", float64") + (net.final ? ", with a final ReLU)" : ")"));
}

struct Array {  // numbers with guards around them
  Buffer buffer;
  Array(Random& random, size_t count, size_t bytes) : buffer(count * bytes, (size_t)random.from(0, 7) * bytes, random.often(0.5)) {}
  double* numbers() { return (double*)buffer.at; }
  const double* numbers() const { return (const double*)buffer.at; }
};

void random_network(uint64_t seed, Random& random, Network& net) {
  net.seed = seed;
  net.single = random.often(0.6);
  net.final = random.often(0.3);
  const i64 layers = random.of<i64>({1, 2, 2, 2, 3, 3, 3, 4});
  const bool wide = random.often(0.06), odd = random.often(0.05);
  net.widths = {1};
  for (i64 n = 0; n < layers; n++)
    net.widths.push_back(odd && random.often(0.5) ? 0 : wide ? random.from(16, layers > 2 ? 33 : 64) : random.from(1, 9));
  const double size = random.of<double>({1, 1, 1, 1e-3, 100, 1e25, 1e-41});
  const int kind = (int)random.from(0, 5);  // 1: kinks at eighths, 2: many numbers are 0, 3: many dead, 4: neurons alike
  const bool not_finite = random.often(0.15);
  for (i64 n = 0; n < 2 * layers; n++) {
    const i64 count = net.size(n), in = net.widths[(size_t)(n / 2)];
    net.numbers.emplace_back(new Buffer((size_t)(count * net.bytes()), (size_t)(random.from(0, 15) * net.bytes()), random.often(0.5)));
    net.at.push_back(count ? net.numbers.back()->at : nullptr);
    for (i64 x = 0; x < count; x++) {
      double value = size * random.normal();
      if (kind == 1) value = (double)random.from(-8, 8) / (n < 2 ? 1 : 8);
      if (kind == 1 && n == 1) value = -net.number(0, x) * (double)random.from(-1, 9) / 8;
      if (kind == 2 && random.often(0.4)) value = random.often(0.5) ? 0.0 : -0.0;
      if (kind == 3 && n % 2 && random.often(0.5)) value = -200 * size;
      if (kind == 4 && x >= (n % 2 ? 1 : in) && random.often(0.6)) value = net.number(n, x - (n % 2 ? 1 : in));
      if (not_finite && random.often(0.03)) value = random.of<double>({NAN, INFINITY, -INFINITY});
      put(net.numbers.back()->at + x * net.bytes(), net.single ? FLOAT32 : FLOAT64, value);
    }
  }
}

// What segments.cpp said.
struct Found {
  i64 count;
  Array slope, intercept, knots, gates;
  Found(Random& random, const Network& net, i64 room)
      : count(-2),
        slope(random, (size_t)(net.heads() * room), 8),
        intercept(random, (size_t)(net.heads() * room), 8),
        knots(random, (size_t)(room > 0 ? room - 1 : 0), 8),
        gates(random, (size_t)(net.gated() * room), 1) {}
  void ask(const Network& net, i64 room) {
    count = lengthwise_pieces(net.layers(), net.widths.data(), net.at.data(), net.single, net.final, room, slope.numbers(),
                              intercept.numbers(), knots.numbers(), (uint8_t*)gates.buffer.at);
  }
  bool open(const Network& net, i64 p, i64 layer, i64 n) const {
    i64 before = 0;
    for (i64 l = 0; l < layer; l++) before += net.widths[(size_t)l + 1];
    return ((const uint8_t*)gates.buffer.at)[p * net.gated() + before + n] != 0;
  }
  double edge(i64 n) const { return n == 0 ? 0 : n == count ? 1 : knots.numbers()[n - 1]; }
  bool guarded() const {
    return slope.buffer.guarded() && intercept.buffer.guarded() && knots.buffer.guarded() && gates.buffer.guarded();
  }
  bool equals(const Found& other, const Network& net) const {
    auto same = [&](const Array& a, const Array& b, i64 bytes) { return !memcmp(a.buffer.at, b.buffer.at, (size_t)bytes); };
    return count == other.count && same(slope, other.slope, net.heads() * count * 8) &&
           same(intercept, other.intercept, net.heads() * count * 8) && same(knots, other.knots, (count - 1) * 8) &&
           same(gates, other.gates, net.gated() * count);
  }
};

i64 networks = 0, networks_not_finite = 0, straight_pieces = 0, refusals = 0;

void compare_network(const Network& net, const char* name, double got, const Near& wanted, bool single) {
  const double expected = single ? (double)(float)wanted.value : wanted.value;
  if (expected != expected && got != got) return;
  if (std::isinf(expected) && got == expected) return;
  const double allowed = wanted.off + (single ? fabs(expected) * 1.2e-7 + 1e-44 : 0) + 1e-290, off = fabs(got - expected);
  Worst& record = worst[name];
  record.numbers++;
  if (off <= allowed) {
    if (!single) record.ratio = std::max(record.ratio, off / allowed);
    return;
  }
  char text[200];
  snprintf(text, sizeof text, "%s is %.17g, and has to be %.17g to %.1e", name, got, expected, allowed);
  fail_network(net, text);
}

// Slope and intercept of every neuron in one piece, before its ReLU and behind it: [layer][neuron].
struct Lines {
  std::vector<std::vector<Near>> slope, intercept, open_slope, open_intercept;
};

Lines lines_of(const Network& net, const Found& found, i64 p) {
  Lines lines;
  for (i64 n = 0; n < net.layers(); n++) {
    std::vector<Near> slopes, intercepts;
    const i64 in = net.widths[(size_t)n];
    for (i64 o = 0; o < net.widths[(size_t)n + 1]; o++) {
      Near slope, intercept;
      double sizes[2] = {0, fabs(net.bias(n, o))};
      intercept.value = net.bias(n, o);
      if (n == 0) slope.value = net.weight(0, o, 0);
      for (i64 i = 0; n > 0 && i < in; i++) {
        const Near &a = lines.open_slope.back()[(size_t)i], &b = lines.open_intercept.back()[(size_t)i];
        const double weight = net.weight(n, o, i);
        slope.value += weight * a.value;
        slope.off += fabs(weight) * a.off;
        sizes[0] += fabs(weight * a.value);
        intercept.value += weight * b.value;
        intercept.off += fabs(weight) * b.off;
        sizes[1] += fabs(weight * b.value);
      }
      if (n > 0) {
        slope.off += (double)(in + 3) * ROUNDED * sizes[0];
        intercept.off += (double)(in + 3) * ROUNDED * sizes[1];
      }
      slopes.push_back(slope);
      intercepts.push_back(intercept);
    }
    lines.slope.push_back(slopes);
    lines.intercept.push_back(intercepts);
    for (size_t o = 0; o < slopes.size() && n < net.hidden(); o++) {
      const double open = found.open(net, p, n, (i64)o);  // 0 times infinity is no number
      slopes[o] = {slopes[o].value * open, slopes[o].off * open};
      intercepts[o] = {intercepts[o].value * open, intercepts[o].off * open};
    }
    lines.open_slope.push_back(slopes);
    lines.open_intercept.push_back(intercepts);
  }
  return lines;
}

Near line_at(const Near& slope, const Near& intercept, double x) {
  return {intercept.value + slope.value * x,
          intercept.off + slope.off * x + 4 * ROUNDED * (fabs(intercept.value) + fabs(slope.value * x)) + 1e-290};
}

void check_piece(const Network& net, const Found& found, i64 p, const Lines& lines, std::vector<char>& explained) {
  const double from = found.edge(p), to = found.edge(p + 1), middle = (from + to) / 2;
  for (i64 n = 0; n < net.hidden(); n++)
    for (i64 o = 0; o < net.widths[(size_t)n + 1]; o++) {
      const Near &slope = lines.slope[(size_t)n][(size_t)o], &intercept = lines.intercept[(size_t)n][(size_t)o];
      const bool open = found.open(net, p, n, o);
      const Near there = line_at(slope, intercept, middle);
      if (!std::isfinite(there.value)) {
        if (open != (there.value > 0)) fail_network(net, "a gate is wrong where a neuron is not finite");
        continue;
      }
      if (fabs(there.value) > there.off && open != (there.value > 0)) fail_network(net, "a gate is wrong");
      for (double x : {from, to}) {
        const Near end = line_at(slope, intercept, x);
        if (open ? end.value < -end.off : end.value > end.off) fail_network(net, "a knot is missing");
        if (fabs(end.value) <= end.off) explained[(size_t)(x == from ? p : p + 1)] = 1;
      }
    }
  for (i64 h = 0; h < net.heads(); h++) {
    const size_t last = (size_t)net.layers() - 1;
    const bool gated = net.final;
    const Near& slope = (gated ? lines.open_slope : lines.slope)[last][(size_t)h];
    const Near& intercept = (gated ? lines.open_intercept : lines.intercept)[last][(size_t)h];
    compare_network(net, "lines", found.slope.numbers()[h * found.count + p], slope, false);
    compare_network(net, "lines", found.intercept.numbers()[h * found.count + p], intercept, false);
  }
}

// Gradients of all numbers, as sums over pieces of what comes back to a neuron times what went into it.
struct Back {
  std::vector<std::vector<Near>> of;  // as Network::numbers
  std::vector<std::vector<double>> size;
};

void add_change(Near& to, double& size, const Near& back, const Near& into) {
  to.value += back.value * into.value;
  to.off += fabs(back.value) * into.off + back.off * fabs(into.value) + back.off * into.off;
  size += fabs(back.value * into.value);
}

void back_through(const Network& net, const Found& found, i64 p, const Lines& lines, const double* of_slope,
                  const double* of_intercept, Back& all) {
  std::vector<Near> a, b;
  for (i64 h = 0; h < net.heads(); h++) {
    const double open = net.final ? found.open(net, p, net.layers() - 1, h) : 1;
    a.push_back({of_slope[h * found.count + p] * open, 0});
    b.push_back({of_intercept[h * found.count + p] * open, 0});
  }
  for (i64 n = net.layers() - 1; n >= 0; n--) {
    const i64 in = net.widths[(size_t)n], out = net.widths[(size_t)n + 1];
    std::vector<Near> before_a((size_t)in), before_b((size_t)in);
    std::vector<double> size_a((size_t)in), size_b((size_t)in);
    for (i64 o = 0; o < out; o++) {
      const size_t O = (size_t)o, weights = (size_t)(2 * n);
      add_change(all.of[weights + 1][O], all.size[weights + 1][O], b[O], {1, 0});
      if (n == 0) add_change(all.of[0][O], all.size[0][O], a[O], {1, 0});
      for (i64 i = 0; n > 0 && i < in; i++) {
        const size_t at = (size_t)(o * in + i);
        add_change(all.of[weights][at], all.size[weights][at], a[O], lines.open_slope[(size_t)n - 1][(size_t)i]);
        add_change(all.of[weights][at], all.size[weights][at], b[O], lines.open_intercept[(size_t)n - 1][(size_t)i]);
        const Near weight = {net.weight(n, o, i), 0};
        add_change(before_a[(size_t)i], size_a[(size_t)i], a[O], weight);
        add_change(before_b[(size_t)i], size_b[(size_t)i], b[O], weight);
      }
    }
    for (i64 i = 0; n > 0 && i < in; i++) {
      const double open = found.open(net, p, n - 1, i), terms = (double)(out + 3) * ROUNDED;
      before_a[(size_t)i] = {before_a[(size_t)i].value * open, (before_a[(size_t)i].off + terms * size_a[(size_t)i]) * open};
      before_b[(size_t)i] = {before_b[(size_t)i].value * open, (before_b[(size_t)i].off + terms * size_b[(size_t)i]) * open};
    }
    a = before_a;
    b = before_b;
  }
}

typedef std::vector<std::unique_ptr<Buffer>> Gradients;

i64 ask_back(Random& random, const Network& net, const Found& found, const Array& of_slope, const Array& of_intercept,
             Gradients& gradients, i64 refused_after = -1) {
  std::vector<void*> at;
  gradients.clear();
  for (i64 n = 0; n < 2 * net.layers(); n++) {
    gradients.emplace_back(new Buffer((size_t)(net.size(n) * net.bytes()), (size_t)(random.from(0, 7) * net.bytes()), random.often(0.5)));
    at.push_back(gradients.back()->at);
  }
  refused = false;
  until_refused = refused_after;
  const i64 said = lengthwise_pieces_backward(net.layers(), net.widths.data(), net.at.data(), net.single, net.final,
                                              found.count, of_slope.numbers(), of_intercept.numbers(),
                                              (const uint8_t*)found.gates.buffer.at, at.data());
  until_refused = -1;
  return said;
}


void check_gradients(Random& random, const Network& net, const Found& found, const std::vector<Lines>& lines) {
  const size_t count = (size_t)(net.heads() * found.count);
  Array of_slope(random, count, 8), of_intercept(random, count, 8);
  const double odd = random.often(0.05) ? 0.05 : 0;
  for (Array* one : {&of_slope, &of_intercept})
    for (size_t n = 0; n < count; n++)
      one->numbers()[n] = random.often(odd) ? random.of<double>({NAN, INFINITY, -INFINITY}) : random.normal();
  Gradients got, again;
  if (ask_back(random, net, found, of_slope, of_intercept, got)) fail_network(net, "backward has no memory");
  if (ask_back(random, net, found, of_slope, of_intercept, again)) fail_network(net, "backward has no memory");
  Back wanted;
  for (i64 n = 0; n < 2 * net.layers(); n++) {
    wanted.of.emplace_back((size_t)net.size(n));
    wanted.size.emplace_back((size_t)net.size(n));
  }
  for (i64 p = 0; p < found.count; p++)
    back_through(net, found, p, lines[(size_t)p], of_slope.numbers(), of_intercept.numbers(), wanted);
  for (i64 n = 0; n < 2 * net.layers(); n++) {
    const Buffer &one = *got[(size_t)n], &other = *again[(size_t)n];
    if (!one.guarded() || !other.guarded()) fail_network(net, "backward wrote past the end of a gradient");
    if (memcmp(one.at, other.at, one.size)) fail_network(net, "a gradient is another in a second call");
    for (i64 x = 0; x < net.size(n); x++) {
      Near sum = wanted.of[(size_t)n][(size_t)x];
      sum.off += (double)(2 * found.count + 3) * ROUNDED * wanted.size[(size_t)n][(size_t)x];
      compare_network(net, "changes", get(one.at + x * net.bytes(), net.single ? FLOAT32 : FLOAT64), sum, net.single);
    }
  }
  if (random.often(0.9)) return;
  for (i64 n = 0;; n++, refusals++) {
    const i64 said = ask_back(random, net, found, of_slope, of_intercept, again, n);
    if (said != refused) fail_network(net, "there was no memory, and backward does not say so");
    if (!refused) break;
  }
}

void check_network(uint64_t seed) {
  Random random = {seed * 0x9e3779b97f4a7c15u + 7};
  Network net;
  random_network(seed, random, net);
  networks++;
  std::vector<std::string> before;
  for (auto& x : net.numbers) before.emplace_back(x->base, x->total);
  Found none(random, net, 0);
  none.ask(net, 0);
  const i64 many = none.count;
  if (many < 1) fail_network(net, "there are " + std::to_string(many) + " pieces");
  Found found(random, net, many), roomy(random, net, many + random.from(1, 9));
  found.ask(net, many);
  std::thread beside([&] { roomy.ask(net, many + 1); });  // at once with the call below
  Found small(random, net, many - 1);
  small.ask(net, many - 1);
  beside.join();
  if (found.count != many || small.count != many || !found.equals(roomy, net)) fail_network(net, "room changes the pieces");
  for (const Found* one : {&none, &found, &roomy, &small})
    if (!one->guarded()) fail_network(net, "pieces were written past the end of their room");
  for (size_t x = 0; x < small.slope.buffer.size; x++)
    if ((unsigned char)small.slope.buffer.at[x] != UNWRITTEN) fail_network(net, "pieces were written where there is no room");
  std::vector<Lines> lines;
  std::vector<char> explained((size_t)many + 1);
  bool finite = true;
  for (i64 n = 0; n < 2 * net.layers(); n++)
    for (i64 x = 0; x < net.size(n); x++) finite &= std::isfinite(net.number(n, x));
  networks_not_finite += !finite;
  straight_pieces += many;
  for (i64 p = 0; p < many; p++) {
    if (!(found.edge(p) <= found.edge(p + 1)) || (p && !(found.edge(p) > 0 && found.edge(p) < 1)))
      fail_network(net, "knots do not ascend within (0, 1)");
    lines.push_back(lines_of(net, found, p));
    check_piece(net, found, p, lines.back(), explained);
  }
  for (i64 p = 1; p < many; p++)
    if (!explained[(size_t)p]) fail_network(net, "there is a knot where no neuron is 0");
  check_gradients(random, net, found, lines);
  for (size_t x = 0; x < before.size(); x++)
    if (before[x] != std::string(net.numbers[x]->base, net.numbers[x]->total)) fail_network(net, "weights were changed");
  for (i64 n = 0; random.state % 10 == 0; n++, refusals++) {
    refused = false;
    until_refused = n;
    found.ask(net, many);
    until_refused = -1;
    if (found.count != (refused ? -1 : many)) fail_network(net, "there was no memory, and the pieces do not say so");
    if (!refused) break;
  }
}

void check_table_values(double size, double threshold, double L, double eps, const std::vector<i64>& distance,
                        const std::vector<i64>& query, Array& u, Array& w, uint64_t seed) {
  lengthwise_fire_tables(size, threshold, L, eps, distance.data(), (i64)distance.size(), query.data(), (i64)query.size(),
                         u.numbers(), w.numbers());
  const long double c = size, whole = log1pl(c * L), unit = whole > 0 ? whole : 1;
  bool right = u.buffer.guarded() && w.buffer.guarded();
  for (size_t n = 0; n < distance.size(); n++) {
    const long double value = log1pl(c * (long double)distance[n]) / unit;
    right &= fabsl(u.numbers()[n] - value) <= ROUNDED * 20 * fabsl(value);
  }
  for (size_t n = 0; n < query.size(); n++) {
    const long double divisor = log1pl(c * std::max((long double)query[n], (long double)threshold)) + eps;
    const long double value = unit / (divisor > 0 ? divisor : 1);
    right &= fabsl(w.numbers()[n] - value) <= ROUNDED * 20 * fabsl(value);
  }
  if (!right) fail("FIRE's tables are wrong (tables " + std::to_string(seed) + ")");
}

// FIRE's tables: their values in long double, and the derivatives of u and w by the rule of quotients, added up.
void check_tables(uint64_t seed) {
  Random random = {seed * 0xd1342543de82ef95u + 3};
  const double size = random.of<double>({0.1, 0.1, random.unit(), 1e-9, 0, 1e9});
  const double L = random.of<double>({512, 8, 1e-3, 1e6}), eps = random.of<double>({1e-6, 1e-6, 0, 0.5});
  const i64 distances = random.from(0, 300), queries = random.from(0, 300);
  const double threshold = random.of<double>({L, 0, 20, 200 * random.unit()});
  std::vector<i64> distance, query;
  for (i64 n = 0; n < distances; n++) distance.push_back(random.often(0.95) ? n : (i64)1 << random.from(0, 40));
  for (i64 n = 0; n < queries; n++) query.push_back(random.often(0.95) ? n : (i64)1 << random.from(0, 40));
  Array of_u(random, (size_t)distances, 8), of_w(random, (size_t)queries, 8), to(random, 2, 8);
  check_table_values(size, threshold, L, eps, distance, query, of_u, of_w, seed);
  for (i64 n = 0; n < distances; n++) of_u.numbers()[n] = random.normal();
  for (i64 n = 0; n < queries; n++) of_w.numbers()[n] = random.normal();
  lengthwise_fire_tables_backward(size, threshold, L, eps, distance.data(), distances, query.data(), queries, of_u.numbers(),
                                  of_w.numbers(), to.numbers());
  const double c = size, whole = log1p(c * L), unit = whole > 0 ? whole : 1, of_unit = whole > 0 ? L / (1 + c * L) : 0;
  double sum[2] = {0, 0}, sizes[2] = {0, 0};
  auto add = [&](int which, double x, double y) { sum[which] += x - y, sizes[which] += fabs(x) + fabs(y); };
  for (i64 n = 0; n < distances; n++) {
    const double d = (double)distance[(size_t)n], psi = log1p(c * d), by = of_u.numbers()[n];
    add(0, by * d / (1 + c * d) / unit, by * psi * of_unit / (unit * unit));
  }
  for (i64 n = 0; n < queries; n++) {
    const double own = (double)query[(size_t)n], reached = std::max(own, (double)threshold), psi = log1p(c * reached);
    const double value = psi + eps, by = of_w.numbers()[n];
    if (value <= 0) {
      add(0, by * of_unit, 0);
      continue;
    }
    const double slope = by * unit / (value * value * (1 + c * reached));
    add(0, by * of_unit / value, slope * reached);
    add(1, 0, slope * c * (threshold > own ? 1 : threshold == own ? 0.5 : 0));
  }
  for (int which = 0; which < 2; which++) {
    const double allowed = (double)(distances + queries + 20) * ROUNDED * sizes[which] + 1e-290;
    const double off = fabs(to.numbers()[which] - sum[which]);
    Worst& record = worst["tables"];
    record.numbers++;
    record.ratio = std::max(record.ratio, off / allowed);
    if (off <= allowed && to.buffer.guarded()) continue;
    char text[200];
    snprintf(text, sizeof text, "FIRE's gradient %d is %.17g, and has to be %.17g to %.1e (tables %llu)", which,
             to.numbers()[which], sum[which], allowed, (unsigned long long)seed);
    fail(text);
  }
}

}  // namespace
