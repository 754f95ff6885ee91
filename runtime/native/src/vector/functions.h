// Elementary functions without branches, so that loops over them become vector code.
#pragma once

#include "vector/simd.h"

namespace edgeopt::EDGEOPT_ISA {
namespace {

// e^x with an error of 2 units in the last place; 0 below -87.3, infinity above 88.7, NaN for NaN.
//
// 2^n times the Taylor polynomial of the remainder, which is at most ln(2) / 2.
inline float exponential(float x) {
  constexpr float kHighest = 88.72283f, kLowest = -87.33654f;
  const float inside = x > kHighest ? kHighest : (x < kLowest ? kLowest : x);
  const float shifted = inside * 1.44269504f + 12582912.0f;  // 1.5 · 2^23: the sum is rounded to an integer
  const float n = shifted - 12582912.0f;
  const float r = inside - n * 0.693145752f - n * 1.42860677e-6f;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  std::int32_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  // In two steps, since 2^128 is no number.
  const std::int32_t exponent = bits - 0x4B400000, half = exponent >> 1;
  const std::int32_t first_bits = (half + 127) << 23, second_bits = (exponent - half + 127) << 23;
  float first, second;
  std::memcpy(&first, &first_bits, sizeof first);
  std::memcpy(&second, &second_bits, sizeof second);
  const float y = p * first * second;
  const float low = x < kLowest ? 0.0f : y;
  const float high = x > kHighest ? __builtin_inff() : low;
  return x != x ? x : high;
}

inline float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

// 1 - 2 / (e^2x + 1), with an absolute error of 1e-7.
inline float hyperbolic_tangent(float x) { return 1.0f - 2.0f / (exponential(2.0f * x) + 1.0f); }

// The error function, with an absolute error of 2e-7. Source: Abramowitz and Stegun, 7.1.26.
inline float error_function(float x, float exp_minus_square) {
  const float size = x < 0 ? -x : x;
  const float t = 1.0f / (1.0f + 0.3275911f * size);
  float p = 1.061405429f;
  p = p * t - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  const float y = 1.0f - p * t * exp_minus_square;
  return x < 0 ? -y : y;
}

}  // namespace
}  // namespace edgeopt::EDGEOPT_ISA
