// The arithmetic of chains on short runs of memory, once for each instruction set.
#pragma once

#include <cstddef>

#include "program.h"

namespace edgeopt::chain {

// to[i] = f(a[i], b[i], c[i], d[i]); operands that the instruction does not take are not read. `to` may be one of the operands.
using Loop = void (*)(float* to, const float* const* from, std::size_t count);

inline constexpr std::size_t kCodes = static_cast<std::size_t>(Code::kAll);
inline constexpr std::size_t kForms = 16;

// Loops by instruction and form: bit i says that operand i is one number instead of a vector.
struct Loops {
    const char* name;
    Loop of[kCodes][kForms];
    double (*sum)(const float* values, std::size_t count);
    float (*largest)(const float* values, std::size_t count);
    float (*smallest)(const float* values, std::size_t count);
    // 0 if all are finite, NaN if not.
    float (*finite)(const float* values, std::size_t count);
};

// Those for the processor that this runs on.
const Loops& loops();

}  // namespace edgeopt::chain
