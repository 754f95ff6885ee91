#include "windows.h"

namespace edgeopt::gradients {

namespace {

// Longer windows than this are refused, so that sums of lengths stay far from overflowing.
constexpr std::int64_t kLongest = std::int64_t{1} << 30;

}  // namespace

Window::Window(const Info& info) {
    const auto sizes = info.integers("kernel_shape"), steps = info.integers("strides");
    const auto distances = info.integers("dilations"), pads = info.integers("pads");
    rank = sizes.size();
    require((rank == 1 || rank == 2) && steps.size() == rank && distances.size() == rank && pads.size() == 2 * rank,
            "the window has one or two axes");
    for (std::size_t i = 0; i < rank; ++i) {
        const std::size_t axis = 2 - rank + i;
        kernel[axis] = sizes[i], strides[axis] = steps[i], dilations[axis] = distances[i];
        begin[axis] = pads[i], end[axis] = pads[rank + i];
        for (const std::int64_t length : {kernel[axis], strides[axis], dilations[axis]})
            require(length > 0 && length < kLongest, "kernel, strides and dilations are positive and of ordinary size");
        require(kernel[axis] == 1 || dilations[axis] < kLongest / kernel[axis], "the window is of ordinary size");
        const std::int64_t extent = (kernel[axis] - 1) * dilations[axis] + 1;
        for (const std::int64_t pad : {begin[axis], end[axis]})
            require(-extent < pad && pad < extent, "padding is narrower than the window");
    }
}

void Window::lengths(const Shape& shape, std::int64_t to[2]) const {
    require(shape.size() == rank + 2, "images have a batch, channels and the window's axes");
    to[0] = rank == 2 ? shape[2] : 1, to[1] = shape[rank + 1];
}

void Window::check(const std::int64_t size[2], const std::int64_t positions[2]) const {
    for (int axis = 0; axis < 2; ++axis) {
        const std::int64_t extent = (kernel[axis] - 1) * dilations[axis] + 1;
        const std::int64_t room = size[axis] + begin[axis] + end[axis] - extent;
        require(size[axis] > 0 && room >= 0 && positions[axis] == room / strides[axis] + 1,
                "the output has one position for each place of the window");
    }
}

}  // namespace edgeopt::gradients
