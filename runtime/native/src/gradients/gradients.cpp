#include "gradients.h"

#include <algorithm>
#include <cstdlib>

namespace edgeopt::gradients {

void add_all(std::deque<Op>& table) {
    add_activations(table);
    add_convolution(table);
    add_normalisation(table);
    add_recurrent(table);
    add_scattering(table);
}

void add_named(std::deque<Op>& table, const char* name, std::unique_ptr<Kernel> (*make)(const Info& info)) {
    for (int number = 1; number <= kNames; ++number) {
        table.push_back({number > 1 ? std::string(name) + "_" + std::to_string(number) : name,
                         {{abi::ElementType::kUndefined, abi::Arity::kVariadic}},
                         {{abi::ElementType::kFloat, abi::Arity::kVariadic}},
                         make});
    }
}

Results::Results(const Info& info, std::int64_t most) : positions_(info.integers("results")) {
    require(positions_.size() == info.outputs(), "`results` has as many entries as there are outputs");
    for (std::size_t i = 0; i < positions_.size(); ++i) {
        require(positions_[i] >= (i ? positions_[i - 1] + 1 : 0) && positions_[i] < most,
                "`results` names results of the operation, in order");
    }
}

float* Results::get(const Context& context, std::int64_t position, const Shape& shape) const {
    const auto found = std::find(positions_.begin(), positions_.end(), position);
    if (found == positions_.end()) return nullptr;
    return static_cast<float*>(context.output(static_cast<std::size_t>(found - positions_.begin()), shape).data);
}

const float* floats(const Context& context, std::size_t index, const Shape& shape) {
    const Tensor tensor = context.input(index);
    const std::string what = "input " + std::to_string(index);
    if (tensor.shape != shape) throw Error(what + " has another shape than the rest asks for");
    return tensor.floats(what.c_str());
}

void require(bool condition, const char* what) {
    if (!condition) throw Error(std::string("it does not hold that ") + what);
}

Pool pool_of(const Context& context) {
    return {const_cast<Context*>(&context),
            [](void* self, std::size_t tasks, void (*task)(void* context, std::size_t index), void* data) {
                parallel_for(*static_cast<const Context*>(self), tasks, [&](std::size_t index) { task(data, index); });
            }};
}

}  // namespace edgeopt::gradients
