// Whole sequences of LSTM and GRU, there and back.
#pragma once

#include <cstddef>

#include "kernels/pool.h"

namespace edgeopt {

// Tensors (time, batch, …); each gate has `hidden` rows in the weights.
struct Sequence {
  std::ptrdiff_t time, batch, hidden;
  bool backwards;
};

// The recurrence alone: products with the input are made outside, for all steps at once.
struct RecurrentKernels {
  // From `arguments`, (time, batch, 4 hidden), W x + b in the order i, o, f, g: opened gates in the same places, cells
  // and states of all steps, (time, batch, hidden). `h` and `c` are the initial ones, null for zero.
  bool (*lstm)(const Pool& pool, const Sequence& s, const float* arguments, const float* r, const float* h,
               const float* c, float* gates, float* cells, float* states);
  // From cotangents of all states (or null) and of the last ones: those of the arguments, and of the initial state and
  // cell.
  bool (*lstm_back)(const Pool& pool, const Sequence& s, const float* to_states, const float* to_h, const float* to_c,
                    const float* r, const float* gates, const float* cells, const float* c, float* to_arguments,
                    float* to_initial_h, float* to_initial_c);
};

const RecurrentKernels& recurrent_kernels();

}  // namespace edgeopt
