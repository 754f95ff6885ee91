// Every operator of the library: one function each, which says what goes in and out and makes the kernel.
#pragma once

#include "../op.h"

namespace edgeopt::ops {

Op self_test();

// One of the names under which chains go: a model's functions need names of their own, and ONNX Runtime knows an operator
// by its name alone.
Op chain_op(int number);
inline constexpr int kChains = 64;

}  // namespace edgeopt::ops
