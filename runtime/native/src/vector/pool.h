// Threads and memory as kernels see them; both are given from outside the files that are compiled several times.
#pragma once

#include <cstddef>

namespace edgeopt {

// Runs tasks, on one thread or many.
struct Pool {
  void* self;
  void (*run)(void* self, std::size_t tasks, void (*task)(void* context, std::size_t index), void* context);
};

// Memory aligned to 64 bytes; null where there is none left.
void* allocate(std::size_t bytes);
void release(void* memory);

}  // namespace edgeopt
