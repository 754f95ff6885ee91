// Sequences of a batch do not meet, so a task takes a few of them through all steps, with weights that were packed once.

#include "vector/recurrent.h"

#include "vector/functions.h"
#include "vector/tile.h"

namespace edgeopt::EDGEOPT_ISA {
namespace {

// A matrix in panels of columns, (length, columns), zero behind the last one.
class Panels {
 public:
  Panels(std::ptrdiff_t length, std::ptrdiff_t columns)
      : length_(length), width_(round_up(columns, kPanel)), memory_(length * width_) {}
  explicit operator bool() const { return static_cast<bool>(memory_); }
  std::ptrdiff_t width() const { return width_; }

  // The rows of a matrix become columns.
  void pack_rows(const float* matrix, std::ptrdiff_t rows) {
    for (std::ptrdiff_t first = 0; first < width_; first += kPanel) {
      const float* columns[kPanel];
      const std::ptrdiff_t count = smaller(kPanel, rows - first);
      for (std::ptrdiff_t j = 0; j < count; ++j) columns[j] = matrix + (first + j) * length_;
      pack_transposed(columns, count, kPanel, length_, memory_.get() + first * length_);
    }
  }

  // The columns stay columns.
  void pack_columns(const float* matrix, std::ptrdiff_t columns) {
    for (std::ptrdiff_t first = 0; first < width_; first += kPanel) {
      const std::ptrdiff_t count = smaller(kPanel, columns - first);
      float* to = memory_.get() + first * length_;
      for (std::ptrdiff_t k = 0; k < length_; ++k, to += kPanel) {
        copy(to, matrix + k * columns + first, count);
        clear(to + count, kPanel - count);
      }
    }
  }

  // result (kTileRows, width) += rows · panels.
  void multiply(const float* const* rows, float* result) const {
    const std::ptrdiff_t begin = 0;
    const Runs runs{&begin, 1, length_, 1};
    for (std::ptrdiff_t first = 0; first < width_; first += kPanel)
      tile<2>(rows, runs, memory_.get() + first * length_, kPanel, result + first, width_);
  }

 private:
  std::ptrdiff_t length_, width_;
  Scratch memory_;
};

// The rows of one task, and where they are in a tensor of a step.
struct Block {
  std::ptrdiff_t first, count;

