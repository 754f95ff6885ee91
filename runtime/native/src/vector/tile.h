// The product at the bottom of every kernel that multiplies: a few rows against a panel of packed columns.
#pragma once

#include "vector/simd.h"

namespace edgeopt::EDGEOPT_ISA {
namespace {

// The columns of a panel: two vectors.
constexpr std::ptrdiff_t kPanel = 2 * kLanes;

// Where the elements along the summed axis lie: `runs` runs of `length` elements, `step` apart in a row's memory.
struct Runs {
  const std::ptrdiff_t* begin;
  std::ptrdiff_t count;
  std::ptrdiff_t length;
  std::ptrdiff_t step;
};

// `result[r][j]` += sum over k of rows[r][k] · panel[k][j], for kTileRows rows and Vectors · kLanes columns.
//
// `panel` has `stride` floats for each k; `result` has `pitch` for each row. Every row pointer must be readable: of rows
// that are not there, any other may be given, and their results left alone by the caller.
template <int Vectors>
inline void tile(const float* const* rows, const Runs& runs, const float* panel, std::ptrdiff_t stride, float* result,
                 std::ptrdiff_t pitch) {
  Vec total[kTileRows][Vectors];
  for (int r = 0; r < kTileRows; ++r)
    for (int v = 0; v < Vectors; ++v) total[r][v] = load(result + r * pitch + v * kLanes);
  const float* row[kTileRows];
  for (int r = 0; r < kTileRows; ++r) row[r] = rows[r];
  for (std::ptrdiff_t q = 0; q < runs.count; ++q) {
    std::ptrdiff_t at = runs.begin[q];
    for (std::ptrdiff_t k = 0; k < runs.length; ++k, at += runs.step, panel += stride) {
      Vec column[Vectors];
      for (int v = 0; v < Vectors; ++v) column[v] = load(panel + v * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < kTileRows; ++r) {
        const Vec x = splat(row[r][at]);
        for (int v = 0; v < Vectors; ++v) total[r][v] += x * column[v];
      }
    }
  }
  for (int r = 0; r < kTileRows; ++r)
    for (int v = 0; v < Vectors; ++v) store(result + r * pitch + v * kLanes, total[r][v]);
}

typedef float Four __attribute__((vector_size(16)));
typedef float LooseFour __attribute__((vector_size(16), aligned(4), may_alias));
typedef int FourInts __attribute__((vector_size(16)));

// Four floats of each of four columns, turned.
inline void turn(const float* a, const float* b, const float* c, const float* d, float* to, std::ptrdiff_t pitch) {
  const Four w = *reinterpret_cast<const LooseFour*>(a), x = *reinterpret_cast<const LooseFour*>(b);
  const Four y = *reinterpret_cast<const LooseFour*>(c), z = *reinterpret_cast<const LooseFour*>(d);
  const Four wx = __builtin_shuffle(w, x, FourInts{0, 4, 1, 5}), wx_ = __builtin_shuffle(w, x, FourInts{2, 6, 3, 7});
  const Four yz = __builtin_shuffle(y, z, FourInts{0, 4, 1, 5}), yz_ = __builtin_shuffle(y, z, FourInts{2, 6, 3, 7});
  *reinterpret_cast<LooseFour*>(to) = __builtin_shuffle(wx, yz, FourInts{0, 1, 4, 5});
  *reinterpret_cast<LooseFour*>(to + pitch) = __builtin_shuffle(wx, yz, FourInts{2, 3, 6, 7});
  *reinterpret_cast<LooseFour*>(to + 2 * pitch) = __builtin_shuffle(wx_, yz_, FourInts{0, 1, 4, 5});
  *reinterpret_cast<LooseFour*>(to + 3 * pitch) = __builtin_shuffle(wx_, yz_, FourInts{2, 3, 6, 7});
}

// Columns that lie end to end in memory, as a panel: panel[k][j] = columns[j][k], 0 for j from `count` on.
inline void pack_transposed(const float* const* columns, std::ptrdiff_t count, std::ptrdiff_t width,
                            std::ptrdiff_t length, float* panel) {
  std::ptrdiff_t j = 0;
  for (; j + 4 <= count; j += 4) {
    const float *a = columns[j], *b = columns[j + 1], *c = columns[j + 2], *d = columns[j + 3];
    std::ptrdiff_t k = 0;
    for (; k + 4 <= length; k += 4) turn(a + k, b + k, c + k, d + k, panel + k * width + j, width);
    for (; k < length; ++k) {
      float* to = panel + k * width + j;
      to[0] = a[k], to[1] = b[k], to[2] = c[k], to[3] = d[k];
    }
  }
  for (; j < width; ++j)
    for (std::ptrdiff_t k = 0; k < length; ++k) panel[k * width + j] = j < count ? columns[j][k] : 0.0f;
}

}  // namespace
}  // namespace edgeopt::EDGEOPT_ISA
