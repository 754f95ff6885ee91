#include "vector/normalisation.h"

#include "vector/simd.h"

namespace edgeopt::EDGEOPT_ISA {
namespace {

// The sum over a row of what `term` gives of one index or of a vector of them.
template <class Term>
inline float sum_over(std::ptrdiff_t count, const Term& term) {
  float total = 0;
  std::ptrdiff_t i = 0;
  if (count < kLanes) {
    for (; i < count; ++i) total += term.scalar(i);
    return total;
  }
  Vec totals[4] = {};
  for (; i + 4 * kLanes <= count; i += 4 * kLanes)
    for (int v = 0; v < 4; ++v) totals[v] += term.vector(i + v * kLanes);
  for (; i + kLanes <= count; i += kLanes) totals[0] += term.vector(i);
  for (; i < count; ++i) total += term.scalar(i);
  return total + sum(totals[0] + totals[1] + (totals[2] + totals[3]));
}

// The same program for vectors and for the elements that are left over.
template <class Body>
struct Both {
  const Body& body;
  Vec vector(std::ptrdiff_t i) const {
    return body([i](const float* p) { return load(p + i); });
  }
  float scalar(std::ptrdiff_t i) const {
    return body([i](const float* p) { return p[i]; });
  }
};

template <class Body>
inline float sum_of(std::ptrdiff_t count, const Body& body) {
  return sum_over(count, Both<Body>{body});
}

template <class Body>
inline void write(float* to, std::ptrdiff_t count, const Body& body) {
  const Both<Body> both{body};
  std::ptrdiff_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(to + i, both.vector(i));
  for (; i < count; ++i) to[i] = both.scalar(i);
}

void statistics(const Pool& pool, const Channels& c, const float* x, float* mean, float* variance) {
  const double count = static_cast<double>(c.batch) * static_cast<double>(c.size);
  each(pool, c.channels, [&](std::ptrdiff_t channel) {
    double total = 0, squares = 0;
    for (std::ptrdiff_t n = 0; n < c.batch; ++n) {
      const float* row = x + (n * c.channels + channel) * c.size;
      total += sum_of(c.size, [&](auto at) { return at(row); });
    }
    const float centre = static_cast<float>(total / count);
    for (std::ptrdiff_t n = 0; n < c.batch; ++n) {
      const float* row = x + (n * c.channels + channel) * c.size;
      squares += sum_of(c.size, [&](auto at) {
        const auto distance = at(row) - centre;
        return distance * distance;
      });
    }
    mean[channel] = centre;
    variance[channel] = static_cast<float>(squares / count);
  });
}

void batch(const Pool& pool, const Channels& c, const float* g, const float* x, const float* scale, const float* mean,
           const float* inverse, const BatchNormGradients& to) {
  const double count = static_cast<double>(c.batch) * static_cast<double>(c.size);
  each(pool, c.channels, [&](std::ptrdiff_t channel) {
    const float centre = mean[channel], inverse_deviation = inverse[channel];
    double sum_g = 0, sum_gx = 0;
    for (std::ptrdiff_t n = 0; n < c.batch; ++n) {
      const std::ptrdiff_t at_row = (n * c.channels + channel) * c.size;
      const float *row_g = g + at_row, *row_x = x + at_row;
      sum_g += sum_of(c.size, [&](auto at) { return at(row_g); });
      sum_gx += sum_of(c.size, [&](auto at) { return at(row_g) * (at(row_x) - centre); });
    }
    if (to.bias) to.bias[channel] = static_cast<float>(sum_g);
    if (to.scale) to.scale[channel] = static_cast<float>(sum_gx) * inverse_deviation;
    if (!to.x) return;
    const float factor = scale[channel] * inverse_deviation;
    const float slope = -factor * static_cast<float>(sum_gx / count) * (inverse_deviation * inverse_deviation);
    const float shift = -factor * static_cast<float>(sum_g / count);
    for (std::ptrdiff_t n = 0; n < c.batch; ++n) {
      const std::ptrdiff_t at_row = (n * c.channels + channel) * c.size;
      const float *row_g = g + at_row, *row_x = x + at_row;
      write(to.x + at_row, c.size,
            [&](auto at) { return at(row_g) * factor + ((at(row_x) - centre) * slope + shift); });
    }
  });
}

// Parts into which rows are divided: their sums are added in this order, however many threads there are.
constexpr std::ptrdiff_t kParts = 16;

bool layer(const Pool& pool, const Rows& r, const float* g, const float* x, const float* scale, float epsilon,
           const LayerNormGradients& to) {
  const std::ptrdiff_t parts = smaller(kParts, r.rows), width = r.width;
  const bool sums = to.scale || to.bias;
  Scratch partial(sums ? parts * 2 * width : 1);
  if (!partial) return false;
  each(pool, parts, [&](std::ptrdiff_t part) {
    float *scales = partial.get() + part * 2 * width, *biases = scales + width;
    if (sums) clear(scales, 2 * width);
    for (std::ptrdiff_t row = part * r.rows / parts; row < (part + 1) * r.rows / parts; ++row) {
      const float *row_g = g + row * width, *row_x = x + row * width;
      const float mean = sum_of(width, [&](auto at) { return at(row_x); }) / static_cast<float>(width);
      const float variance = sum_of(width, [&](auto at) { return (at(row_x) - mean) * (at(row_x) - mean); }) /
                             static_cast<float>(width);
      const float inverse = 1.0f / __builtin_sqrtf(variance + epsilon);
      if (to.x) {
        const float mean_h = sum_of(width, [&](auto at) { return at(row_g) * at(scale); }) / static_cast<float>(width);
        const float mean_hx =
            sum_of(width, [&](auto at) { return at(row_g) * at(scale) * (at(row_x) - mean); }) * inverse /
            static_cast<float>(width);
        const float slope = mean_hx * inverse;
        write(to.x + row * width, width, [&](auto at) {
          return (at(row_g) * at(scale) - mean_h - (at(row_x) - mean) * slope) * inverse;
        });
      }
      if (to.scale)
        write(scales, width, [&](auto at) { return at(static_cast<const float*>(scales)) + at(row_g) * ((at(row_x) - mean) * inverse); });
      if (to.bias) write(biases, width, [&](auto at) { return at(static_cast<const float*>(biases)) + at(row_g); });
    }
  });
  const auto gather = [&](const float* from, float* result) {
    copy(result, from, width);
    for (std::ptrdiff_t part = 1; part < parts; ++part) {
      const float *so_far = result, *more = from + part * 2 * width;
      write(result, width, [&](auto at) { return at(so_far) + at(more); });
    }
  };
  if (to.scale) gather(partial.get(), to.scale);
  if (to.bias) gather(partial.get() + width, to.bias);
  return true;
}

}  // namespace

extern const NormalisationKernels normalisation_kernels;
const NormalisationKernels normalisation_kernels{statistics, batch, layer};

}  // namespace edgeopt::EDGEOPT_ISA
