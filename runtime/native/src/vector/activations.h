// What flows back through activations: element by element, or over rows.
#pragma once

#include <cstddef>

#include "vector/pool.h"

namespace edgeopt {

struct ActivationKernels {
  // g where low < x < high, else 0. A limit that is null is none.
  void (*between)(const Pool& pool, std::ptrdiff_t count, const float* low, const float* high, const float* g,
                  const float* x, float* to_x);
  // x Φ(x), or its approximation by tanh.
  void (*gelu)(const Pool& pool, std::ptrdiff_t count, bool approximate, const float* g, const float* x, float* to_x);
  // Over rows: (g - sum(g y)) y.
  void (*softmax)(const Pool& pool, std::ptrdiff_t rows, std::ptrdiff_t width, const float* g, const float* y,
                  float* to_x);
  // Over rows, where y is the logarithm: g - exp(y) sum(g).
  void (*log_softmax)(const Pool& pool, std::ptrdiff_t rows, std::ptrdiff_t width, const float* g, const float* y,
                      float* to_x);
};

const ActivationKernels& activation_kernels();

}  // namespace edgeopt
