// Gradients of convolutions with respect to weight and input.
#pragma once

#include <cstddef>

#include "vector/pool.h"

namespace edgeopt {

// A convolution over two spatial axes; with one, height, kernel and the like of the first are 1.
//
// Images are (batch, channels, height, width), the output is (batch, features, out_height, out_width), the weight
// (features, channels / group, kernel_height, kernel_width). The caller has checked that all are positive, that group
// divides channels and features, and that the tensors have these shapes. Padding in front may be negative.
struct Convolution {
  std::ptrdiff_t batch, channels, height, width, features, group;
  std::ptrdiff_t kernel_height, kernel_width, stride_height, stride_width, dilation_height, dilation_width;
  std::ptrdiff_t pad_top, pad_left, out_height, out_width;
};

// Both return false where memory is short.
struct ConvolutionKernels {
  bool (*weight)(const Pool& pool, const Convolution& c, const float* x, const float* g, float* to_w);
  bool (*input)(const Pool& pool, const Convolution& c, const float* g, const float* w, float* to_x);
};

const ConvolutionKernels& convolution_kernels();

}  // namespace edgeopt
