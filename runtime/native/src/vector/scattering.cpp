#include "vector/scattering.h"
#include "vector/simd.h"

namespace edgeopt::EDGEOPT_ISA {
namespace {

// Where a window's taps lie from its first one; more than this are looked for one by one.
constexpr std::ptrdiff_t kTaps = 32;

void max_pool(const Pool& pool, const Windows& w, const float* g, const float* x, const float* y, float* to_x) {
  const std::ptrdiff_t taps = w.kernel_height * w.kernel_width;
  std::ptrdiff_t offset[kTaps] = {};
  for (std::ptrdiff_t k = 0; k < smaller(taps, kTaps); ++k)
    offset[k] = k / w.kernel_width * w.dilation_height * w.width + k % w.kernel_width * w.dilation_width;
  const std::ptrdiff_t down = (w.kernel_height - 1) * w.dilation_height;
  const std::ptrdiff_t right = (w.kernel_width - 1) * w.dilation_width;
  each(pool, w.images, [&](std::ptrdiff_t image) {
    const float* from = x + image * w.height * w.width;
    float* to = to_x + image * w.height * w.width;
    clear(to, w.height * w.width);
    std::ptrdiff_t at = image * w.out_height * w.out_width;
    for (std::ptrdiff_t row = 0; row < w.out_height; ++row) {
      const std::ptrdiff_t top = row * w.stride_height - w.pad_top;
      for (std::ptrdiff_t column = 0; column < w.out_width; ++column, ++at) {
        const std::ptrdiff_t left = column * w.stride_width - w.pad_left;
        const float largest = y[at];
        if (taps <= kTaps && top >= 0 && left >= 0 && top + down < w.height && left + right < w.width) {
          // From the last tap to the first and without a branch, since where the maximum is cannot be foreseen.
          const float* first = from + top * w.width + left;
          std::ptrdiff_t found = offset[taps - 1];
          for (std::ptrdiff_t k = taps - 2; k >= 0; --k) found = first[offset[k]] == largest ? offset[k] : found;
          to[top * w.width + left + found] += g[at];
          continue;
        }
        for (std::ptrdiff_t k = 0; k < taps; ++k) {
          const std::ptrdiff_t r = top + k / w.kernel_width * w.dilation_height;
          const std::ptrdiff_t c = left + k % w.kernel_width * w.dilation_width;
          if (r < 0 || r >= w.height || c < 0 || c >= w.width || from[r * w.width + c] != largest) continue;
          to[r * w.width + c] += g[at];
          break;
        }
      }
    }
  });
}

// Columns of one task: no two tasks write the same element, whatever the indices.
constexpr std::ptrdiff_t kColumns = 256;

void add_rows(const Pool& pool, const Picked& p, const float* g, const std::int64_t* indices, float* to_x) {
  const std::ptrdiff_t blocks = (p.inner + kColumns - 1) / kColumns;
  each(pool, p.outer * blocks, [&](std::ptrdiff_t task) {
    const std::ptrdiff_t outer = task / blocks, first = task % blocks * kColumns;
    const std::ptrdiff_t count = smaller(kColumns, p.inner - first);
    float* to = to_x + outer * p.size * p.inner + first;
    const float* from = g + outer * p.picked * p.inner + first;
    if (blocks == 1)
      clear(to, p.size * p.inner);
    else
      for (std::ptrdiff_t row = 0; row < p.size; ++row) clear(to + row * p.inner, count);
    for (std::ptrdiff_t i = 0; i < p.picked; ++i, from += p.inner) {
      float* row = to + static_cast<std::ptrdiff_t>(indices[i]) * p.inner;
      for (std::ptrdiff_t j = 0; j < count; ++j) row[j] += from[j];
    }
  });
}

}  // namespace

extern const ScatteringKernels scattering_kernels;
const ScatteringKernels scattering_kernels{max_pool, add_rows};

}  // namespace edgeopt::EDGEOPT_ISA
