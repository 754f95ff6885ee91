// The weight gradient as products of gathered rows with a transposed cotangent: nothing is laid out as columns.

#include "vector/convolution.h"

#include "vector/depthwise.h"
#include "vector/tile.h"

namespace edgeopt::EDGEOPT_ISA {
namespace {

// Elements along the summed axis that are packed at once: the panel then fits into the first or second cache.
constexpr std::ptrdiff_t kBlock = 512;

// All images with their padding, as far as windows read them; the images themselves where there is none.
struct Padded {
  const float* images;
  std::ptrdiff_t height, width;
};

std::ptrdiff_t extent(std::ptrdiff_t positions, std::ptrdiff_t stride, std::ptrdiff_t kernel, std::ptrdiff_t dilation) {
  return (positions - 1) * stride + (kernel - 1) * dilation + 1;
}

void pad_image(const Convolution& c, const float* from, float* to, std::ptrdiff_t height, std::ptrdiff_t width) {
  for (std::ptrdiff_t row = 0; row < height; ++row, to += width) {
    const std::ptrdiff_t source = row - c.pad_top;
    if (source < 0 || source >= c.height) {
      clear(to, width);
      continue;
    }
    const std::ptrdiff_t left = smaller(larger(c.pad_left, 0), width);
    const std::ptrdiff_t skipped = larger(-c.pad_left, 0);
    const std::ptrdiff_t there = larger(smaller(c.width - skipped, width - left), 0);
    clear(to, left);
    copy(to + left, from + source * c.width + skipped, there);
    clear(to + left + there, width - left - there);
  }
}

// The summed axis of one block: the rows of output positions [first, last), counted over all images.
void gather_runs(const Convolution& c, const Padded& padded, std::ptrdiff_t first, std::ptrdiff_t last,
                 std::ptrdiff_t* begin) {
  const std::ptrdiff_t image = c.channels * padded.height * padded.width;
  for (std::ptrdiff_t q = first; q < last; ++q)
    begin[q - first] = q / c.out_height * image + q % c.out_height * c.stride_height * padded.width;
}

// panel[k][j] = g of feature j at position k of the block.
void pack_cotangent(const Convolution& c, const float* g, std::ptrdiff_t feature, std::ptrdiff_t count,
                    std::ptrdiff_t width, std::ptrdiff_t first, std::ptrdiff_t last, float* panel) {
  const std::ptrdiff_t positions = c.out_height * c.out_width;
  for (std::ptrdiff_t q = first; q < last;) {
    // The rows of one image lie behind one another.
    const std::ptrdiff_t n = q / c.out_height, row = q % c.out_height;
    const std::ptrdiff_t rows = smaller(c.out_height - row, last - q);
    const float* columns[kPanel];
    for (std::ptrdiff_t j = 0; j < count; ++j)
      columns[j] = g + (n * c.features + feature + j) * positions + row * c.out_width;
    pack_transposed(columns, count, width, rows * c.out_width, panel);
    panel += rows * c.out_width * width;
    q += rows;
  }
}

// A panel's features; `turned` where features and channels have changed roles.
struct Panel {
  std::ptrdiff_t group, feature, count;
  bool turned;
};

// One panel of features: their weights' gradients, (rows, features) first and then turned.
bool one_panel(const Convolution& c, const Padded& padded, const Panel& p, const float* g, float* to_w) {
  const std::ptrdiff_t channels = c.channels / c.group, taps = c.kernel_height * c.kernel_width;
  const std::ptrdiff_t rows = channels * taps, whole = round_up(rows, kTileRows);
  const std::ptrdiff_t width = p.count > kLanes ? kPanel : kLanes;
  const std::ptrdiff_t lines = larger(kBlock / c.out_width, 1), all = c.batch * c.out_height;
  Scratch scratch(whole * width + lines * c.out_width * width);
  Scratch indices((whole + lines) * 2);
  if (!scratch || !indices) return false;
  float *total = scratch.get(), *panel = total + whole * width;
  static_assert(sizeof(std::ptrdiff_t) <= 2 * sizeof(float), "an index takes the room of two floats");
  auto* begin = reinterpret_cast<std::ptrdiff_t*>(indices.get());
  auto* offset = begin + lines;
  for (std::ptrdiff_t r = 0; r < whole; ++r) {
    const std::ptrdiff_t at = smaller(r, rows - 1), channel = p.group * channels + at / taps, tap = at % taps;
    offset[r] = (channel * padded.height + tap / c.kernel_width * c.dilation_height) * padded.width +
                tap % c.kernel_width * c.dilation_width;
  }
  clear(total, whole * width);
  for (std::ptrdiff_t first = 0; first < all; first += lines) {
    const std::ptrdiff_t last = smaller(first + lines, all);
    gather_runs(c, padded, first, last, begin);
    pack_cotangent(c, g, p.feature, p.count, width, first, last, panel);
    const Runs runs{begin, last - first, c.out_width, c.stride_width};
    for (std::ptrdiff_t r = 0; r < whole; r += kTileRows) {
      const float* row[kTileRows];
      for (int i = 0; i < kTileRows; ++i) row[i] = padded.images + offset[r + i];
      if (width == kPanel)
        tile<2>(row, runs, panel, width, total + r * width, width);
      else
        tile<1>(row, runs, panel, width, total + r * width, width);
    }
  }
  if (p.turned) {
    for (std::ptrdiff_t r = 0; r < rows; ++r) copy(to_w + r * c.features + p.feature, total + r * width, p.count);
    return true;
  }
  for (std::ptrdiff_t j = 0; j < p.count; ++j) {
    float* to = to_w + (p.feature + j) * rows;
    for (std::ptrdiff_t r = 0; r < rows; ++r) to[r] = total[r * width + j];
  }
  return true;
}

// Whether each position of the output reads the same position of the input, and nothing else.
bool is_pointwise(const Convolution& c) {
  return c.kernel_height * c.kernel_width == 1 && c.stride_height == 1 && c.stride_width == 1 && c.pad_top == 0 &&
         c.pad_left == 0 && c.out_height == c.height && c.out_width == c.width;
}

bool in_panels(const Pool& pool, const Convolution& c, bool turned, const float* x, const float* g, float* to_w) {
  const std::ptrdiff_t height = extent(c.out_height, c.stride_height, c.kernel_height, c.dilation_height);
  const std::ptrdiff_t width = extent(c.out_width, c.stride_width, c.kernel_width, c.dilation_width);
  const bool as_it_is = c.pad_top == 0 && c.pad_left == 0 && height <= c.height && width <= c.width;
  Padded padded{x, c.height, c.width};
  Scratch room(as_it_is ? 1 : c.batch * c.channels * height * width);
  if (!room) return false;
  if (!as_it_is) {
    padded = {room.get(), height, width};
    each(pool, c.batch * c.channels, [&](std::ptrdiff_t i) {
      pad_image(c, x + i * c.height * c.width, room.get() + i * height * width, height, width);
    });
  }
  const std::ptrdiff_t features = c.features / c.group, panels = (features + kPanel - 1) / kPanel;
  Failure failed;
  each(pool, c.group * panels, [&](std::ptrdiff_t i) {
    const std::ptrdiff_t group = i / panels, first = i % panels * kPanel;
    const Panel panel{group, group * features + first, smaller(kPanel, features - first), turned};
    if (!one_panel(c, padded, panel, g, to_w)) failed.note();
  });
  return !failed.noted();
}

bool weight(const Pool& pool, const Convolution& c, const float* x, const float* g, float* to_w) {
  if (c.channels == c.group) return depthwise_weight(pool, c, x, g, to_w);
  // What is packed has to be turned, which costs as much as it has elements: the one with fewer channels.
  if (!is_pointwise(c) || c.group > 1 || c.features <= c.channels) return in_panels(pool, c, false, x, g, to_w);
  Convolution turned = c;
  turned.channels = c.features, turned.features = c.channels;
  return in_panels(pool, turned, true, g, x, to_w);
}

// --- the input's gradient: for each remainder of the strides a convolution of the padded cotangent

// The cotangent with zeros around it: as many positions before the first as the furthest tap reaches back, and behind
// the last as many as are needed to compute every position of the input.
struct Around {
  std::ptrdiff_t top, left, height, width;
};

// What a tap reads: where its elements begin for the position (0, 0) of a remainder.
struct Reading {
  std::ptrdiff_t tap, offset;
};

std::ptrdiff_t positions_of(std::ptrdiff_t size, std::ptrdiff_t pad, std::ptrdiff_t phase, std::ptrdiff_t stride,
                            std::ptrdiff_t* first) {
  // Elements x with (x + pad) % stride == phase; of the first, where it stands among those with padding.
  const std::ptrdiff_t start = (phase - pad % stride + stride) % stride;
  *first = (start + pad - phase) / stride;
  return start >= size ? 0 : (size - start + stride - 1) / stride;
}

// One panel of input channels, at all positions that have the same remainder.
bool input_panel(const Pool& pool, const Convolution& c, const Around& around, const float* padded, const float* w,
                 const Panel& p, std::ptrdiff_t phase, float* to_x) {
  const std::ptrdiff_t channels = c.channels / c.group, features = c.features / c.group;
  const std::ptrdiff_t taps = c.kernel_height * c.kernel_width, plane = around.height * around.width;
  const std::ptrdiff_t down = phase / c.stride_width, right = phase % c.stride_width;
  std::ptrdiff_t first_row, first_column;
  const std::ptrdiff_t rows = positions_of(c.height, c.pad_top, down, c.stride_height, &first_row);
  const std::ptrdiff_t columns = positions_of(c.width, c.pad_left, right, c.stride_width, &first_column);
  if (rows == 0 || columns == 0) return true;
  const std::ptrdiff_t width = p.count > kLanes ? kPanel : kLanes;
  Scratch memory(features * taps * width);
  Scratch indices(2 * (features * taps + taps));
  if (!memory || !indices) return false;
  auto* begin = reinterpret_cast<std::ptrdiff_t*>(indices.get());
  auto* used = begin + features * taps;
  std::ptrdiff_t count = 0, entries = 0;
  for (std::ptrdiff_t tap = 0; tap < taps; ++tap)
    if (tap / c.kernel_width * c.dilation_height % c.stride_height == down &&
        tap % c.kernel_width * c.dilation_width % c.stride_width == right)
      used[count++] = tap;
  float* panel = memory.get();
  for (std::ptrdiff_t m = 0; m < features; ++m) {
    const float* from = w + ((p.group * features + m) * channels + p.feature) * taps;
    for (std::ptrdiff_t i = 0; i < count; ++i, panel += width) {
      for (std::ptrdiff_t j = 0; j < width; ++j) panel[j] = j < p.count ? from[j * taps + used[i]] : 0.0f;
      const std::ptrdiff_t back_rows = used[i] / c.kernel_width * c.dilation_height / c.stride_height;
      const std::ptrdiff_t back_columns = used[i] % c.kernel_width * c.dilation_width / c.stride_width;
      begin[entries++] = m * plane - back_rows * around.width - back_columns;
    }
  }
  const Runs runs{begin, entries, 1, 1};
  const std::ptrdiff_t all = c.batch * rows * columns;
  // Positions of one task: whole tiles.
  const std::ptrdiff_t some = 8 * kTileRows;
  each(pool, (all + some - 1) / some, [&](std::ptrdiff_t task) {
    float result[kTileRows * kPanel];
    for (std::ptrdiff_t first = task * some; first < smaller((task + 1) * some, all); first += kTileRows) {
      const float* row[kTileRows];
      float* to[kTileRows];
      for (int i = 0; i < kTileRows; ++i) {
        const std::ptrdiff_t at = smaller(first + i, all - 1), n = at / (rows * columns);
        const std::ptrdiff_t r = at / columns % rows, q = at % columns;
        row[i] = padded + (n * c.features + p.group * features) * plane +
                 (r + first_row + around.top) * around.width + q + first_column + around.left;
        to[i] = to_x + ((n * c.channels + p.group * channels + p.feature) * c.height +
                        (r + first_row) * c.stride_height + down - c.pad_top) * c.width +
                (q + first_column) * c.stride_width + right - c.pad_left;
      }
      clear(result, kTileRows * width);
      if (width == kPanel)
        tile<2>(row, runs, memory.get(), width, result, width);
      else
        tile<1>(row, runs, memory.get(), width, result, width);
      const std::ptrdiff_t there = smaller(kTileRows, all - first);
      for (std::ptrdiff_t j = 0; j < p.count; ++j)
        for (std::ptrdiff_t i = 0; i < there; ++i) to[i][j * c.height * c.width] = result[i * width + j];
    }
  });
  return true;
}

bool input(const Pool& pool, const Convolution& c, const float* g, const float* w, float* to_x) {
  if (c.channels == c.group) return depthwise_input(pool, c, g, w, to_x);
  Around around;
  // Where padding is negative, the first elements lie before all windows.
  around.top = (c.kernel_height - 1) * c.dilation_height / c.stride_height +
               larger(0, (c.stride_height - 1 - c.pad_top) / c.stride_height);
  around.left = (c.kernel_width - 1) * c.dilation_width / c.stride_width +
                larger(0, (c.stride_width - 1 - c.pad_left) / c.stride_width);
  const std::ptrdiff_t lowest = larger(c.height - 1 + c.pad_top, 0) / c.stride_height + 1;
  const std::ptrdiff_t rightmost = larger(c.width - 1 + c.pad_left, 0) / c.stride_width + 1;
  around.height = around.top + larger(lowest, c.out_height);
  around.width = around.left + larger(rightmost, c.out_width);
  const std::ptrdiff_t plane = around.height * around.width;
  const bool as_it_is = around.height == c.out_height && around.width == c.out_width;
  Scratch room(as_it_is ? 1 : c.batch * c.features * plane);
  if (!room) return false;
  if (!as_it_is)
    each(pool, c.batch * c.features, [&](std::ptrdiff_t i) {
      float* to = room.get() + i * plane;
      const float* from = g + i * c.out_height * c.out_width;
      clear(to, around.top * around.width);
      for (std::ptrdiff_t r = around.top; r < around.height; ++r) {
        float* row = to + r * around.width;
        const std::ptrdiff_t there = r - around.top < c.out_height ? c.out_width : 0;
        clear(row, around.left);
        copy(row + around.left, from + (r - around.top) * c.out_width, there);
        clear(row + around.left + there, around.width - around.left - there);
      }
    });
  const float* padded = as_it_is ? g : room.get();
  const std::ptrdiff_t channels = c.channels / c.group, panels = (channels + kPanel - 1) / kPanel;
  Failure failed;
  for (std::ptrdiff_t i = 0; i < c.group * panels && !failed.noted(); ++i) {
    const std::ptrdiff_t first = i % panels * kPanel;
    const Panel panel{i / panels, first, smaller(kPanel, channels - first), false};
    for (std::ptrdiff_t phase = 0; phase < c.stride_height * c.stride_width; ++phase)
      if (!input_panel(pool, c, around, padded, w, panel, phase, to_x)) failed.note();
  }
  return !failed.noted();
}

}  // namespace

extern const ConvolutionKernels convolution_kernels;
const ConvolutionKernels convolution_kernels{weight, input};

}  // namespace edgeopt::EDGEOPT_ISA
