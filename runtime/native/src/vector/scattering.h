// What flows back through a maximum over windows, and to rows that were picked.
#pragma once

#include <cstddef>
#include <cstdint>

#include "vector/pool.h"

namespace edgeopt {

// Windows over images (images, height, width), which lie behind one another; padding counts as minus infinity.
struct Windows {
  std::ptrdiff_t images, height, width;
  std::ptrdiff_t kernel_height, kernel_width, stride_height, stride_width, dilation_height, dilation_width;
  std::ptrdiff_t pad_top, pad_left, out_height, out_width;
};

// A tensor (outer, size, inner) from which `picked` rows were taken: (outer, picked, inner).
struct Picked {
  std::ptrdiff_t outer, size, inner, picked;
};

struct ScatteringKernels {
  // The first element of a window that equals y, in row-major order, gets g.
  void (*max_pool)(const Pool& pool, const Windows& w, const float* g, const float* x, const float* y, float* to_x);
  // Every index must lie in [0, size).
  void (*add_rows)(const Pool& pool, const Picked& p, const float* g, const std::int64_t* indices, float* to_x);
};

const ScatteringKernels& scattering_kernels();

}  // namespace edgeopt
