// The segments of an MLP with ReLUs, and the gradients of its parameters through them; and FIRE's gradients through its tables.
//
// encodings/piecewise.py and encodings/fire.py define these computations in PyTorch. Here they are the same steps in the same
// order, in float64. PyTorch takes longer for dozens of operations on a few numbers each than the arithmetic itself takes.
//
// The segments are found layer by layer. Before a ReLU, every neuron is linear in each segment found so far. Wherever one of
// them crosses 0 inside a segment, the segment is split there; after that each ReLU is either open or closed in a whole
// segment.

#include "segments.h"

#include <math.h>

#include <algorithm>
#include <new>
#include <vector>

namespace {

typedef std::vector<double> Numbers;

// The slope and intercept of every neuron in every segment, [segments, width] each.
struct Lines {
  Numbers slope, intercept;
};

struct Layer {
  i64 in, out;
  Numbers weight, transposed_weight, bias;
};

template <class T>
void read_layers(i64 layers, const i64* widths, const void* const* parameters, std::vector<Layer>& to) {
  to.resize((size_t)layers);
  for (i64 n = 0; n < layers; n++) {
    Layer& layer = to[(size_t)n];
    layer.in = widths[n];
    layer.out = widths[n + 1];
    const T *weight = (const T*)parameters[2 * n], *bias = (const T*)parameters[2 * n + 1];
    layer.weight.assign(weight, weight + layer.out * layer.in);
    layer.bias.assign(bias, bias + layer.out);
    layer.transposed_weight.resize(layer.weight.size());
    for (i64 o = 0; o < layer.out; o++)
      for (i64 i = 0; i < layer.in; i++)
        layer.transposed_weight[(size_t)(i * layer.out + o)] = layer.weight[(size_t)(o * layer.in + i)];
  }
}

// to[n] += factor * from[n]
inline void add(double factor, const double* __restrict from, double* __restrict to, i64 count) {
  for (i64 n = 0; n < count; n++) to[n] += factor * from[n];
}
// to[n] += a * x[n] + b * y[n]
inline void add_both(double a, const double* __restrict x, double b, const double* __restrict y, double* __restrict to,
                     i64 count) {
  for (i64 n = 0; n < count; n++) to[n] += a * x[n] + b * y[n];
}

// The lines after the first layer: its input is x itself, in one segment.
void first_layer(const Layer& layer, Lines& lines) {
  lines.slope = layer.weight;
  lines.intercept = layer.bias;
}

// The lines after a linear layer, from the lines before it.
void apply_layer(const Layer& layer, const Lines& from, i64 segments, Lines& to) {
  to.slope.assign((size_t)(segments * layer.out), 0.0);
  to.intercept.resize((size_t)(segments * layer.out));
  for (i64 s = 0; s < segments; s++) {
    double *slope = to.slope.data() + s * layer.out, *intercept = to.intercept.data() + s * layer.out;
    std::copy(layer.bias.begin(), layer.bias.end(), intercept);
    for (i64 i = 0; i < layer.in; i++) {  // closed neurons as well: infinity times 0 is NaN here as it is in PyTorch
      const double* column = layer.transposed_weight.data() + i * layer.out;
      add(from.slope[(size_t)(s * layer.in + i)], column, slope, layer.out);
      add(from.intercept[(size_t)(s * layer.in + i)], column, intercept, layer.out);
    }
  }
}

// Multiplies the lines of every neuron by its gate. The gates of one segment are `stride` after those of the segment before.
void apply_gates(const uint8_t* gates, i64 stride, i64 segments, i64 width, Lines& lines) {
  for (i64 s = 0; s < segments; s++)
    for (i64 n = 0; n < width; n++) {
      lines.slope[(size_t)(s * width + n)] *= gates[s * stride + n];
      lines.intercept[(size_t)(s * width + n)] *= gates[s * stride + n];
    }
}

// The rows of `from` [rows, width] with these indices.
template <class X>
std::vector<X> select_rows(const std::vector<X>& from, const std::vector<i64>& indices, i64 width) {
  std::vector<X> to(indices.size() * (size_t)width);
  for (size_t n = 0; n < indices.size(); n++)
    std::copy_n(from.begin() + indices[n] * width, width, to.begin() + (i64)n * width);
  return to;
}

// Splits the segments at the zeros of all neurons. Fills the middle of each new segment, and the old segment that it is a part
// of.
void split_at_zeros(const Lines& lines, i64 width, Numbers& edges, Numbers& middle, std::vector<i64>& old_segment) {
  const Numbers old_edges = edges;
  for (size_t s = 0; s + 1 < old_edges.size(); s++)
    for (i64 n = 0; n < width; n++) {
      const size_t neuron = s * (size_t)width + (size_t)n;
      const double zero = -lines.intercept[neuron] / lines.slope[neuron];
      if (zero > old_edges[s] && zero < old_edges[s + 1]) edges.push_back(zero);
    }
  std::sort(edges.begin(), edges.end());
  middle.resize(edges.size() - 1);
  old_segment.resize(edges.size() - 1);
  i64 old = 0;
  for (size_t s = 0; s < middle.size(); s++) {
    middle[s] = (edges[s] + edges[s + 1]) / 2;
    while (old_edges[(size_t)old + 1] < middle[s]) old++;
    old_segment[s] = old;
  }
}

// The segments of an MLP: the lines of its last layer, the edges of all segments, and the gates of every ReLU, [segments,
// width] each.
struct Segments {
  Lines lines;
  Numbers edges = {0.0, 1.0};
  std::vector<std::vector<uint8_t>> gates;

