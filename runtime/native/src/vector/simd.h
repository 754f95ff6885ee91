// Vectors as wide as the instruction set that a file is compiled for, and what kernels share.
//
// Each kernel file is compiled once for every instruction set, with EDGEOPT_ISA naming the namespace. Nothing here may
// be an inline function with external linkage: the linker would keep one copy of it for all processors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "vector/pool.h"

#ifndef EDGEOPT_ISA
#define EDGEOPT_ISA baseline
#endif

namespace edgeopt::EDGEOPT_ISA {
namespace {

#if defined(__AVX512F__)
constexpr std::ptrdiff_t kLanes = 16;
constexpr int kTileRows = 8;
#elif defined(__AVX2__)
constexpr std::ptrdiff_t kLanes = 8;
constexpr int kTileRows = 6;
#else
constexpr std::ptrdiff_t kLanes = 4;
#if defined(__aarch64__)
constexpr int kTileRows = 8;
#else
constexpr int kTileRows = 6;
#endif
#endif

typedef float Vec __attribute__((vector_size(kLanes * sizeof(float))));
typedef float LooseVec __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias));

inline Vec load(const float* p) { return *reinterpret_cast<const LooseVec*>(p); }
inline void store(float* p, Vec v) { *reinterpret_cast<LooseVec*>(p) = v; }
inline Vec splat(float x) { return x - Vec{}; }

inline float sum(Vec v) {
  float total = 0;
  for (std::ptrdiff_t i = 0; i < kLanes; ++i) total += v[i];
  return total;
}

inline std::ptrdiff_t round_up(std::ptrdiff_t count, std::ptrdiff_t to) { return (count + to - 1) / to * to; }
inline std::ptrdiff_t smaller(std::ptrdiff_t a, std::ptrdiff_t b) { return a < b ? a : b; }
inline std::ptrdiff_t larger(std::ptrdiff_t a, std::ptrdiff_t b) { return a > b ? a : b; }

// Memory of one call, zeroed on request; `get` is null where there is none left.
class Scratch {
 public:
  explicit Scratch(std::ptrdiff_t floats) : memory_(allocate(static_cast<std::size_t>(floats) * sizeof(float))) {}
  ~Scratch() { release(memory_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  float* get() const { return static_cast<float*>(memory_); }
  explicit operator bool() const { return memory_ != nullptr; }

 private:
  void* memory_;
};

// Whether any of several threads has failed.
class Failure {
 public:
  void note() { __atomic_store_n(&noted_, true, __ATOMIC_RELAXED); }
  bool noted() const { return __atomic_load_n(&noted_, __ATOMIC_RELAXED); }

 private:
  bool noted_ = false;
};

inline void clear(float* p, std::ptrdiff_t count) {
  std::memset(p, 0, static_cast<std::size_t>(count) * sizeof(float));
}
inline void copy(float* to, const float* from, std::ptrdiff_t count) {
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
}

// Calls `work(index)` for every index below `tasks`, on as many threads as the pool has.
template <class Work>
inline void each(const Pool& pool, std::ptrdiff_t tasks, const Work& work) {
  pool.run(
      pool.self, static_cast<std::size_t>(tasks),
      [](void* context, std::size_t index) {
        (*static_cast<const Work*>(context))(static_cast<std::ptrdiff_t>(index));
      },
      const_cast<Work*>(&work));
}

}  // namespace
}  // namespace edgeopt::EDGEOPT_ISA
