// What an operator is to this library, and what its kernel sees of ONNX Runtime.
//
// A kernel reports what is wrong by throwing `Error`; library.cpp turns it into a status, so that nothing is thrown
// across the C interface.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "abi.h"

namespace edgeopt {

struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Throws what a status says, if it says anything.
void check(const abi::Api* api, abi::Status* status);

using Shape = std::vector<std::int64_t>;

// The number of elements; throws if a length is negative or the product overflows.
std::int64_t size_of(const Shape& shape);

// A tensor of the run: the memory is ONNX Runtime's.
struct Tensor {
    abi::ElementType type = abi::ElementType::kUndefined;
    Shape shape;
    void* data = nullptr;
    std::int64_t size = 0;

    // The elements; throws if they are of another type.
    const float* floats(const char* what) const;
    const std::int64_t* ints(const char* what) const;
};

// The node's attributes, when a kernel is made.
class Info {
public:
    Info(const abi::Api* api, const abi::KernelInfo* info) : api_(api), info_(info) {}

    std::size_t inputs() const;
    std::size_t outputs() const;
    // An attribute, or the default where the node has none of that name and type.
    std::int64_t integer(const char* name, std::int64_t otherwise) const;
    float number(const char* name, float otherwise) const;
    std::string text(const char* name, const std::string& otherwise) const;
    std::vector<std::int64_t> integers(const char* name) const;
    std::vector<float> numbers(const char* name) const;

private:
    bool found(abi::Status* status) const;

    const abi::Api* api_;
    const abi::KernelInfo* info_;
};

// Inputs and outputs of one run.
class Context {
public:
    Context(const abi::Api* api, abi::KernelContext* context) : api_(api), context_(context) {}

    std::size_t inputs() const;
    std::size_t outputs() const;
    // Whether the optional input is there.
    bool has(std::size_t index) const;
    Tensor input(std::size_t index) const;
    // Makes the output, of the type that the operator declares.
    Tensor output(std::size_t index, const Shape& shape) const;

    const abi::Api* api() const { return api_; }
    abi::KernelContext* raw() const { return context_; }

private:
    const abi::Api* api_;
    abi::KernelContext* context_;
};

// One node, with what was read from its attributes. Several threads may run it at the same time.
class Kernel {
public:
    virtual ~Kernel() = default;
    virtual void run(const Context& context) const = 0;
};

// An input or output: its type, and whether it must be there. The last one may be variadic.
struct Port {
    abi::ElementType type = abi::ElementType::kFloat;
    abi::Arity arity = abi::Arity::kRequired;
};

// A row of the table in library.cpp.
struct Op {
    std::string name;
    std::vector<Port> inputs;
    std::vector<Port> outputs;
    std::unique_ptr<Kernel> (*make)(const Info& info);
};

}  // namespace edgeopt