  explicit Segments(const std::vector<Layer>& layers, bool final) {
    first_layer(layers[0], lines);
    for (size_t n = 1; n < layers.size() + final; n++) {
      const i64 width = layers[n - 1].out;
      Numbers middle;
      std::vector<i64> old_segment;
      split_at_zeros(lines, width, edges, middle, old_segment);
      for (size_t m = 0; m < gates.size(); m++) gates[m] = select_rows(gates[m], old_segment, layers[m].out);
      lines = {select_rows(lines.slope, old_segment, width), select_rows(lines.intercept, old_segment, width)};
      std::vector<uint8_t> open(lines.slope.size());
      for (size_t x = 0; x < open.size(); x++)
        open[x] = lines.intercept[x] + lines.slope[x] * middle[x / (size_t)width] > 0;
      gates.push_back(open);
      apply_gates(open.data(), width, count(), width, lines);
      if (n == layers.size()) break;
      Lines next;
      apply_layer(layers[n], lines, count(), next);
      lines = next;
    }
  }
  i64 count() const { return (i64)edges.size() - 1; }
};

template <class T>
i64 find_segments(i64 layers, const i64* widths, const void* const* parameters, bool final, i64 room, double* slope,
                  double* intercept, double* knots, uint8_t* gates) {
  std::vector<Layer> mlp;
  read_layers<T>(layers, widths, parameters, mlp);
  const Segments segments(mlp, final);
  const i64 count = segments.count(), heads = widths[layers];
  if (count > room) return count;
  for (i64 h = 0; h < heads; h++)
    for (i64 s = 0; s < count; s++) {
      slope[h * count + s] = segments.lines.slope[(size_t)(s * heads + h)];
      intercept[h * count + s] = segments.lines.intercept[(size_t)(s * heads + h)];
    }
  std::copy(segments.edges.begin() + 1, segments.edges.end() - 1, knots);
  for (i64 s = 0; s < count; s++)
    for (size_t n = 0; n < segments.gates.size(); n++) {
      const i64 width = widths[n + 1];
      gates = std::copy_n(segments.gates[n].begin() + s * width, width, gates);
    }
  return count;
}

template <class T>
void write_numbers(const Numbers& from, void* to) {
  for (size_t n = 0; n < from.size(); n++) ((T*)to)[n] = (T)from[n];
}

template <class T>
void segments_backward(i64 layers, const i64* widths, const void* const* parameters, bool final, i64 count,
                       const double* grad_slope, const double* grad_intercept, const uint8_t* gates, void* const* gradients) {
  std::vector<Layer> mlp;
  read_layers<T>(layers, widths, parameters, mlp);
  const i64 gated_layers = layers - 1 + final, heads = widths[layers];
  i64 stride = 0;
  std::vector<const uint8_t*> layer_gates;
  for (i64 n = 0; n < gated_layers; n++) {
    layer_gates.push_back(gates + stride);
    stride += widths[n + 1];
  }

  // Forward: the lines that go into each layer but the first.
  std::vector<Lines> inputs((size_t)(layers - 1));
  Lines lines, next;
  first_layer(mlp[0], next);
  for (i64 s = 0; s < count && layers > 1; s++) {  // the same in every segment
    lines.slope.insert(lines.slope.end(), next.slope.begin(), next.slope.end());
    lines.intercept.insert(lines.intercept.end(), next.intercept.begin(), next.intercept.end());
  }
  for (i64 n = 1; n < layers; n++) {
    apply_gates(layer_gates[(size_t)n - 1], stride, count, widths[n], lines);
    inputs[(size_t)n - 1] = lines;
    if (n + 1 == layers) break;
    apply_layer(mlp[(size_t)n], lines, count, next);
    lines = next;
  }

  // Backward: the gradients of the lines that come out of each layer, from the last one down.
  Lines grad = {Numbers((size_t)(count * heads)), Numbers((size_t)(count * heads))};
  for (i64 s = 0; s < count; s++)
    for (i64 h = 0; h < heads; h++) {
      grad.slope[(size_t)(s * heads + h)] = grad_slope[h * count + s];
      grad.intercept[(size_t)(s * heads + h)] = grad_intercept[h * count + s];
    }
  if (final) apply_gates(layer_gates.back(), stride, count, heads, grad);
  for (i64 n = layers - 1; n >= 0; n--) {
    const Layer& layer = mlp[(size_t)n];
    Numbers grad_weight((size_t)(layer.out * layer.in)), grad_bias((size_t)layer.out);
    Lines grad_input = {Numbers((size_t)(count * layer.in)), Numbers((size_t)(count * layer.in))};
    for (i64 s = 0; s < count; s++)
      for (i64 o = 0; o < layer.out; o++) {
        const double a = grad.slope[(size_t)(s * layer.out + o)], b = grad.intercept[(size_t)(s * layer.out + o)];
        grad_bias[(size_t)o] += b;
        if (n == 0) {
          grad_weight[(size_t)o] += a;
          continue;
        }
        const Lines& input = inputs[(size_t)n - 1];
        const i64 first = s * layer.in, row = o * layer.in;
        add_both(a, input.slope.data() + first, b, input.intercept.data() + first, grad_weight.data() + row, layer.in);
        add(a, layer.weight.data() + row, grad_input.slope.data() + first, layer.in);
        add(b, layer.weight.data() + row, grad_input.intercept.data() + first, layer.in);
      }
    write_numbers<T>(grad_weight, gradients[2 * n]);
    write_numbers<T>(grad_bias, gradients[2 * n + 1]);
    if (n > 0) apply_gates(layer_gates[(size_t)n - 1], stride, count, layer.in, grad_input);
    grad = grad_input;
  }
}

// The larger of FIRE's threshold and a query's position; NaN if the threshold is.
double reached_position(double threshold, i64 query) {
  const double position = (double)query;
  return threshold > position || threshold != threshold ? threshold : position;
}

}  // namespace

