// `ConvWeightGrad` (x, g) and `ConvInputGrad` (g, w).
#include "../vector/convolution.h"

#include "windows.h"

namespace edgeopt::gradients {

namespace {

Convolution geometry(const Window& w, std::int64_t group, const Shape& x, const Shape& g) {
    std::int64_t size[2], positions[2];
    w.lengths(x, size), w.lengths(g, positions);
    w.check(size, positions);
    require(x[0] == g[0] && group > 0 && x[1] > 0 && g[1] > 0 && x[1] % group == 0 && g[1] % group == 0,
            "batches are equal and the group divides the channels");
    return {x[0],           x[1],           size[0],        size[1],         g[1],      group,      w.kernel[0],
            w.kernel[1],    w.strides[0],   w.strides[1],   w.dilations[0],  w.dilations[1], w.begin[0], w.begin[1],
            positions[0],   positions[1]};
}

Shape weight_shape(const Window& w, const Convolution& c) {
    Shape shape{c.features, c.channels / c.group, w.kernel[0], w.kernel[1]};
    if (w.rank == 1) shape.erase(shape.begin() + 2);
    return shape;
}

class WeightGrad final : public Kernel {
public:
    explicit WeightGrad(const Info& info) : window_(info), group_(info.integer("group", 1)), results_(info, 1) {}

    void run(const Context& context) const override {
        const Tensor x = context.input(0), g = context.input(1);
        const Convolution c = geometry(window_, group_, x.shape, g.shape);
        float* to = results_.get(context, 0, weight_shape(window_, c));
        if (!convolution_kernels().weight(pool_of(context), c, x.floats("x"), g.floats("the cotangent"), to))
            throw std::bad_alloc();
    }

private:
    Window window_;
    std::int64_t group_;
    Results results_;
};

class InputGrad final : public Kernel {
public:
    explicit InputGrad(const Info& info)
        : window_(info), group_(info.integer("group", 1)), size_(info.integers("size")), results_(info, 1) {}

    void run(const Context& context) const override {
        const Tensor g = context.input(0), w = context.input(1);
        require(!g.shape.empty() && w.shape.size() > 2 && group_ > 0 && w.shape[1] < (std::int64_t{1} << 31) &&
                    group_ < (std::int64_t{1} << 31),
                "the cotangent has a batch, and the weight has channels");
        Shape x{g.shape[0], w.shape[1] * group_};
        x.insert(x.end(), size_.begin(), size_.end());
        size_of(x);
        const Convolution c = geometry(window_, group_, x, g.shape);
        require(w.shape == weight_shape(window_, c), "the weight fits the window");
        float* to = results_.get(context, 0, x);
        if (!convolution_kernels().input(pool_of(context), c, g.floats("the cotangent"), w.floats("w"), to))
            throw std::bad_alloc();
    }

private:
    Window window_;
    std::int64_t group_;
    Shape size_;
    Results results_;
};

}  // namespace

void add_convolution(std::deque<Op>& table) {
    add_named(table, "ConvWeightGrad", made<WeightGrad>);
    add_named(table, "ConvInputGrad", made<InputGrad>);
}

}  // namespace edgeopt::gradients
