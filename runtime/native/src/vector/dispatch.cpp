// The tables of the widest instruction set that the processor has.
#include <cstdlib>

#include "vector/activations.h"
#include "vector/convolution.h"
#include "vector/normalisation.h"
#include "vector/recurrent.h"
#include "vector/scattering.h"

namespace edgeopt {

void* allocate(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  if (bytes > static_cast<std::size_t>(-1) - kAlignment) return nullptr;
  return std::aligned_alloc(kAlignment, (bytes + kAlignment) / kAlignment * kAlignment);
}

void release(void* memory) { std::free(memory); }

#if defined(EDGEOPT_X86)
#define EDGEOPT_TABLE(TYPE, NAME)                                                                        \
  namespace baseline { extern const TYPE NAME; }                                                         \
  namespace avx2 { extern const TYPE NAME; }                                                             \
  namespace avx512 { extern const TYPE NAME; }                                                           \
  const TYPE& NAME() {                                                                                   \
    static const TYPE& widest = *(width() == 2 ? &avx512::NAME : width() == 1 ? &avx2::NAME : &baseline::NAME); \
    return widest;                                                                                       \
  }
namespace {
int width() {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  return avx2 && avx512 ? 2 : avx2 ? 1 : 0;
}
}  // namespace
#else
#define EDGEOPT_TABLE(TYPE, NAME)                \
  namespace baseline { extern const TYPE NAME; } \
  const TYPE& NAME() { return baseline::NAME; }
#endif

EDGEOPT_TABLE(ActivationKernels, activation_kernels)
EDGEOPT_TABLE(ConvolutionKernels, convolution_kernels)
EDGEOPT_TABLE(NormalisationKernels, normalisation_kernels)
EDGEOPT_TABLE(RecurrentKernels, recurrent_kernels)
EDGEOPT_TABLE(ScatteringKernels, scattering_kernels)

}  // namespace edgeopt