EXPORTED i64 lengthwise_pieces(i64 layers, const i64* widths, const void* const* parameters, i64 single, i64 final, i64 room,
                               double* slope, double* intercept, double* knots, uint8_t* gates) {
  try {
    return single ? find_segments<float>(layers, widths, parameters, final != 0, room, slope, intercept, knots, gates)
                  : find_segments<double>(layers, widths, parameters, final != 0, room, slope, intercept, knots, gates);
  } catch (const std::bad_alloc&) {
    return -1;
  }
}

EXPORTED i64 lengthwise_pieces_backward(i64 layers, const i64* widths, const void* const* parameters, i64 single, i64 final,
                                        i64 segments, const double* grad_slope, const double* grad_intercept,
                                        const uint8_t* gates, void* const* gradients) {
  try {
    if (single)
      segments_backward<float>(layers, widths, parameters, final != 0, segments, grad_slope, grad_intercept, gates, gradients);
    else
      segments_backward<double>(layers, widths, parameters, final != 0, segments, grad_slope, grad_intercept, gates, gradients);
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

EXPORTED void lengthwise_fire_tables(double size, double threshold, double L, double eps, const i64* distance, i64 distances,
                                     const i64* query, i64 queries, double* feature, double* query_scale) {
  const double exact_unit = log1p(size * L), unit = exact_unit > 0 ? exact_unit : 1;
  for (i64 n = 0; n < distances; n++) feature[n] = log1p(size * (double)distance[n]) / unit;
  for (i64 n = 0; n < queries; n++) {
    const double value = log1p(size * reached_position(threshold, query[n])) + eps;
    query_scale[n] = unit / (value > 0 ? value : 1);
  }
}

EXPORTED void lengthwise_fire_tables_backward(double size, double threshold, double L, double eps, const i64* distance,
                                              i64 distances, const i64* query, i64 queries, const double* grad_feature,
                                              const double* grad_query_scale, double* to) {
  const double exact_unit = log1p(size * L), unit = exact_unit <= 0 ? 1 : exact_unit;
  const double unit_by_size = exact_unit <= 0 ? 0 : L / (1 + size * L);
  double grad_size = 0, grad_unit = 0, grad_threshold = 0;
  for (i64 n = 0; n < distances; n++) {
    const double d = (double)distance[n];
    grad_size += grad_feature[n] * (d / (1 + size * d)) / unit;
    grad_unit -= grad_feature[n] * log1p(size * d) / (unit * unit);
  }
  for (i64 n = 0; n < queries; n++) {
    const double position = (double)query[n], reached = reached_position(threshold, query[n]);
    const double divisor = log1p(size * reached) + eps, inverse = divisor <= 0 ? 1 : 1 / divisor;
    grad_unit += grad_query_scale[n] * inverse;
    if (divisor <= 0) continue;
    const double grad_inner = -grad_query_scale[n] * inverse * inverse * unit / (1 + size * reached);
    grad_size += grad_inner * reached;
    // If both are the maximum, each gets half of the gradient, as in torch.maximum.
    grad_threshold += grad_inner * (threshold > position ? 1 : threshold == position ? 0.5 : 0) * size;
  }
  to[0] = grad_size + grad_unit * unit_by_size;
  to[1] = grad_threshold;
}
