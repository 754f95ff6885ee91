// With the padded input and the cotangent in rows of one length, a tap reads the input at a fixed distance from the
// cotangent, across the ends of rows too: the cotangent is zero in the gaps. A strided convolution is several such
// ones, over the elements that have the same remainder. Rows as short as three elements then fill whole vectors.

#include "vector/depthwise.h"

namespace edgeopt::EDGEOPT_ISA {
namespace {

// Taps that are treated in one pass, each with an accumulator of its own.
constexpr int kTaps = 9;

// How one image is laid out.
struct Layout {
  std::ptrdiff_t rows, pitch;    // of the elements with one remainder
  std::ptrdiff_t image;          // floats of one remainder
  std::ptrdiff_t phases, across; // remainders: of both axes, and of the rows'
  std::ptrdiff_t reach;          // of the tap furthest from the first
};

Layout layout_of(const Convolution& c) {
  Layout l;
  l.rows = c.out_height + (c.kernel_height - 1) * c.dilation_height / c.stride_height;
  l.pitch = c.out_width + (c.kernel_width - 1) * c.dilation_width / c.stride_width;
  l.image = l.rows * l.pitch;
  l.across = smaller(c.stride_width, (c.kernel_width - 1) * c.dilation_width + 1);
  l.phases = l.across * smaller(c.stride_height, (c.kernel_height - 1) * c.dilation_height + 1);
  l.reach = (l.rows - c.out_height) * l.pitch + l.pitch - c.out_width;
  return l;
}

struct Tap {
  std::ptrdiff_t phase, offset;
};

Tap tap_of(const Convolution& c, const Layout& l, std::ptrdiff_t index) {
  const std::ptrdiff_t down = index / c.kernel_width * c.dilation_height;
  const std::ptrdiff_t right = index % c.kernel_width * c.dilation_width;
  return {down % c.stride_height * l.across + right % c.stride_width,
          down / c.stride_height * l.pitch + right / c.stride_width};
}

// The columns of a remainder whose elements lie inside the image: [first, last).
struct Span {
  std::ptrdiff_t first, last;
};

Span inside(std::ptrdiff_t start, std::ptrdiff_t stride, std::ptrdiff_t size, std::ptrdiff_t count) {
  const std::ptrdiff_t first = start >= 0 ? 0 : (-start + stride - 1) / stride;
  const std::ptrdiff_t last = size <= start ? 0 : (size - start + stride - 1) / stride;
  return {smaller(first, count), larger(smaller(last, count), smaller(first, count))};
}

// A row of a few elements or of many.
inline void copy_row(float* to, const float* from, std::ptrdiff_t count) {
  if (count >= kLanes) return copy(to, from, count);
  for (std::ptrdiff_t i = 0; i < count; ++i) to[i] = from[i];
}

// Calls `work(row of the remainder, its columns inside the image, where those begin in the image)`.
template <class Work>
inline void each_row(const Convolution& c, const Layout& l, std::ptrdiff_t phase, const Work& work) {
  const std::ptrdiff_t top = phase / l.across - c.pad_top, left = phase % l.across - c.pad_left;
  const Span rows = inside(top, c.stride_height, c.height, l.rows);
  const Span columns = inside(left, c.stride_width, c.width, l.pitch);
  if (columns.first == columns.last) return;
  for (std::ptrdiff_t r = rows.first; r < rows.last; ++r)
    work(r * l.pitch + columns.first, (top + r * c.stride_height) * c.width + left + columns.first * c.stride_width,
         columns.last - columns.first);
}

// The elements of an image, split by remainders, one `distance` behind the other. Their padding is there already.
void spread(const Convolution& c, const Layout& l, const float* image, float* to, std::ptrdiff_t distance) {
  for (std::ptrdiff_t phase = 0; phase < l.phases; ++phase, to += distance)
    each_row(c, l, phase, [&](std::ptrdiff_t there, std::ptrdiff_t here, std::ptrdiff_t count) {
      if (c.stride_width == 1) return copy_row(to + there, image + here, count);
      if (c.stride_width == 2)
        for (std::ptrdiff_t i = 0; i < count; ++i) to[there + i] = image[here + 2 * i];
      else
        for (std::ptrdiff_t i = 0; i < count; ++i) to[there + i] = image[here + i * c.stride_width];
    });
}

// The way back: what of the remainders lies inside the image.
void collect(const Convolution& c, const Layout& l, const float* from, float* image, std::ptrdiff_t distance) {
  for (std::ptrdiff_t phase = 0; phase < l.phases; ++phase, from += distance)
    each_row(c, l, phase, [&](std::ptrdiff_t there, std::ptrdiff_t here, std::ptrdiff_t count) {
      if (c.stride_width == 1) return copy_row(image + here, from + there, count);
      for (std::ptrdiff_t i = 0; i < count; ++i) image[here + i * c.stride_width] = from[there + i];
    });
}

// A cotangent in rows of the same length. The zeros between them are there already.
void lay_out(const Convolution& c, const Layout& l, const float* g, float* to) {
  for (std::ptrdiff_t r = 0; r < c.out_height; ++r) copy_row(to + r * l.pitch, g + r * c.out_width, c.out_width);
}

// total[t] += sum over i of g[i] · x[t][i], whole vectors of both being readable and zero in g behind the end.
void dots(const float* g, const float* const* x, std::ptrdiff_t length, float* total) {
  Vec sums[kTaps] = {};
  for (std::ptrdiff_t i = 0; i < length; i += kLanes) {
    const Vec factor = load(g + i);
#pragma GCC unroll 9
    for (int t = 0; t < kTaps; ++t) sums[t] += factor * load(x[t] + i);
  }
  for (int t = 0; t < kTaps; ++t) total[t] += sum(sums[t]);
}

// to[i] = sum over t of w[t] · g[t][i], added to what is there on request.
template <int Taps>
void weighted(const float* w, const float* const* g, std::ptrdiff_t length, bool add, float* to) {
  Vec factor[Taps];
  for (int t = 0; t < Taps; ++t) factor[t] = splat(w[t]);
  for (std::ptrdiff_t i = 0; i < length; i += kLanes) {
    Vec even = add ? load(to + i) : Vec{}, odd = {};
#pragma GCC unroll 9
    for (int t = 0; t < Taps; ++t) (t % 2 ? odd : even) += factor[t] * load(g[t] + i);
    store(to + i, even + odd);
  }
}

using Weighted = void (*)(const float*, const float* const*, std::ptrdiff_t, bool, float*);
constexpr Weighted kWeighted[kTaps + 1] = {weighted<0>, weighted<1>, weighted<2>, weighted<3>, weighted<4>,
                                           weighted<5>, weighted<6>, weighted<7>, weighted<8>, weighted<9>};

// The elements of each remainder, `distance` apart: what all taps that read it give back.
void through_taps(const Convolution& c, const Layout& l, const float* w, const float* g, std::ptrdiff_t length,
                  bool add_first, float* to, std::ptrdiff_t distance) {
  for (std::ptrdiff_t phase = 0; phase < l.phases; ++phase, to += distance) {
    bool add = add_first;
    float factor[kTaps];
    const float* read[kTaps];
    int count = 0;
    const auto flush = [&] {
      kWeighted[count](factor, read, length, add, to);
      add = true, count = 0;
    };
    for (std::ptrdiff_t index = 0; index < c.kernel_height * c.kernel_width; ++index) {
      const Tap tap = tap_of(c, l, index);
      if (tap.phase != phase) continue;
      factor[count] = w[index], read[count] = g - tap.offset;
      if (++count == kTaps) flush();
    }
    // A remainder that no tap reads gets zeros, once.
    if (count > 0 || !add) flush();
  }
}

}  // namespace

// The channels of one task: its memory is made and cleared once for all of them.
constexpr std::ptrdiff_t kChannels = 8;

// Floats that are laid out at once: they stay in the first cache, or nearly.
constexpr std::ptrdiff_t kAtOnce = 8192;

bool depthwise_weight(const Pool& pool, const Convolution& c, const float* x, const float* g, float* to_w) {
  const Layout l = layout_of(c);
  const std::ptrdiff_t taps = c.kernel_height * c.kernel_width, times = c.features / c.group;
  const std::ptrdiff_t parts = (taps + kTaps - 1) / kTaps;
  // Several images end to end are one long dot product.
  const std::ptrdiff_t images = smaller(larger(kAtOnce / (l.image * l.phases), 1), c.batch);
  const std::ptrdiff_t distance = images * l.image + l.reach + kLanes, length = round_up(images * l.image, kLanes);
  Failure failed;
  each(pool, (c.channels + kChannels - 1) / kChannels, [&](std::ptrdiff_t task) {
    const std::ptrdiff_t room = l.phases * distance + length;
    Scratch scratch(room + times * parts * kTaps);
    if (!scratch) {
      failed.note();
      return;
    }
    float *spread_x = scratch.get(), *laid_out = spread_x + l.phases * distance, *total = laid_out + length;
    clear(spread_x, room);
    for (std::ptrdiff_t channel = task * kChannels; channel < smaller((task + 1) * kChannels, c.channels); ++channel) {
      clear(total, times * parts * kTaps);
      for (std::ptrdiff_t first = 0; first < c.batch; first += images) {
        const std::ptrdiff_t count = smaller(images, c.batch - first);
        for (std::ptrdiff_t n = 0; n < count; ++n)
          spread(c, l, x + ((first + n) * c.channels + channel) * c.height * c.width, spread_x + n * l.image, distance);
        for (std::ptrdiff_t m = 0; m < times; ++m) {
          for (std::ptrdiff_t n = 0; n < count; ++n)
            lay_out(c, l, g + ((first + n) * c.features + channel * times + m) * c.out_height * c.out_width,
                    laid_out + n * l.image);
          // Fewer images than before leave the others' cotangents behind, which are not read.
          const std::ptrdiff_t used = count * l.image;
          clear(laid_out + used, length - used);
          for (std::ptrdiff_t part = 0; part < parts; ++part) {
            const float* read[kTaps];
            for (int t = 0; t < kTaps; ++t) {
              // Behind the last tap, one of the others again.
              const Tap tap = tap_of(c, l, smaller(part * kTaps + t, taps - 1));
              read[t] = spread_x + tap.phase * distance + tap.offset;
            }
            dots(laid_out, read, used, total + (m * parts + part) * kTaps);
          }
        }
      }
      for (std::ptrdiff_t m = 0; m < times; ++m)
        copy(to_w + (channel * times + m) * taps, total + m * parts * kTaps, taps);
    }
  });
  return !failed.noted();
}

bool depthwise_input(const Pool& pool, const Convolution& c, const float* g, const float* w, float* to_x) {
  const Layout l = layout_of(c);
  const std::ptrdiff_t taps = c.kernel_height * c.kernel_width, times = c.features / c.group;
  // Several images end to end: behind each cotangent lie as many zeros as the furthest tap reaches back.
  const std::ptrdiff_t images = smaller(larger(kAtOnce / (l.image * l.phases), 1), c.batch);
  const std::ptrdiff_t length = round_up(images * l.image, kLanes), distance = length;
  // Whether every element of the image is computed.
  const bool whole = l.phases == c.stride_height * c.stride_width && c.pad_top >= 0 && c.pad_left >= 0 &&
                     l.rows * c.stride_height - c.pad_top >= c.height &&
                     l.pitch * c.stride_width - c.pad_left >= c.width;
  Failure failed;
  each(pool, (c.channels + kChannels - 1) / kChannels, [&](std::ptrdiff_t task) {
    Scratch scratch(l.phases * distance + l.reach + length);
    if (!scratch) {
      failed.note();
      return;
    }
    float *total = scratch.get(), *zeros = total + l.phases * distance, *laid_out = zeros + l.reach;
    clear(zeros, l.reach + length);
    for (std::ptrdiff_t channel = task * kChannels; channel < smaller((task + 1) * kChannels, c.channels); ++channel) {
      for (std::ptrdiff_t first = 0; first < c.batch; first += images) {
        const std::ptrdiff_t count = smaller(images, c.batch - first);
        for (std::ptrdiff_t m = 0; m < times; ++m) {
          const std::ptrdiff_t feature = channel * times + m;
          for (std::ptrdiff_t n = 0; n < count; ++n)
            lay_out(c, l, g + ((first + n) * c.features + feature) * c.out_height * c.out_width,
                    laid_out + n * l.image);
          through_taps(c, l, w + feature * taps, laid_out, count * l.image, m > 0, total, distance);
        }
        for (std::ptrdiff_t n = 0; n < count; ++n) {
          float* image = to_x + ((first + n) * c.channels + channel) * c.height * c.width;
          // What lies behind the last window, or between windows that are further apart than they are wide.
          if (!whole) clear(image, c.height * c.width);
          collect(c, l, total + n * l.image, image, distance);
        }
      }
    }
  });
  return !failed.noted();
}

}  // namespace edgeopt::EDGEOPT_ISA
