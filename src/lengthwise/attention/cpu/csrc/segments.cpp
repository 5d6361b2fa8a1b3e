// The straight pieces of a ReLU MLP of one number, on [0, 1], and the gradients of its weights through them; and FIRE's
// gradients through its tables. What encodings/piecewise.py and encodings/fire.py say in PyTorch, in the same order of
// steps and in float64: there dozens of operations on a few numbers each take longer than the numbers themselves.
//
// An MLP has `layers` layers; `widths` are its layers + 1 sizes, the first of them 1. `numbers` are weight [out, in] and bias [out]
// of each in turn, all float32 or all float64. Plain C at the border: no header of torch.

#include <math.h>
#include <stdint.h>

#include <algorithm>
#include <new>
#include <vector>

typedef int64_t i64;

namespace {

typedef std::vector<double> Numbers;

// Lines: of every neuron in every piece its slope and its intercept, [pieces, width] each.
struct Lines {
  Numbers slope, intercept;
};

struct Layer {
  i64 in, out;
  Numbers weight, turned, bias;  // turned: [in, out]
};

template <class T>
void read_layers(i64 layers, const i64* widths, const void* const* numbers, std::vector<Layer>& to) {
  to.resize((size_t)layers);
  for (i64 n = 0; n < layers; n++) {
    Layer& layer = to[(size_t)n];
    layer.in = widths[n];
    layer.out = widths[n + 1];
    const T *weight = (const T*)numbers[2 * n], *bias = (const T*)numbers[2 * n + 1];
    layer.weight.assign(weight, weight + layer.out * layer.in);
    layer.bias.assign(bias, bias + layer.out);
    layer.turned.resize(layer.weight.size());
    for (i64 o = 0; o < layer.out; o++)
      for (i64 i = 0; i < layer.in; i++)
        layer.turned[(size_t)(i * layer.out + o)] = layer.weight[(size_t)(o * layer.in + i)];
  }
}

// to[n] += by * from[n]
inline void add(double by, const double* __restrict from, double* __restrict to, i64 count) {
  for (i64 n = 0; n < count; n++) to[n] += by * from[n];
}
inline void add_both(double a, const double* __restrict x, double b, const double* __restrict y, double* __restrict to,
                     i64 count) {
  for (i64 n = 0; n < count; n++) to[n] += a * x[n] + b * y[n];
}

// What a layer makes of lines [pieces, in].
void pass(const Layer& layer, const Lines& from, i64 pieces, Lines& to) {
  to.slope.assign((size_t)(pieces * layer.out), 0.0);
  to.intercept.resize((size_t)(pieces * layer.out));
  for (i64 p = 0; p < pieces; p++) {
    double *slope = to.slope.data() + p * layer.out, *intercept = to.intercept.data() + p * layer.out;
    std::copy(layer.bias.begin(), layer.bias.end(), intercept);
    for (i64 i = 0; i < layer.in; i++) {  // gated off or not: infinity times 0 is no number here either
      const double* column = layer.turned.data() + i * layer.out;
      add(from.slope[(size_t)(p * layer.in + i)], column, slope, layer.out);
      add(from.intercept[(size_t)(p * layer.in + i)], column, intercept, layer.out);
    }
  }
}

void begin(const Layer& first, Lines& lines) {
  lines.slope = first.weight;
  lines.intercept = first.bias;
}

void gate(const uint8_t* gates, i64 step, i64 pieces, i64 width, Lines& lines) {
  for (i64 p = 0; p < pieces; p++)
    for (i64 n = 0; n < width; n++) {
      lines.slope[(size_t)(p * width + n)] *= gates[p * step + n];
      lines.intercept[(size_t)(p * width + n)] *= gates[p * step + n];
    }
}

// Rows of `from` [.., width] in a new order.
template <class X>
std::vector<X> chosen(const std::vector<X>& from, const std::vector<i64>& of, i64 width) {
  std::vector<X> to(of.size() * (size_t)width);
  for (size_t p = 0; p < of.size(); p++) std::copy_n(from.begin() + of[p] * width, width, to.begin() + (i64)p * width);
  return to;
}

// Splits the pieces at the zeros of all neurons; of each new piece its middle, and which it is a part of.
void split(const Lines& lines, i64 width, Numbers& edges, Numbers& middle, std::vector<i64>& of) {
  const Numbers before = edges;
  for (size_t p = 0; p + 1 < before.size(); p++)
    for (i64 n = 0; n < width; n++) {
      const size_t at = p * (size_t)width + (size_t)n;
      const double zero = -lines.intercept[at] / lines.slope[at];
      if (zero > before[p] && zero < before[p + 1]) edges.push_back(zero);
    }
  std::sort(edges.begin(), edges.end());
  middle.resize(edges.size() - 1);
  of.resize(edges.size() - 1);
  i64 own = 0;
  for (size_t p = 0; p < middle.size(); p++) {
    middle[p] = (edges[p] + edges[p + 1]) / 2;
    while (before[(size_t)own + 1] < middle[p]) own++;
    of[p] = own;
  }
}

// The pieces of an MLP: the last layer's lines, the edges of all pieces, and for every ReLU which neurons it lets through,
// [pieces, width] each.
struct Pieces {
  Lines lines;
  Numbers edges = {0.0, 1.0};
  std::vector<std::vector<uint8_t>> gates;

