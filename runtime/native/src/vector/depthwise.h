// Gradients of depthwise convolutions, as long dot products over images whose rows are laid end to end.
#pragma once

#include "vector/convolution.h"
#include "vector/simd.h"

namespace edgeopt::EDGEOPT_ISA {

bool depthwise_weight(const Pool& pool, const Convolution& c, const float* x, const float* g, float* to_w);
bool depthwise_input(const Pool& pool, const Convolution& c, const float* g, const float* w, float* to_x);

}  // namespace edgeopt::EDGEOPT_ISA
