// `MaxPoolGrad` (g, x, y) and `GatherGrad` (g, indices).
#include "../vector/scattering.h"

#include "windows.h"

namespace edgeopt::gradients {

namespace {

class MaxPoolGrad final : public Kernel {
public:
    explicit MaxPoolGrad(const Info& info) : window_(info), results_(info, 1) {}

    void run(const Context& context) const override {
        const Tensor x = context.input(1), y = context.input(2);
        std::int64_t size[2], positions[2];
        window_.lengths(x.shape, size), window_.lengths(y.shape, positions);
        // The window may have room for more positions than `ceil_mode` counts; elements outside are not read.
        require(x.shape[0] == y.shape[0] && x.shape[1] == y.shape[1], "every channel is pooled by itself");
        for (int axis = 0; axis < 2; ++axis) require(positions[axis] < (std::int64_t{1} << 31), "sizes are ordinary");
        const Window& w = window_;
        const Windows windows{x.shape[0] * x.shape[1], size[0],        size[1],        w.kernel[0],  w.kernel[1],
                              w.strides[0],            w.strides[1],   w.dilations[0], w.dilations[1], w.begin[0],
                              w.begin[1],              positions[0],   positions[1]};
        const float* g = floats(context, 0, y.shape);
        scattering_kernels().max_pool(pool_of(context), windows, g, x.floats("x"), y.floats("y"),
                                      results_.get(context, 0, x.shape));
    }

private:
    Window window_;
    Results results_;
};

class GatherGrad final : public Kernel {
public:
    explicit GatherGrad(const Info& info)
        : axis_(info.integer("axis", 0)), shape_(info.integers("shape")), results_(info, 1) {
        require(axis_ >= 0 && axis_ < static_cast<std::int64_t>(shape_.size()), "`axis` is an axis of `shape`");
        size_of(shape_);
    }

    void run(const Context& context) const override {
        const Tensor indices = context.input(1);
        const auto axis = shape_.begin() + axis_;
        Shape picked(shape_.begin(), axis);
        picked.insert(picked.end(), indices.shape.begin(), indices.shape.end());
        picked.insert(picked.end(), axis + 1, shape_.end());
        const float* g = floats(context, 0, picked);
        float* to = results_.get(context, 0, shape_);
        const Picked p{size_of(Shape(shape_.begin(), axis)), *axis, size_of(Shape(axis + 1, shape_.end())),
                       indices.size};
        scattering_kernels().add_rows(pool_of(context), p, g, from_the_front(indices, *axis).data(), to);
    }

private:
    // Negative indices count from the end.
    static std::vector<std::int64_t> from_the_front(const Tensor& indices, std::int64_t size) {
        std::vector<std::int64_t> found(static_cast<std::size_t>(indices.size));
        for (std::size_t i = 0; i < found.size(); ++i) {
            if (indices.type == abi::ElementType::kInt32)
                found[i] = static_cast<const std::int32_t*>(indices.data)[i];
            else
                found[i] = indices.ints("the indices")[i];
            if (found[i] < 0) found[i] += size;
            require(found[i] >= 0 && found[i] < size, "every index is one of a row");
        }
        return found;
    }

    std::int64_t axis_;
    Shape shape_;
    Results results_;
};

}  // namespace

void add_scattering(std::deque<Op>& table) {
    add_named(table, "MaxPoolGrad", made<MaxPoolGrad>);
    add_named(table, "GatherGrad", made<GatherGrad>);
}

}  // namespace edgeopt::gradients