  explicit Pieces(const std::vector<Layer>& layers, bool final) {
    begin(layers[0], lines);
    for (size_t n = 1; n < layers.size() + final; n++) {
      const i64 width = layers[n - 1].out;
      Numbers middle;
      std::vector<i64> of;
      split(lines, width, edges, middle, of);
      for (size_t m = 0; m < gates.size(); m++) gates[m] = chosen(gates[m], of, layers[m].out);
      lines = {chosen(lines.slope, of, width), chosen(lines.intercept, of, width)};
      std::vector<uint8_t> open(lines.slope.size());
      for (size_t x = 0; x < open.size(); x++)
        open[x] = lines.intercept[x] + lines.slope[x] * middle[x / (size_t)width] > 0;
      gates.push_back(open);
      gate(open.data(), width, count(), width, lines);
      if (n == layers.size()) break;
      Lines next;
      pass(layers[n], lines, count(), next);
      lines = next;
    }
  }
  i64 count() const { return (i64)edges.size() - 1; }
};

template <class T>
i64 find(i64 layers, const i64* widths, const void* const* numbers, bool final, i64 room, double* slope,
         double* intercept, double* knots, uint8_t* gates) {
  std::vector<Layer> own;
  read_layers<T>(layers, widths, numbers, own);
  const Pieces found(own, final);
  const i64 count = found.count(), heads = widths[layers];
  if (count > room) return count;
  for (i64 h = 0; h < heads; h++)
    for (i64 p = 0; p < count; p++) {
      slope[h * count + p] = found.lines.slope[(size_t)(p * heads + h)];
      intercept[h * count + p] = found.lines.intercept[(size_t)(p * heads + h)];
    }
  std::copy(found.edges.begin() + 1, found.edges.end() - 1, knots);
  for (i64 p = 0; p < count; p++)
    for (size_t n = 0; n < found.gates.size(); n++) {
      const i64 width = widths[n + 1];
      gates = std::copy_n(found.gates[n].begin() + p * width, width, gates);
    }
  return count;
}

template <class T>
void write(const Numbers& from, void* to) {
  for (size_t n = 0; n < from.size(); n++) ((T*)to)[n] = (T)from[n];
}

template <class T>
void pass_back(i64 layers, const i64* widths, const void* const* numbers, bool final, i64 count, const double* of_slope,
               const double* of_intercept, const uint8_t* gates, void* const* gradients) {
  std::vector<Layer> own;
  read_layers<T>(layers, widths, numbers, own);
  const i64 hidden = layers - 1 + final, heads = widths[layers];
  i64 step = 0;
  std::vector<const uint8_t*> open;
  for (i64 n = 0; n < hidden; n++) {
    open.push_back(gates + step);
    step += widths[n + 1];
  }
  std::vector<Lines> into((size_t)(layers - 1));  // what goes into each layer but the first
  Lines lines, next;
  begin(own[0], next);
  for (i64 p = 0; p < count && layers > 1; p++) {  // the same in every piece
    lines.slope.insert(lines.slope.end(), next.slope.begin(), next.slope.end());
    lines.intercept.insert(lines.intercept.end(), next.intercept.begin(), next.intercept.end());
  }
  for (i64 n = 1; n < layers; n++) {
    gate(open[(size_t)n - 1], step, count, widths[n], lines);
    into[(size_t)n - 1] = lines;
    if (n + 1 == layers) break;
    pass(own[(size_t)n], lines, count, next);
    lines = next;
  }
  Lines change = {Numbers((size_t)(count * heads)), Numbers((size_t)(count * heads))};
  for (i64 p = 0; p < count; p++)
    for (i64 h = 0; h < heads; h++) {
      change.slope[(size_t)(p * heads + h)] = of_slope[h * count + p];
      change.intercept[(size_t)(p * heads + h)] = of_intercept[h * count + p];
    }
  if (final) gate(open.back(), step, count, heads, change);
  for (i64 n = layers - 1; n >= 0; n--) {
    const Layer& layer = own[(size_t)n];
    Numbers of_weight((size_t)(layer.out * layer.in)), of_bias((size_t)layer.out);
    Lines before = {Numbers((size_t)(count * layer.in)), Numbers((size_t)(count * layer.in))};
    for (i64 p = 0; p < count; p++)
      for (i64 o = 0; o < layer.out; o++) {
        const double a = change.slope[(size_t)(p * layer.out + o)], b = change.intercept[(size_t)(p * layer.out + o)];
        of_bias[(size_t)o] += b;
        if (n == 0) {
          of_weight[(size_t)o] += a;
          continue;
        }
        const Lines& given = into[(size_t)n - 1];
        const i64 at = p * layer.in, row = o * layer.in;
        add_both(a, given.slope.data() + at, b, given.intercept.data() + at, of_weight.data() + row, layer.in);
        add(a, layer.weight.data() + row, before.slope.data() + at, layer.in);
        add(b, layer.weight.data() + row, before.intercept.data() + at, layer.in);
      }
    write<T>(of_weight, gradients[2 * n]);
    write<T>(of_bias, gradients[2 * n + 1]);
    if (n > 0) gate(open[(size_t)n - 1], step, count, layer.in, before);
    change = before;
  }
}

}  // namespace