  // The last one stands for those that are not there.
  template <class Pointer>
  void rows(Pointer step, std::ptrdiff_t width, const float** to) const {
    for (int i = 0; i < kTileRows; ++i) to[i] = step + (first + smaller(i, count - 1)) * width;
  }
};

template <class Work>
bool each_block(const Pool& pool, std::ptrdiff_t batch, const Work& work) {
  Failure failed;
  each(pool, (batch + kTileRows - 1) / kTileRows, [&](std::ptrdiff_t task) {
    const Block block{task * kTileRows, smaller(kTileRows, batch - task * kTileRows)};
    if (!work(block)) failed.note();
  });
  return !failed.noted();
}

std::ptrdiff_t step_at(const Sequence& s, std::ptrdiff_t order) { return s.backwards ? s.time - 1 - order : order; }

// What a step begins with, from the record of all states (or cells) or the initial ones; null for zero.
const float* before(const Sequence& s, std::ptrdiff_t order, const float* all, const float* initial) {
  return order == 0 ? initial : all + step_at(s, order - 1) * s.batch * s.hidden;
}

// The states after a step from those before it: of all rows of a block, the arguments being filled in already.
template <class Cell>
bool there(const Pool& pool, const Sequence& s, std::ptrdiff_t gates, const float* x, const RecurrentWeights& weights,
           const float* initial, float* states, const Cell& cell) {
  const std::ptrdiff_t width = gates * s.hidden;
  Panels w(s.features, width), r(s.hidden, width);
  Scratch zero(s.hidden);
  if (!w || !r || !zero) return false;
  w.pack_rows(weights.w, width), r.pack_rows(weights.r, width), clear(zero.get(), s.hidden);
  return each_block(pool, s.batch, [&](const Block& block) {
    Scratch scratch(2 * kTileRows * r.width());
    if (!scratch) return false;
    float *of_x = scratch.get(), *of_h = of_x + kTileRows * r.width();
    for (std::ptrdiff_t order = 0; order < s.time; ++order) {
      const std::ptrdiff_t step = step_at(s, order) * s.batch;
      for (int i = 0; i < kTileRows; ++i) {
        clear(of_x + i * r.width(), r.width()), clear(of_h + i * r.width(), r.width());
        if (!weights.b) continue;
        copy(of_x + i * r.width(), weights.b, width), copy(of_h + i * r.width(), weights.b + width, width);
      }
      const float* rows[kTileRows];
      block.rows(x + step * s.features, s.features, rows);
      w.multiply(rows, of_x);
      const float* entering = before(s, order, states, initial);
      if (entering) {
        block.rows(entering, s.hidden, rows);
        r.multiply(rows, of_h);
      }
      for (std::ptrdiff_t i = 0; i < block.count; ++i)
        cell(order, step + block.first + i, block.first + i, of_x + i * r.width(), of_h + i * r.width(),
             entering ? entering + (block.first + i) * s.hidden : zero.get());
    }
    return true;
  });
}

bool lstm(const Pool& pool, const Sequence& s, const float* x, const RecurrentWeights& weights,
          const RecurrentStates& initial, const RecurrentTrace& to) {
  const std::ptrdiff_t width = s.hidden;
  const auto cell = [&](std::ptrdiff_t order, std::ptrdiff_t at, std::ptrdiff_t row, const float* __restrict of_x,
                        const float* __restrict of_h, const float*) {
    const float* entering = before(s, order, to.inner, initial.c);
    float* __restrict gates = to.gates + at * 4 * width;
    float* __restrict cells = to.inner + at * width;
    float* __restrict states = to.states + at * width;
    for (std::ptrdiff_t j = 0; j < 3 * width; ++j) gates[j] = sigmoid(of_x[j] + of_h[j]);
    for (std::ptrdiff_t j = 3 * width; j < 4 * width; ++j) gates[j] = hyperbolic_tangent(of_x[j] + of_h[j]);
    for (std::ptrdiff_t j = 0; j < width; ++j) cells[j] = gates[j] * gates[3 * width + j];
    if (entering) {
      const float* __restrict old = entering + row * width;
      for (std::ptrdiff_t j = 0; j < width; ++j) cells[j] += gates[2 * width + j] * old[j];
    }
    for (std::ptrdiff_t j = 0; j < width; ++j) states[j] = gates[width + j] * hyperbolic_tangent(cells[j]);
  };
  return there(pool, s, 4, x, weights, initial.h, to.states, cell);
}

bool gru(const Pool& pool, const Sequence& s, const float* x, const RecurrentWeights& weights,
         const RecurrentStates& initial, const RecurrentTrace& to) {
  const std::ptrdiff_t width = s.hidden;
  const auto cell = [&](std::ptrdiff_t, std::ptrdiff_t at, std::ptrdiff_t, const float* __restrict of_x,
                        const float* __restrict of_h, const float* __restrict entering) {
    float* __restrict gates = to.gates + at * 3 * width;
    float* __restrict kept = to.inner + at * width;
    float* __restrict states = to.states + at * width;
    for (std::ptrdiff_t j = 0; j < 2 * width; ++j) gates[j] = sigmoid(of_x[j] + of_h[j]);
    for (std::ptrdiff_t j = 0; j < width; ++j) {
      kept[j] = of_h[2 * width + j];
      const float fresh = hyperbolic_tangent(of_x[2 * width + j] + gates[width + j] * kept[j]);
      gates[2 * width + j] = fresh;
      states[j] = fresh + gates[j] * (entering[j] - fresh);
    }
  };
  return there(pool, s, 3, x, weights, initial.h, to.states, cell);
}

// From the last step to the first; `cell` turns the state's cotangent into those of the arguments.
template <class Cell>
bool back(const Pool& pool, const Sequence& s, std::ptrdiff_t gates, const float* to_states,
          const RecurrentStates& to_last, const float* r, const float* arguments, const RecurrentCotangents& to,
          const Cell& cell) {
  const std::ptrdiff_t width = s.hidden;
  Panels panels(gates * width, width);
  if (!panels) return false;
  panels.pack_columns(r, width);
  const std::ptrdiff_t pitch = panels.width();
  return each_block(pool, s.batch, [&](const Block& block) {
    Scratch scratch(kTileRows * (2 * pitch + width));
    if (!scratch) return false;
    float *to_h = scratch.get(), *passed = to_h + kTileRows * pitch, *to_c = passed + kTileRows * pitch;
    clear(to_h, kTileRows * (2 * pitch + width));
    for (std::ptrdiff_t i = 0; i < block.count; ++i) {
      if (to_last.h) copy(to_h + i * pitch, to_last.h + (block.first + i) * width, width);
      if (to_last.c) copy(to_c + i * width, to_last.c + (block.first + i) * width, width);
    }
    for (std::ptrdiff_t order = s.time - 1; order >= 0; --order) {
      const std::ptrdiff_t step = step_at(s, order) * s.batch;
      for (std::ptrdiff_t i = 0; i < block.count; ++i) {
        const std::ptrdiff_t row = block.first + i;
        float* __restrict arriving = to_h + i * pitch;
        if (to_states) {
          const float* __restrict more = to_states + (step + row) * width;
          for (std::ptrdiff_t j = 0; j < width; ++j) arriving[j] += more[j];
        }
        cell(order, step + row, row, arriving, to_c + i * width, passed + i * pitch);
      }
      const float* rows[kTileRows];
      block.rows(arguments + step * gates * width, gates * width, rows);
      panels.multiply(rows, passed);
      float* swap = to_h;
      to_h = passed, passed = swap;
    }
    for (std::ptrdiff_t i = 0; i < block.count; ++i) {
      if (to.h) copy(to.h + (block.first + i) * width, to_h + i * pitch, width);
      if (to.c) copy(to.c + (block.first + i) * width, to_c + i * width, width);
    }
    return true;
  });
}

bool lstm_back(const Pool& pool, const Sequence& s, const float* to_states, const RecurrentStates& to_last,
               const float* r, const RecurrentStates& initial, const RecurrentRecord& record,
               const RecurrentCotangents& to) {
  const std::ptrdiff_t width = s.hidden;
  const auto cell = [&](std::ptrdiff_t order, std::ptrdiff_t at, std::ptrdiff_t row, const float* __restrict to_h,
                        float* __restrict to_c, float* __restrict passed) {
    const float* __restrict gates = record.gates + at * 4 * width;
    const float* __restrict cells = record.inner + at * width;
    float* __restrict arguments = to.arguments + at * 4 * width;
    const float* entering = before(s, order, record.inner, initial.c);
    clear(passed, width);
    for (std::ptrdiff_t j = 0; j < width; ++j) {
      const float in = gates[j], out = gates[width + j], forget = gates[2 * width + j], fresh = gates[3 * width + j];
      const float shown = hyperbolic_tangent(cells[j]);
      const float to_cell = to_c[j] + to_h[j] * out * (1.0f - shown * shown);
      arguments[j] = to_cell * fresh * in * (1.0f - in);
      arguments[width + j] = to_h[j] * shown * out * (1.0f - out);
      arguments[2 * width + j] = to_cell * forget * (1.0f - forget);
      arguments[3 * width + j] = to_cell * in * (1.0f - fresh * fresh);
      to_c[j] = to_cell * forget;
    }
    if (!entering) return clear(arguments + 2 * width, width);
    const float* __restrict old = entering + row * width;
    for (std::ptrdiff_t j = 0; j < width; ++j) arguments[2 * width + j] *= old[j];
  };
  return back(pool, s, 4, to_states, to_last, r, to.arguments, to, cell);
}

bool gru_back(const Pool& pool, const Sequence& s, const float* to_states, const RecurrentStates& to_last,
              const float* r, const RecurrentStates& initial, const RecurrentRecord& record,
              const RecurrentCotangents& to) {
  const std::ptrdiff_t width = s.hidden;
  Scratch zero(width);
  if (!zero) return false;
  clear(zero.get(), width);
  const auto cell = [&](std::ptrdiff_t order, std::ptrdiff_t at, std::ptrdiff_t row, const float* __restrict to_h,
                        float*, float* __restrict passed) {
    const float* __restrict gates = record.gates + at * 3 * width;
    const float* __restrict kept = record.inner + at * width;
    float* __restrict of_x = to.arguments + at * 3 * width;
    float* __restrict of_h = to.recurrent + at * 3 * width;
    const float* all = before(s, order, record.states, initial.h);
    const float* __restrict entering = all ? all + row * width : zero.get();
    for (std::ptrdiff_t j = 0; j < width; ++j) {
      const float update = gates[j], reset = gates[width + j], fresh = gates[2 * width + j];
      const float to_fresh = to_h[j] * (1.0f - update) * (1.0f - fresh * fresh);
      of_x[j] = of_h[j] = to_h[j] * (entering[j] - fresh) * update * (1.0f - update);
      of_x[width + j] = of_h[width + j] = to_fresh * kept[j] * reset * (1.0f - reset);
      of_x[2 * width + j] = to_fresh;
      of_h[2 * width + j] = to_fresh * reset;
      passed[j] = to_h[j] * update;
    }
  };
  return back(pool, s, 3, to_states, to_last, r, to.recurrent, to, cell);
}

}  // namespace

extern const RecurrentKernels recurrent_kernels;
const RecurrentKernels recurrent_kernels{lstm, gru, lstm_back, gru_back};

}  // namespace edgeopt::EDGEOPT_ISA
