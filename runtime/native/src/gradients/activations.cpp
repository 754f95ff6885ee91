// `ClipGrad` (g, x), `GeluGrad` (g, x), and over the last axis `SoftmaxGrad` and `LogSoftmaxGrad` (g, y).
#include "../vector/activations.h"

#include <limits>

#include "gradients.h"

namespace edgeopt::gradients {

namespace {

// (g, x): the cotangent where x lies between the limits.
class ClipGrad final : public Kernel {
public:
    explicit ClipGrad(const Info& info)
        : low_(info.number("low", none())), high_(info.number("high", none())), results_(info, 1) {}

    void run(const Context& context) const override {
        const Tensor x = context.input(1);
        const float* g = floats(context, 0, x.shape);
        activation_kernels().between(pool_of(context), x.size, limit(low_), limit(high_), g, x.floats("x"),
                                     results_.get(context, 0, x.shape));
    }

private:
    static constexpr float none() { return std::numeric_limits<float>::quiet_NaN(); }
    static const float* limit(const float& value) { return value == value ? &value : nullptr; }

    float low_, high_;
    Results results_;
};

class GeluGrad final : public Kernel {
public:
    explicit GeluGrad(const Info& info) : results_(info, 1) {
        const std::string how = info.text("approximate", "none");
        require(how == "none" || how == "tanh", "`approximate` is none or tanh");
        approximate_ = how == "tanh";
    }

    void run(const Context& context) const override {
        const Tensor x = context.input(1);
        const float* g = floats(context, 0, x.shape);
        activation_kernels().gelu(pool_of(context), x.size, approximate_, g, x.floats("x"),
                                  results_.get(context, 0, x.shape));
    }

private:
    bool approximate_;
    Results results_;
};

template <bool Logarithm>
class SoftmaxGrad final : public Kernel {
public:
    explicit SoftmaxGrad(const Info& info) : results_(info, 1) {}

    void run(const Context& context) const override {
        const Tensor y = context.input(1);
        require(!y.shape.empty(), "there is an axis");
        const float* g = floats(context, 0, y.shape);
        float* to = results_.get(context, 0, y.shape);
        if (y.size == 0) return;
        const std::int64_t width = y.shape.back();
        const auto kernel = Logarithm ? activation_kernels().log_softmax : activation_kernels().softmax;
        kernel(pool_of(context), y.size / width, width, g, y.floats("y"), to);
    }

private:
    Results results_;
};

}  // namespace

void add_activations(std::deque<Op>& table) {
    add_named(table, "ClipGrad", made<ClipGrad>);
    add_named(table, "GeluGrad", made<GeluGrad>);
    add_named(table, "SoftmaxGrad", made<SoftmaxGrad<false>>);
    add_named(table, "LogSoftmaxGrad", made<SoftmaxGrad<true>>);
}

}  // namespace edgeopt::gradients
