// Every operator of the library: one function each, which says what goes in and out and makes the kernel.
#pragma once

#include "../op.h"

namespace edgeopt::ops {

Op self_test();

}  // namespace edgeopt::ops
