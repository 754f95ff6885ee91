#pragma once

#include <cstdint>

namespace edgeopt::kernels {

// to[i] = from[i] * factor + offset
void scale_and_shift(const float* from, float* to, std::int64_t size, float factor, float offset);

}  // namespace edgeopt::kernels
