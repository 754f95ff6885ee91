// Several instructions as one, where a result is read once and by the next one only: fewer passes over a block.
#pragma once

#include "program.h"

namespace edgeopt::chain {

// The section with combined instructions in place of some; each operation still rounds by itself. Instructions that
// became part of another stay in the list as `Code::kAll`, so that places keep their meaning.
Section combined(Section section);

}  // namespace edgeopt::chain
