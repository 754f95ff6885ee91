// Compares abi.h with the official header; part of the build where -DONNXRUNTIME_INCLUDE_DIR names its folder.
#include <onnxruntime_c_api.h>

#include "abi.h"

namespace ours = edgeopt::abi;

#define EDGEOPT_COMPARE(NAME, PLACE, RESULT, PARAMETERS) \
    static_assert(offsetof(OrtApi, NAME) == (PLACE) * sizeof(void*), "OrtApi::" #NAME " is elsewhere");
EDGEOPT_ORT_SLOTS(EDGEOPT_COMPARE)
#undef EDGEOPT_COMPARE

#define EDGEOPT_COMPARE(NAME) \
    static_assert(offsetof(OrtCustomOp, NAME) == offsetof(ours::CustomOp, NAME), "OrtCustomOp::" #NAME " is elsewhere");
EDGEOPT_COMPARE(version)
EDGEOPT_COMPARE(CreateKernel)
EDGEOPT_COMPARE(GetName)
EDGEOPT_COMPARE(GetExecutionProviderType)
EDGEOPT_COMPARE(GetInputType)
EDGEOPT_COMPARE(GetInputTypeCount)
EDGEOPT_COMPARE(GetOutputType)
EDGEOPT_COMPARE(GetOutputTypeCount)
EDGEOPT_COMPARE(KernelCompute)
EDGEOPT_COMPARE(KernelDestroy)
EDGEOPT_COMPARE(GetInputCharacteristic)
EDGEOPT_COMPARE(GetOutputCharacteristic)
EDGEOPT_COMPARE(GetInputMemoryType)
EDGEOPT_COMPARE(GetVariadicInputMinArity)
EDGEOPT_COMPARE(GetVariadicInputHomogeneity)
EDGEOPT_COMPARE(GetVariadicOutputMinArity)
EDGEOPT_COMPARE(GetVariadicOutputHomogeneity)
EDGEOPT_COMPARE(CreateKernelV2)
EDGEOPT_COMPARE(KernelComputeV2)
EDGEOPT_COMPARE(InferOutputShapeFn)
EDGEOPT_COMPARE(GetStartVersion)
EDGEOPT_COMPARE(GetEndVersion)
#undef EDGEOPT_COMPARE

static_assert(int(ours::ElementType::kFloat) == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
static_assert(int(ours::ElementType::kUint8) == ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8);
static_assert(int(ours::ElementType::kInt64) == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64);
static_assert(int(ours::ElementType::kBool) == ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL);
static_assert(int(ours::ElementType::kDouble) == ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE);
static_assert(int(ours::ElementType::kBfloat16) == ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16);
static_assert(int(ours::Arity::kVariadic) == INPUT_OUTPUT_VARIADIC);
static_assert(int(ours::ErrorCode::kInvalidArgument) == ORT_INVALID_ARGUMENT);
static_assert(int(ours::ErrorCode::kNotImplemented) == ORT_NOT_IMPLEMENTED);