#define OFFERED extern "C" __attribute__((visibility("default")))

// How many pieces there are, or -1 when memory ran out. Where there is room for them: slope, intercept [heads, pieces],
// knots [pieces - 1], and gates [pieces, the widths behind every ReLU], all without gaps.
OFFERED i64 lengthwise_pieces(i64 layers, const i64* widths, const void* const* numbers, i64 single, i64 final, i64 room,
                              double* slope, double* intercept, double* knots, uint8_t* gates) {
  try {
    return single ? find<float>(layers, widths, numbers, final != 0, room, slope, intercept, knots, gates)
                  : find<double>(layers, widths, numbers, final != 0, room, slope, intercept, knots, gates);
  } catch (const std::bad_alloc&) {
    return -1;
  }
}

// The gradient of every number, of its own type. 0 when done, 1 when memory ran out.
OFFERED i64 lengthwise_pieces_backward(i64 layers, const i64* widths, const void* const* numbers, i64 single, i64 final,
                                       i64 pieces, const double* of_slope, const double* of_intercept,
                                       const uint8_t* gates, void* const* gradients) {
  try {
    if (single)
      pass_back<float>(layers, widths, numbers, final != 0, pieces, of_slope, of_intercept, gates, gradients);
    else
      pass_back<double>(layers, widths, numbers, final != 0, pieces, of_slope, of_intercept, gates, gradients);
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

// FIRE: gradients of |c| (to[0]) and of the threshold |multiplier| L (to[1]) through u = log1p(|c| distance) / unit and
// w = unit / (log1p(|c| max(threshold, query)) + eps), with unit = log1p(|c| L); both 1 where they are not more than 0.
OFFERED void lengthwise_fire_tables_backward(double size, double threshold, double L, double eps, const i64* distance,
                                             i64 distances, const i64* query, i64 queries, const double* of_u,
                                             const double* of_w, double* to) {
  const double own_unit = log1p(size * L), unit = own_unit <= 0 ? 1 : own_unit;
  const double of_own = own_unit <= 0 ? 0 : L / (1 + size * L);
  double of_size = 0, of_unit = 0, of_threshold = 0;
  for (i64 n = 0; n < distances; n++) {
    const double far = (double)distance[n];
    of_size += of_u[n] * (far / (1 + size * far)) / unit;
    of_unit -= of_u[n] * log1p(size * far) / (unit * unit);
  }
  for (i64 n = 0; n < queries; n++) {
    const double own = (double)query[n], reached = threshold > own || threshold != threshold ? threshold : own;
    const double value = log1p(size * reached) + eps, over = value <= 0 ? 1 : 1 / value;
    of_unit += of_w[n] * over;
    if (value <= 0) continue;
    const double of_inner = -of_w[n] * over * over * unit / (1 + size * reached);
    of_size += of_inner * reached;
    // half of it where both are the maximum, as torch has it
    of_threshold += of_inner * (threshold > own ? 1 : threshold == own ? 0.5 : 0) * size;
  }
  to[0] = of_size + of_unit * of_own;
  to[1] = of_threshold;
}
