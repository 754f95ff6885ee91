// Runs checked programs in blocks that stay in a processor's first cache, so that memory is read and written once.
#pragma once

#include <cstdint>
#include <vector>

#include "loops.h"
#include "program.h"

namespace edgeopt::chain {

// Elements of a unit that are worked on together.
struct Stretch {
    std::uint32_t section = 0;
    std::uint32_t unit = 0;
    std::int64_t begin = 0;
    std::int64_t end = 0;
};

// What one thread does at a time.
using Task = std::vector<Stretch>;

// Memory of one run: the first element of each input and output, and what the numbers among the inputs are.
struct Tensors {
    std::vector<const float*> inputs;
    std::vector<float> numbers;
    std::vector<float*> outputs;
};

class Machine {
public:
    explicit Machine(Program program);

    const Program& program() const { return program_; }
    std::size_t tasks() const { return tasks_.size(); }

    // Does one task; its reductions go to `reduced`, one for each output.
    void run(std::size_t task, const Tensors& tensors, double* reduced) const;

    // Writes the reductions of all tasks to the outputs, always in the same order.
    void reduce(const std::vector<double>& reduced, const Tensors& tensors) const;

private:
    // A place in the list of pointers that a section works with: constants, numbers, loads, stores, registers.
    struct Step {
        Loop loop = nullptr;
        std::uint32_t to = 0;
        std::uint32_t from[4] = {0, 0, 0, 0};
    };
    struct Reduce {
        Reduction kind = Reduction::kNone;
        std::uint32_t from = 0;
        std::uint32_t output = 0;
    };
    struct Plan {
        std::vector<Step> steps;
        std::vector<Reduce> reductions;
        std::uint32_t registers = 0;
        std::size_t block = 0;
    };

    Plan planned(const Section& section) const;
    void share_out();
    void stretch(const Stretch& stretch, const Tensors& tensors, float* scratch, double* reduced) const;

    Program program_;
    std::vector<Plan> plans_;
    std::vector<Task> tasks_;
};

}  // namespace edgeopt::chain
