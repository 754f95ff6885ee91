// What flows back through activations: element by element, or over rows.
#pragma once

#include <cstddef>

#include "vector/pool.h"

namespace edgeopt {

struct ActivationKernels {
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
