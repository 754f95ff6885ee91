// The library's one entry: adds every operator to the domain `edgeopt` of a session's options.
#include <deque>
#include <map>
#include <mutex>

#include "gradients/gradients.h"
#include "ops/ops.h"

namespace edgeopt {

namespace {

using namespace abi;

// The table of operators.
std::deque<Op> all_ops() {
    std::deque<Op> table = {
        ops::self_test(),
    };
    for (int number = 1; number <= ops::kChains; ++number) table.push_back(ops::chain_op(number));
#if defined(EDGEOPT_GRADIENTS)
    gradients::add_all(table);
#endif
    return table;
}

// An operator in the form that ONNX Runtime reads.
struct RegisteredOp : CustomOp {
    Op op;
};

// A node's kernel, with what it needs to talk to ONNX Runtime.
struct RunningKernel {
    const Api* api;
    std::string name;
    std::unique_ptr<Kernel> kernel;
};

const Op& op_of(const CustomOp* custom) { return static_cast<const RegisteredOp*>(custom)->op; }

// Calls the function, and makes a status of what it throws.
template <typename Function>
Status* guarded(const Api* api, const std::string& name, const Function& function) noexcept {
    try {
        function();
        return nullptr;
    } catch (const std::bad_alloc&) {
        return slot::CreateStatus(api)(ErrorCode::kFail, "edgeopt: not enough memory");
    } catch (const std::exception& error) {
        const std::string message = "edgeopt." + name + ": " + error.what();
        return slot::CreateStatus(api)(ErrorCode::kInvalidArgument, message.c_str());
    }
}

bool is_variadic(const std::vector<Port>& ports) { return !ports.empty() && ports.back().arity == Arity::kVariadic; }

RegisteredOp in_their_form(Op op) {
    RegisteredOp custom{};
    custom.op = std::move(op);
    custom.version = kApiVersion;
    custom.GetName = [](const CustomOp* self) { return op_of(self).name.c_str(); };
    custom.GetExecutionProviderType = [](const CustomOp*) -> const char* { return nullptr; };  // the CPU's
    custom.GetInputType = [](const CustomOp* self, std::size_t i) { return op_of(self).inputs[i].type; };
    custom.GetInputTypeCount = [](const CustomOp* self) { return op_of(self).inputs.size(); };
    custom.GetOutputType = [](const CustomOp* self, std::size_t i) { return op_of(self).outputs[i].type; };
    custom.GetOutputTypeCount = [](const CustomOp* self) { return op_of(self).outputs.size(); };
    custom.GetInputCharacteristic = [](const CustomOp* self, std::size_t i) { return op_of(self).inputs[i].arity; };
    custom.GetOutputCharacteristic = [](const CustomOp* self, std::size_t i) { return op_of(self).outputs[i].arity; };
    custom.GetInputMemoryType = [](const CustomOp*, std::size_t) { return 0; };
    custom.GetVariadicInputMinArity = [](const CustomOp* self) { return is_variadic(op_of(self).inputs) ? 1 : 0; };
    custom.GetVariadicInputHomogeneity = [](const CustomOp* self) {
        return is_variadic(op_of(self).inputs) && op_of(self).inputs.back().type == ElementType::kUndefined ? 0 : 1;
    };
    custom.GetVariadicOutputMinArity = [](const CustomOp* self) { return is_variadic(op_of(self).outputs) ? 1 : 0; };
    custom.GetVariadicOutputHomogeneity = [](const CustomOp* self) {
        return is_variadic(op_of(self).outputs) && op_of(self).outputs.back().type == ElementType::kUndefined ? 0 : 1;
    };
    custom.CreateKernelV2 = [](const CustomOp* self, const Api* api, const KernelInfo* info, void** kernel) {
        return guarded(api, op_of(self).name, [&] {
            auto made = op_of(self).make(Info(api, info));
            *kernel = new RunningKernel{api, op_of(self).name, std::move(made)};
        });
    };
    custom.KernelComputeV2 = [](void* kernel, KernelContext* context) {
        const auto& running = *static_cast<const RunningKernel*>(kernel);
        return guarded(running.api, running.name, [&] { running.kernel->run(Context(running.api, context)); });
    };
    custom.KernelDestroy = [](void* kernel) { delete static_cast<RunningKernel*>(kernel); };
    custom.GetStartVersion = [](const CustomOp*) { return 1; };
    custom.GetEndVersion = [](const CustomOp*) { return 0x7fffffff; };
    return custom;
}

// The domain with all operators. Sessions refer to it as long as they live, so it is made once for each ONNX Runtime in
// the process, and never destroyed.
CustomOpDomain* domain_of(const Api* api) {
    static std::mutex mutex;
    static auto& operators = *new std::deque<RegisteredOp>;
    static auto& domains = *new std::map<const Api*, CustomOpDomain*>;
    const std::lock_guard<std::mutex> lock(mutex);
    if (operators.empty()) {
        for (Op& op : all_ops()) operators.push_back(in_their_form(std::move(op)));
    }
    CustomOpDomain*& domain = domains[api];
    if (domain == nullptr) {
        CustomOpDomain* made = nullptr;
        check(api, slot::CreateCustomOpDomain(api)("edgeopt", &made));
        for (const RegisteredOp& custom : operators) check(api, slot::CustomOpDomain_Add(api)(made, &custom));
        domain = made;
    }
    return domain;
}

}  // namespace

}  // namespace edgeopt

// What ONNX Runtime calls when the library is registered, in whatever language.
EDGEOPT_EXPORT edgeopt::abi::Status* EDGEOPT_CALL RegisterCustomOps(
    edgeopt::abi::SessionOptions* options, const edgeopt::abi::ApiBase* base) {
    using namespace edgeopt;
    const abi::Api* api = base->get_api(abi::kApiVersion);
    if (api == nullptr) {
        const std::string message = std::string("edgeopt's kernels need ONNX Runtime 1.17 or newer; this is ") +
                                    base->get_version_string();
        return abi::slot::CreateStatus(base->get_api(1))(abi::ErrorCode::kFail, message.c_str());
    }
    return guarded(api, "RegisterCustomOps", [&] {
        check(api, abi::slot::AddCustomOpDomain(api)(options, domain_of(api)));
    });
}

// The names of the operators, each with a line of its own.
EDGEOPT_EXPORT const char* edgeopt_native_operators() {
    static const std::string names = [] {
        std::string lines;
        for (const edgeopt::Op& op : edgeopt::all_ops()) lines += op.name + "\n";
        return lines;
    }();
    return names.c_str();
}
