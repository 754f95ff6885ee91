#include "vector/activations.h"

#include "vector/functions.h"
#include "vector/simd.h"

namespace edgeopt::EDGEOPT_ISA {
namespace {

// Elements of one task.
constexpr std::ptrdiff_t kBlock = 16384;

template <class Body>
inline void blocks(const Pool& pool, std::ptrdiff_t count, const Body& body) {
  each(pool, (count + kBlock - 1) / kBlock,
       [&](std::ptrdiff_t task) { body(task * kBlock, smaller((task + 1) * kBlock, count)); });
}

void between(const Pool& pool, std::ptrdiff_t count, const float* low, const float* high, const float* g, const float* x,
             float* to_x) {
  const float lowest = low ? *low : 0.0f, highest = high ? *high : 0.0f;
  blocks(pool, count, [&](std::ptrdiff_t first, std::ptrdiff_t last) {
    std::ptrdiff_t i = first;
    for (; i + kLanes <= last; i += kLanes) {
      const Vec value = load(x + i);
      Vec passing = load(g + i);
      if (low) passing = value > splat(lowest) ? passing : Vec{};
      if (high) passing = value < splat(highest) ? passing : Vec{};
      store(to_x + i, passing);
    }
    for (; i < last; ++i) to_x[i] = (!low || x[i] > lowest) && (!high || x[i] < highest) ? g[i] : 0.0f;
  });
}

void gelu(const Pool& pool, std::ptrdiff_t count, bool approximate, const float* __restrict g,
          const float* __restrict x, float* __restrict to_x) {
  if (approximate) {
    constexpr float kScale = 0.797884561f;  // sqrt(2 / π)
    blocks(pool, count, [&](std::ptrdiff_t first, std::ptrdiff_t last) {
      for (std::ptrdiff_t i = first; i < last; ++i) {
        const float square = x[i] * x[i];
        const float argument = x[i] * (square * (0.044715f * kScale) + kScale);
        const float slope = square * (3 * 0.044715f * kScale) + kScale;
        // With e = exp(-2 |argument|), tanh is (1 - e) / (1 + e), and its derivative 4 e / (1 + e)².
        const float e = exponential(-2.0f * (argument < 0 ? -argument : argument)), share = 1.0f / (1.0f + e);
        const float size = (1.0f - e) * share, tanh = argument < 0 ? -size : size;
        // Far out it is 0, and its factor may be infinite.
        const float rest = e == 0.0f ? 0.0f : 2.0f * x[i] * (e * share * share) * slope;
        to_x[i] = g[i] * (0.5f + 0.5f * tanh + rest);
      }
    });
    return;
  }
  blocks(pool, count, [&](std::ptrdiff_t first, std::ptrdiff_t last) {
    for (std::ptrdiff_t i = first; i < last; ++i) {
      const float density = exponential(-0.5f * x[i] * x[i]);
      const float cdf = 0.5f + 0.5f * error_function(x[i] * 0.707106781f, density);
      to_x[i] = g[i] * (cdf + x[i] * density * 0.398942280f);
    }
  });
}

// Rows of one task: about as many elements as a block has.
std::ptrdiff_t rows_at_once(std::ptrdiff_t width) { return larger(kBlock / width, 1); }

template <class Body>
inline void each_row(const Pool& pool, std::ptrdiff_t rows, std::ptrdiff_t width, const Body& body) {
  const std::ptrdiff_t at_once = rows_at_once(width);
  each(pool, (rows + at_once - 1) / at_once, [&](std::ptrdiff_t task) {
    for (std::ptrdiff_t row = task * at_once; row < smaller((task + 1) * at_once, rows); ++row) body(row * width);
  });
}

void softmax(const Pool& pool, std::ptrdiff_t rows, std::ptrdiff_t width, const float* g, const float* y,
             float* to_x) {
  each_row(pool, rows, width, [&](std::ptrdiff_t at) {
    const float* __restrict row_g = g + at;
    const float* __restrict row_y = y + at;
    float* __restrict row_x = to_x + at;
    Vec totals = {};
    float total = 0;
    std::ptrdiff_t i = 0;
    for (; i + kLanes <= width; i += kLanes) totals += load(row_g + i) * load(row_y + i);
    for (; i < width; ++i) total += row_g[i] * row_y[i];
    total += sum(totals);
    for (i = 0; i < width; ++i) row_x[i] = (row_g[i] - total) * row_y[i];
  });
}

void log_softmax(const Pool& pool, std::ptrdiff_t rows, std::ptrdiff_t width, const float* g, const float* y,
                 float* to_x) {
  each_row(pool, rows, width, [&](std::ptrdiff_t at) {
    const float* __restrict row_g = g + at;
    const float* __restrict row_y = y + at;
    float* __restrict row_x = to_x + at;
    Vec totals = {};
    float total = 0;
    std::ptrdiff_t i = 0;
    for (; i + kLanes <= width; i += kLanes) totals += load(row_g + i);
    for (; i < width; ++i) total += row_g[i];
    total += sum(totals);
    for (i = 0; i < width; ++i) row_x[i] = row_g[i] - exponential(row_y[i]) * total;
  });
}

}  // namespace

extern const ActivationKernels activation_kernels;
const ActivationKernels activation_kernels{between, gelu, softmax, log_softmax};

}  // namespace edgeopt::EDGEOPT_ISA
