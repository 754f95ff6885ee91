#include "loops.inl"

namespace edgeopt::chain {

Loops loops_avx2() { return make_loops("avx2"); }

}  // namespace edgeopt::chain
