// The geometry of a sliding window over one or two axes, from a node's attributes, and checked against shapes.
#pragma once

#include "gradients.h"

namespace edgeopt::gradients {

// Of two axes; where there is one, the first of them has size 1.
struct Window {
    std::int64_t kernel[2] = {1, 1}, strides[2] = {1, 1}, dilations[2] = {1, 1}, begin[2] = {0, 0}, end[2] = {0, 0};
    std::size_t rank = 2;

    explicit Window(const Info& info);

    // The spatial lengths of a tensor (batch, channels, …); throws if it has another rank.
    void lengths(const Shape& shape, std::int64_t to[2]) const;
    // Throws unless the window, moved over `size`, has `positions` places.
    void check(const std::int64_t size[2], const std::int64_t positions[2]) const;
};

}  // namespace edgeopt::gradients
