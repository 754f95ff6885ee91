// `BatchStatistics` (x), `BatchNormGrad` (g, x, scale, mean, inverse deviation), `LayerNormGrad` (g, x, scale).
#include "../vector/normalisation.h"

#include "gradients.h"

namespace edgeopt::gradients {

namespace {

Channels channels_of(const Shape& shape) {
    require(shape.size() >= 2, "images have a batch and channels");
    const std::int64_t size = size_of(Shape(shape.begin() + 2, shape.end()));
    return {shape[0], shape[1], size};
}

// Statistics of each channel, kept as (1, channels, 1, …).
Shape statistics_shape(const Shape& shape) {
    Shape kept(shape.size(), 1);
    kept[1] = shape[1];
    return kept;
}

class BatchStatistics final : public Kernel {
public:
    explicit BatchStatistics(const Info& info) : results_(info, 2) {}

    void run(const Context& context) const override {
        const Tensor x = context.input(0);
        const Channels c = channels_of(x.shape);
        const Shape kept = statistics_shape(x.shape);
        float *mean = results_.get(context, 0, kept), *variance = results_.get(context, 1, kept);
        std::vector<float> unread(static_cast<std::size_t>(mean && variance ? 0 : c.channels));
        normalisation_kernels().statistics(pool_of(context), c, x.floats("x"), mean ? mean : unread.data(),
                                           variance ? variance : unread.data());
    }

private:
    Results results_;
};

class BatchNormGrad final : public Kernel {
public:
    explicit BatchNormGrad(const Info& info) : results_(info, 3) {}

    void run(const Context& context) const override {
        const Tensor x = context.input(1);
        const Channels c = channels_of(x.shape);
        const Shape kept = statistics_shape(x.shape), vector{c.channels};
        const float *g = floats(context, 0, x.shape), *scale = floats(context, 2, vector);
        const float *mean = floats(context, 3, kept), *inverse = floats(context, 4, kept);
        normalisation_kernels().batch(pool_of(context), c, g, x.floats("x"), scale, mean, inverse,
                                      {results_.get(context, 0, x.shape), results_.get(context, 1, vector),
                                       results_.get(context, 2, vector)});
    }

private:
    Results results_;
};

class LayerNormGrad final : public Kernel {
public:
    explicit LayerNormGrad(const Info& info)
        : axis_(info.integer("axis", -1)), epsilon_(info.number("epsilon", 1e-5F)), results_(info, 3) {}

    void run(const Context& context) const override {
        const Tensor x = context.input(1);
        require(axis_ >= 0 && axis_ < static_cast<std::int64_t>(x.shape.size()), "`axis` is an axis of the input");
        const Shape outer(x.shape.begin(), x.shape.begin() + axis_), inner(x.shape.begin() + axis_, x.shape.end());
        const Rows rows{size_of(outer), size_of(inner)};
        const float *g = floats(context, 0, x.shape), *scale = floats(context, 2, inner);
        const bool done = normalisation_kernels().layer(
            pool_of(context), rows, g, x.floats("x"), scale, epsilon_,
            {results_.get(context, 0, x.shape), results_.get(context, 1, inner), results_.get(context, 2, inner)});
        if (!done) throw std::bad_alloc();
    }

private:
    std::int64_t axis_;
    float epsilon_;
    Results results_;
};

}  // namespace

void add_normalisation(std::deque<Op>& table) {
    add_named(table, "BatchStatistics", made<BatchStatistics>);
    add_named(table, "BatchNormGrad", made<BatchNormGrad>);
    add_named(table, "LayerNormGrad", made<LayerNormGrad>);
}

}  // namespace edgeopt::gradients
