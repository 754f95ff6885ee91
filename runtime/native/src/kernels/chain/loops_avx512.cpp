#include "loops.inl"

namespace edgeopt::chain {

Loops loops_avx512() { return make_loops("avx512"); }

}  // namespace edgeopt::chain
