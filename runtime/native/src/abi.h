// What this library uses of ONNX Runtime's C interface, declared here because no package ships the headers.
//
// Upstream only ever appends to `OrtApi` and `OrtCustomOp`, so that a slot keeps its place in all later releases. Build
// with -DONNXRUNTIME_INCLUDE_DIR=<folder of onnxruntime_c_api.h> to compare every place below with the official header.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(_WIN32)
#define EDGEOPT_CALL __stdcall
#define EDGEOPT_EXPORT extern "C" __declspec(dllexport)
#else
#define EDGEOPT_CALL
#define EDGEOPT_EXPORT extern "C" __attribute__((visibility("default")))
#endif

namespace edgeopt::abi {

// The version of the interface that ONNX Runtime 1.17 brought: the first with shape inference and ParallelFor.
inline constexpr std::uint32_t kApiVersion = 17;

// Objects of ONNX Runtime, seen through pointers only. `Api` is a table of pointers to functions.
struct Api;
struct Status;
struct SessionOptions;
struct CustomOpDomain;
struct KernelInfo;
struct KernelContext;
struct ShapeInferContext;
struct CustomOp;
struct Value;
struct TensorInfo;

struct ApiBase {
    const Api*(EDGEOPT_CALL* get_api)(std::uint32_t version);
    const char*(EDGEOPT_CALL* get_version_string)();
};

enum class ErrorCode : int { kFail = 1, kInvalidArgument = 2, kNotImplemented = 9 };

enum class ElementType : int {
    kUndefined = 0,
    kFloat = 1,
    kUint8 = 2,
    kInt8 = 3,
    kUint16 = 4,
    kInt32 = 6,
    kInt64 = 7,
    kBool = 9,
    kFloat16 = 10,
    kDouble = 11,
    kBfloat16 = 16,
};

enum class Arity : int { kRequired = 0, kOptional = 1, kVariadic = 2 };

// name, place in OrtApi, parameters. All but those that release something return a Status*, null where all went well.
#define EDGEOPT_ORT_SLOTS(X)                                                                                            \
    X(CreateStatus, 0, Status*, (ErrorCode, const char* message))                                                       \
    X(CreateCustomOpDomain, 26, Status*, (const char* domain, CustomOpDomain** out))                                    \
    X(CustomOpDomain_Add, 27, Status*, (CustomOpDomain*, const CustomOp*))                                       \
    X(AddCustomOpDomain, 28, Status*, (SessionOptions*, CustomOpDomain*))                                               \
    X(GetTensorMutableData, 51, Status*, (Value*, void** out))                                                          \
    X(CreateTensorTypeAndShapeInfo, 57, Status*, (TensorInfo * *out))                                                   \
    X(SetTensorElementType, 58, Status*, (TensorInfo*, ElementType))                                                    \
    X(SetDimensions, 59, Status*, (TensorInfo*, const std::int64_t* lengths, std::size_t rank))                         \
    X(GetTensorElementType, 60, Status*, (const TensorInfo*, ElementType* out))                                         \
    X(GetDimensionsCount, 61, Status*, (const TensorInfo*, std::size_t* out))                                           \
    X(GetDimensions, 62, Status*, (const TensorInfo*, std::int64_t* out, std::size_t rank))                             \
    X(GetTensorTypeAndShape, 65, Status*, (const Value*, TensorInfo** out))                                             \
    X(KernelInfoGetAttribute_float, 85, Status*, (const KernelInfo*, const char* name, float* out))                     \
    X(KernelInfoGetAttribute_int64, 86, Status*, (const KernelInfo*, const char* name, std::int64_t* out))              \
    X(KernelInfoGetAttribute_string, 87, Status*, (const KernelInfo*, const char* name, char* out, std::size_t* size))  \
    X(KernelContext_GetInputCount, 88, Status*, (const KernelContext*, std::size_t* out))                               \
    X(KernelContext_GetOutputCount, 89, Status*, (const KernelContext*, std::size_t* out))                              \
    X(KernelContext_GetInput, 90, Status*, (const KernelContext*, std::size_t index, const Value** out))                \
    X(KernelContext_GetOutput, 91, Status*,                                                                             \
      (KernelContext*, std::size_t index, const std::int64_t* lengths, std::size_t rank, Value** out))                  \
    X(ReleaseStatus, 93, void, (Status*))                                                                               \
    X(ReleaseTensorTypeAndShapeInfo, 99, void, (TensorInfo*))                                                           \
    X(KernelInfoGetAttributeArray_float, 162, Status*,                                                                  \
      (const KernelInfo*, const char* name, float* out, std::size_t* count))                                            \
    X(KernelInfoGetAttributeArray_int64, 163, Status*,                                                                  \
      (const KernelInfo*, const char* name, std::int64_t* out, std::size_t* count))                                     \
    X(KernelInfo_GetInputCount, 230, Status*, (const KernelInfo*, std::size_t* out))                                    \
    X(KernelInfo_GetOutputCount, 231, Status*, (const KernelInfo*, std::size_t* out))                                   \
    X(ShapeInferContext_GetInputCount, 267, Status*, (const ShapeInferContext*, std::size_t* out))                      \
    X(ShapeInferContext_GetInputTypeShape, 268, Status*,                                                                \
      (const ShapeInferContext*, std::size_t index, TensorInfo** out))                                                  \
    X(ShapeInferContext_SetOutputTypeShape, 270, Status*,                                                               \
      (const ShapeInferContext*, std::size_t index, const TensorInfo*))                                                 \
    X(KernelContext_ParallelFor, 274, Status*,                                                                          \
      (const KernelContext*, void (*body)(void* data, std::size_t index), std::size_t total, std::size_t batches,       \
       void* data))

// `slot::NAME(api)` is the function of that name, typed.
namespace slot {
#define EDGEOPT_ACCESSOR(NAME, PLACE, RESULT, PARAMETERS)                       \
    inline constexpr std::size_t k##NAME = PLACE;                               \
    inline auto NAME(const Api* api) {                                          \
        using Function = RESULT(EDGEOPT_CALL*) PARAMETERS;                      \
        return reinterpret_cast<const Function*>(api)[PLACE];                   \
    }
EDGEOPT_ORT_SLOTS(EDGEOPT_ACCESSOR)
#undef EDGEOPT_ACCESSOR
}  // namespace slot

// The layout of OrtCustomOp.
struct CustomOp {
    std::uint32_t version;
    void*(EDGEOPT_CALL* CreateKernel)(const CustomOp*, const Api*, const KernelInfo*);
    const char*(EDGEOPT_CALL* GetName)(const CustomOp*);
    const char*(EDGEOPT_CALL* GetExecutionProviderType)(const CustomOp*);
    ElementType(EDGEOPT_CALL* GetInputType)(const CustomOp*, std::size_t);
    std::size_t(EDGEOPT_CALL* GetInputTypeCount)(const CustomOp*);
    ElementType(EDGEOPT_CALL* GetOutputType)(const CustomOp*, std::size_t);
    std::size_t(EDGEOPT_CALL* GetOutputTypeCount)(const CustomOp*);
    void(EDGEOPT_CALL* KernelCompute)(void* kernel, KernelContext*);
    void(EDGEOPT_CALL* KernelDestroy)(void* kernel);
    Arity(EDGEOPT_CALL* GetInputCharacteristic)(const CustomOp*, std::size_t);
    Arity(EDGEOPT_CALL* GetOutputCharacteristic)(const CustomOp*, std::size_t);
    int(EDGEOPT_CALL* GetInputMemoryType)(const CustomOp*, std::size_t);
    int(EDGEOPT_CALL* GetVariadicInputMinArity)(const CustomOp*);
    int(EDGEOPT_CALL* GetVariadicInputHomogeneity)(const CustomOp*);
    int(EDGEOPT_CALL* GetVariadicOutputMinArity)(const CustomOp*);
    int(EDGEOPT_CALL* GetVariadicOutputHomogeneity)(const CustomOp*);
    Status*(EDGEOPT_CALL* CreateKernelV2)(const CustomOp*, const Api*, const KernelInfo*, void** kernel);
    Status*(EDGEOPT_CALL* KernelComputeV2)(void* kernel, KernelContext*);
    Status*(EDGEOPT_CALL* InferOutputShapeFn)(const CustomOp*, ShapeInferContext*);
    int(EDGEOPT_CALL* GetStartVersion)(const CustomOp*);
    int(EDGEOPT_CALL* GetEndVersion)(const CustomOp*);
    std::size_t(EDGEOPT_CALL* GetMayInplace)(int** inputs, int** outputs);
    void(EDGEOPT_CALL* ReleaseMayInplace)(int* inputs, int* outputs);
    std::size_t(EDGEOPT_CALL* GetAliasMap)(int** inputs, int** outputs);
    void(EDGEOPT_CALL* ReleaseAliasMap)(int* inputs, int* outputs);
};

}  // namespace edgeopt::abi
