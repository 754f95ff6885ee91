// Whole sequences of LSTM and GRU, there and back.
#pragma once

#include <cstddef>

#include "vector/pool.h"

namespace edgeopt {

// One direction. Tensors are (time, batch, …); the weights have `hidden` rows for each gate. `backwards` is whether
// time runs from the last step to the first.
struct Sequence {
  std::ptrdiff_t time, batch, features, hidden;
  bool backwards;
};

// Weights (gates · hidden, features) and (gates · hidden, hidden), biases of both behind one another; no bias is null.
struct RecurrentWeights {
  const float *w, *r, *b;
};

// What the way there leaves for the way back, as ONNX's operators define it.
//
// LSTM: gates are i, o, f, g as they were opened, (time, batch, 4 hidden); `inner` are the cells.
// GRU (`linear_before_reset`): gates are z, r, h, (time, batch, 3 hidden); `inner` is what r multiplies.
struct RecurrentTrace {
  float *states, *gates, *inner;
};
struct RecurrentRecord {
  const float *states, *gates, *inner;
};

// Initial states, or cotangents of the last ones; null for zero. A GRU has no cells.
struct RecurrentStates {
  const float *h, *c;
};

// Cotangents of the gates' arguments, which are those of x · w; of a GRU those of h · r, which differ in the last gate,
// follow; then those of the initial states.
struct RecurrentCotangents {
  float *arguments, *recurrent, *h, *c;
};

// All return false where memory is short. `to_states` may be null.
struct RecurrentKernels {
  bool (*lstm)(const Pool& pool, const Sequence& s, const float* x, const RecurrentWeights& w,
               const RecurrentStates& initial, const RecurrentTrace& to);
  bool (*gru)(const Pool& pool, const Sequence& s, const float* x, const RecurrentWeights& w,
              const RecurrentStates& initial, const RecurrentTrace& to);
  bool (*lstm_back)(const Pool& pool, const Sequence& s, const float* to_states, const RecurrentStates& to_last,
                    const float* r, const RecurrentStates& initial, const RecurrentRecord& record,
                    const RecurrentCotangents& to);
  bool (*gru_back)(const Pool& pool, const Sequence& s, const float* to_states, const RecurrentStates& to_last,
                   const float* r, const RecurrentStates& initial, const RecurrentRecord& record,
                   const RecurrentCotangents& to);
};

const RecurrentKernels& recurrent_kernels();

}  // namespace edgeopt
