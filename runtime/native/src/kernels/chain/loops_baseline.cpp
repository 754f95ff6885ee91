#include "loops.inl"

namespace edgeopt::chain {

Loops loops_baseline() { return make_loops("baseline"); }

}  // namespace edgeopt::chain
