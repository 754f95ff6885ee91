#include "self_test.h"

namespace edgeopt::kernels {

void scale_and_shift(const float* from, float* to, std::int64_t size, float factor, float offset) {
    for (std::int64_t i = 0; i < size; ++i) to[i] = from[i] * factor + offset;
}

}  // namespace edgeopt::kernels
