#include "loops.h"

namespace edgeopt::chain {

Loops loops_baseline();
#if defined(EDGEOPT_X86)
Loops loops_avx2();
Loops loops_avx512();
#endif

namespace {

Loops chosen() {
#if defined(EDGEOPT_X86)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl")) {
        return loops_avx512();
    }
    if (__builtin_cpu_supports("avx2")) return loops_avx2();
#endif
    return loops_baseline();
}

}  // namespace

const Loops& loops() {
    static const Loops loops = chosen();
    return loops;
}

}  // namespace edgeopt::chain
