// What the operators of gradients share: their names, the results that a node has, and threads for their kernels.
#pragma once

#include <deque>

#include "../op.h"
#include "../parallel.h"
#include "../vector/pool.h"

namespace edgeopt::gradients {

// Adds all of them to the table.
void add_all(std::deque<Op>& table);

// Adds the operators to the table, each under as many names as a model may have bodies of it.
void add_convolution(std::deque<Op>& table);
void add_normalisation(std::deque<Op>& table);
void add_activations(std::deque<Op>& table);
void add_recurrent(std::deque<Op>& table);
void add_scattering(std::deque<Op>& table);

// A model has one function of a name, and an operation has as many bodies as there are shapes: `Name`, `Name_2`, … The
// exporter's `MOST_BODIES` is the same number.
inline constexpr int kNames = 64;

// One row for each name; floats go in and come out, as many as a node has.
void add_named(std::deque<Op>& table, const char* name, std::unique_ptr<Kernel> (*make)(const Info& info));

template <class Made>
std::unique_ptr<Kernel> made(const Info& info) {
    return std::make_unique<Made>(info);
}

// Of an operation's results, those that the node has, in this order: its attribute `results`.
class Results {
public:
    Results(const Info& info, std::int64_t most);

    // Makes the output, if the node has it; null otherwise.
    float* get(const Context& context, std::int64_t position, const Shape& shape) const;

private:
    std::vector<std::int64_t> positions_;
};

// The floats of an input, which must have this shape.
const float* floats(const Context& context, std::size_t index, const Shape& shape);

// Throws unless the condition holds.
void require(bool condition, const char* what);

// Threads of the session.
Pool pool_of(const Context& context);

}  // namespace edgeopt::gradients
