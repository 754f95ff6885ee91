// `Chain`, `Chain_2`, …: elementwise arithmetic of many vectors in one pass over memory. What it is stands in the
// attributes `program` and `constants`; edgeopt/fusion/programs.py has the format.
#include <cstring>

#include "../kernels/chain/machine.h"
#include "../parallel.h"
#include "ops.h"

namespace edgeopt::ops {

namespace {

class Chain final : public Kernel {
public:
    explicit Chain(const Info& info)
        : machine_(chain::read_program(info.integers("program"), info.numbers("constants"), info.inputs(),
                                       info.outputs())) {}

    void run(const Context& context) const override {
        const chain::Program& program = machine_.program();
        chain::Tensors tensors;
        for (std::size_t i = 0; i < program.inputs.size(); ++i) {
            const Tensor input = context.input(i);
            const bool is_number = program.inputs[i] < 0;
            if (input.size != (is_number ? 1 : program.inputs[i])) {
                throw Error("input " + std::to_string(i) + " has " + std::to_string(input.size) +
                            " elements, and not those of the program");
            }
            tensors.inputs.push_back(is_number ? nullptr : input.floats("a vector"));
            tensors.numbers.push_back(input.size == 1 ? number(input) : 0.0F);
        }
        for (std::size_t i = 0; i < program.outputs.size(); ++i) {
            const Tensor output = context.output(i, program.outputs[i].shape);
            tensors.outputs.push_back(const_cast<float*>(output.floats("an output")));
        }
        const std::size_t width = program.outputs.size();
        std::vector<double> reduced(machine_.tasks() * width);
        parallel_for(context, machine_.tasks(),
                     [&](std::size_t task) { machine_.run(task, tensors, reduced.data() + task * width); });
        machine_.reduce(reduced, tensors);
    }

private:
    static float number(const Tensor& input) {
        switch (input.type) {
            case abi::ElementType::kFloat:
                return *static_cast<const float*>(input.data);
            case abi::ElementType::kBool:
                return *static_cast<const bool*>(input.data) ? 1.0F : 0.0F;
            default:
                throw Error("a number is neither float32 nor bool");
        }
    }

    chain::Machine machine_;
};

}  // namespace

Op chain_op(int number) {
    using abi::Arity;
    using abi::ElementType;
    return {number == 1 ? "Chain" : "Chain_" + std::to_string(number),
            {{ElementType::kUndefined, Arity::kVariadic}},
            {{ElementType::kFloat, Arity::kVariadic}},
            [](const Info& info) -> std::unique_ptr<Kernel> { return std::make_unique<Chain>(info); }};
}

}  // namespace edgeopt::ops
