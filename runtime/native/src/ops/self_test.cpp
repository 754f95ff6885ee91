// `EdgeoptSelfTest`: reads an attribute of each kind and one thing of each input, and so tells whether the places of
// abi.h are those of the ONNX Runtime that runs it.
//
// Outputs: each input times `factor`, plus the sum of `integers` and `numbers`, plus `offset`, plus the length of `text`.
#include <numeric>

#include "../kernels/self_test.h"
#include "../parallel.h"
#include "ops.h"

namespace edgeopt::ops {

namespace {

class SelfTest final : public Kernel {
public:
    explicit SelfTest(const Info& info) : factor_(info.number("factor", 1.0F)) {
        const auto integers = info.integers("integers");
        const auto numbers = info.numbers("numbers");
        const auto sum = std::accumulate(integers.begin(), integers.end(), info.integer("offset", 0));
        offset_ = std::accumulate(numbers.begin(), numbers.end(), static_cast<float>(sum));
        offset_ += static_cast<float>(info.text("text", "").size());
        if (info.inputs() != info.outputs()) throw Error("EdgeoptSelfTest has as many outputs as inputs");
    }

    void run(const Context& context) const override {
        for (std::size_t index = 0; index < context.inputs(); ++index) {
            const Tensor input = context.input(index);
            const Tensor output = context.output(index, input.shape);
            const float* from = input.floats("the input");
            auto* to = static_cast<float*>(output.data);
            parallel_ranges(context, input.size, 1 << 12, [&](std::int64_t begin, std::int64_t end) {
                kernels::scale_and_shift(from + begin, to + begin, end - begin, factor_, offset_);
            });
        }
    }

private:
    float factor_;
    float offset_;
};

}  // namespace

Op self_test() {
    using abi::Arity;
    using abi::ElementType;
    return {"EdgeoptSelfTest",
            {{ElementType::kFloat, Arity::kVariadic}},
            {{ElementType::kFloat, Arity::kVariadic}},
            [](const Info& info) -> std::unique_ptr<Kernel> { return std::make_unique<SelfTest>(info); }};
}

}  // namespace edgeopt::ops
