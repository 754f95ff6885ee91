// Statistics of normalisations, and what flows back through them.
#pragma once

#include <cstddef>

#include "vector/pool.h"

namespace edgeopt {

// Tensors (batch, channels, size): `size` elements of each channel lie together.
struct Channels {
  std::ptrdiff_t batch, channels, size;
};

// A result that is not asked for is null.
struct BatchNormGradients {
  float *x, *scale, *bias;
};

// Tensors (rows, width), normalised over each row.
struct Rows {
  std::ptrdiff_t rows, width;
};

struct LayerNormGradients {
  float *x, *scale, *bias;
};

struct NormalisationKernels {
  // Mean and variance (of the population) of each channel.
  void (*statistics)(const Pool& pool, const Channels& c, const float* x, float* mean, float* variance);
  // `inverse` is 1 / sqrt(variance + epsilon).
  void (*batch)(const Pool& pool, const Channels& c, const float* g, const float* x, const float* scale,
                const float* mean, const float* inverse, const BatchNormGradients& to);
  // False where memory is short.
  bool (*layer)(const Pool& pool, const Rows& r, const float* g, const float* x, const float* scale, float epsilon,
                const LayerNormGradients& to);
};

const NormalisationKernels& normalisation_kernels();

}  // namespace edgeopt
