// Work shared among the threads of ONNX Runtime's own pool.
#pragma once

#include <algorithm>
#include <exception>
#include <mutex>

#include "op.h"

namespace edgeopt {

// Calls `body(index)` for each index below `total`, on several threads where the session has them. The calls may come in
// any order; `body` must write nothing that another call touches. What a call throws is thrown here, after all ended.
template <typename Body>
void parallel_for(const Context& context, std::size_t total, const Body& body) {
    if (total < 2) {
        if (total == 1) body(std::size_t{0});
        return;
    }
    struct Shared {
        const Body& body;
        std::mutex mutex;
        std::exception_ptr failure;
    } shared{body, {}, nullptr};
    const auto call = [](void* data, std::size_t index) {
        auto& shared = *static_cast<Shared*>(data);
        try {
            shared.body(index);
        } catch (...) {
            // Nothing may be thrown through the frames of the pool.
            const std::lock_guard<std::mutex> lock(shared.mutex);
            shared.failure = std::current_exception();
        }
    };
    check(context.api(), abi::slot::KernelContext_ParallelFor(context.api())(context.raw(), call, total, 0, &shared));
    if (shared.failure) std::rethrow_exception(shared.failure);
}

// Calls `body(begin, end)` for ranges that together are 0 to `size`, each of at least `grain` but the last.
template <typename Body>
void parallel_ranges(const Context& context, std::int64_t size, std::int64_t grain, const Body& body) {
    const std::int64_t step = std::max<std::int64_t>(grain, 1);
    const std::int64_t count = (size + step - 1) / step;
    parallel_for(context, static_cast<std::size_t>(count), [&](std::size_t index) {
        const std::int64_t begin = static_cast<std::int64_t>(index) * step;
        body(begin, std::min(begin + step, size));
    });
}

}  // namespace edgeopt
