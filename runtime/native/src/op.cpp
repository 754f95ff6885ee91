#include "op.h"

#include <limits>

namespace edgeopt {

using namespace abi;

namespace {

// The message of a status lies in slot 2.
const char* message_of(const Api* api, const Status* status) {
    using GetErrorMessage = const char*(EDGEOPT_CALL*)(const Status*);
    return reinterpret_cast<const GetErrorMessage*>(api)[2](status);
}

Tensor described(const Api* api, const Value* value) {
    TensorInfo* info = nullptr;
    check(api, slot::GetTensorTypeAndShape(api)(value, &info));
    struct Release {
        const Api* api;
        void operator()(TensorInfo* info) const { slot::ReleaseTensorTypeAndShapeInfo(api)(info); }
    };
    const std::unique_ptr<TensorInfo, Release> owned(info, Release{api});
    Tensor tensor;
    check(api, slot::GetTensorElementType(api)(info, &tensor.type));
    std::size_t rank = 0;
    check(api, slot::GetDimensionsCount(api)(info, &rank));
    tensor.shape.resize(rank);
    check(api, slot::GetDimensions(api)(info, tensor.shape.data(), rank));
    tensor.size = size_of(tensor.shape);
    check(api, slot::GetTensorMutableData(api)(const_cast<Value*>(value), &tensor.data));
    return tensor;
}

}  // namespace

void check(const Api* api, Status* status) {
    if (status == nullptr) return;
    const std::string message = message_of(api, status);
    slot::ReleaseStatus(api)(status);
    throw Error(message);
}

std::int64_t size_of(const Shape& shape) {
    std::int64_t size = 1;
    for (const std::int64_t length : shape) {
        if (length < 0 || (length > 0 && size > std::numeric_limits<std::int64_t>::max() / length)) {
            throw Error("a shape that no tensor has");
        }
        size *= length;
    }
    return size;
}

const float* Tensor::floats(const char* what) const {
    if (type != ElementType::kFloat) throw Error(std::string(what) + " is not float32");
    return static_cast<const float*>(data);
}

const std::int64_t* Tensor::ints(const char* what) const {
    if (type != ElementType::kInt64) throw Error(std::string(what) + " is not int64");
    return static_cast<const std::int64_t*>(data);
}

bool Info::found(Status* status) const {
    if (status == nullptr) return true;
    slot::ReleaseStatus(api_)(status);
    return false;
}

std::size_t Info::inputs() const {
    std::size_t count = 0;
    check(api_, slot::KernelInfo_GetInputCount(api_)(info_, &count));
    return count;
}

std::size_t Info::outputs() const {
    std::size_t count = 0;
    check(api_, slot::KernelInfo_GetOutputCount(api_)(info_, &count));
    return count;
}

std::int64_t Info::integer(const char* name, std::int64_t otherwise) const {
    std::int64_t value = otherwise;
    return found(slot::KernelInfoGetAttribute_int64(api_)(info_, name, &value)) ? value : otherwise;
}

float Info::number(const char* name, float otherwise) const {
    float value = otherwise;
    return found(slot::KernelInfoGetAttribute_float(api_)(info_, name, &value)) ? value : otherwise;
}

std::string Info::text(const char* name, const std::string& otherwise) const {
    std::size_t size = 0;  // with the zero at the end
    if (!found(slot::KernelInfoGetAttribute_string(api_)(info_, name, nullptr, &size)) || size == 0) return otherwise;
    std::string value(size, '\0');
    if (!found(slot::KernelInfoGetAttribute_string(api_)(info_, name, value.data(), &size))) return otherwise;
    value.resize(size - 1);
    return value;
}

std::vector<std::int64_t> Info::integers(const char* name) const {
    std::size_t count = 0;
    if (!found(slot::KernelInfoGetAttributeArray_int64(api_)(info_, name, nullptr, &count))) return {};
    std::vector<std::int64_t> values(count);
    if (count > 0) check(api_, slot::KernelInfoGetAttributeArray_int64(api_)(info_, name, values.data(), &count));
    return values;
}

std::vector<float> Info::numbers(const char* name) const {
    std::size_t count = 0;
    if (!found(slot::KernelInfoGetAttributeArray_float(api_)(info_, name, nullptr, &count))) return {};
    std::vector<float> values(count);
    if (count > 0) check(api_, slot::KernelInfoGetAttributeArray_float(api_)(info_, name, values.data(), &count));
    return values;
}

std::size_t Context::inputs() const {
    std::size_t count = 0;
    check(api_, slot::KernelContext_GetInputCount(api_)(context_, &count));
    return count;
}

std::size_t Context::outputs() const {
    std::size_t count = 0;
    check(api_, slot::KernelContext_GetOutputCount(api_)(context_, &count));
    return count;
}

bool Context::has(std::size_t index) const {
    if (index >= inputs()) return false;
    const Value* value = nullptr;
    check(api_, slot::KernelContext_GetInput(api_)(context_, index, &value));
    return value != nullptr;
}

Tensor Context::input(std::size_t index) const {
    const Value* value = nullptr;
    check(api_, slot::KernelContext_GetInput(api_)(context_, index, &value));
    if (value == nullptr) throw Error("input " + std::to_string(index) + " is missing");
    return described(api_, value);
}

Tensor Context::output(std::size_t index, const Shape& shape) const {
    Value* value = nullptr;
    check(api_, slot::KernelContext_GetOutput(api_)(context_, index, shape.data(), shape.size(), &value));
    if (value == nullptr) throw Error("output " + std::to_string(index) + " is missing");
    return described(api_, value);
}

}  // namespace edgeopt
