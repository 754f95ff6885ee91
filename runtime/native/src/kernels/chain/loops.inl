// Included by one source file for each instruction set, which names the function that returns its table. Everything here
// has internal linkage, and nothing comes from a header with inline functions: the linker must never choose code of one
// instruction set for another.
#include <math.h>

#include "loops.h"

#if defined(__clang__)
#define EDGEOPT_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define EDGEOPT_INDEPENDENT _Pragma("GCC ivdep")
#else
#define EDGEOPT_INDEPENDENT __pragma(loop(ivdep))
#endif

namespace edgeopt::chain {

namespace {

template <typename F, bool A>
void unary(float* to, const float* const* from, std::size_t count) {
    const float* const a = from[0];
    const float x = *a;
    EDGEOPT_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) to[i] = F::of(A ? x : a[i]);
}

template <typename F, bool A, bool B>
void binary(float* to, const float* const* from, std::size_t count) {
    const float *const a = from[0], *const b = from[1];
    const float x = *a, y = *b;
    EDGEOPT_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) to[i] = F::of(A ? x : a[i], B ? y : b[i]);
}

template <typename F, bool A, bool B, bool C>
void ternary(float* to, const float* const* from, std::size_t count) {
    const float *const a = from[0], *const b = from[1], *const c = from[2];
    const float x = *a, y = *b, z = *c;
    EDGEOPT_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) to[i] = F::of(A ? x : a[i], B ? y : b[i], C ? z : c[i]);
}

template <typename F, bool A, bool B, bool C, bool D>
void quaternary(float* to, const float* const* from, std::size_t count) {
    const float *const a = from[0], *const b = from[1], *const c = from[2], *const d = from[3];
    const float x = *a, y = *b, z = *c, w = *d;
    EDGEOPT_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) {
        to[i] = F::of(A ? x : a[i], B ? y : b[i], C ? z : c[i], D ? w : d[i]);
    }
}

#define EDGEOPT_UNARY(NAME, EXPRESSION)                      \
    struct NAME {                                            \
        static float of(float x) { return EXPRESSION; }      \
    };
#define EDGEOPT_BINARY(NAME, EXPRESSION)                     \
    struct NAME {                                            \
        static float of(float x, float y) { return EXPRESSION; } \
    };

EDGEOPT_UNARY(Copy, x)
EDGEOPT_UNARY(Neg, -x)
EDGEOPT_UNARY(Abs, fabsf(x))
EDGEOPT_UNARY(Sqrt, sqrtf(x))
EDGEOPT_UNARY(Reciprocal, 1.0F / x)
EDGEOPT_UNARY(Exp, expf(x))
EDGEOPT_UNARY(Log, logf(x))
EDGEOPT_UNARY(Sign, x > 0.0F ? 1.0F : (x < 0.0F ? -1.0F : x * 0.0F))
EDGEOPT_UNARY(Tanh, tanhf(x))
EDGEOPT_UNARY(Sigmoid, 1.0F / (1.0F + expf(-x)))
EDGEOPT_UNARY(Floor, floorf(x))
EDGEOPT_UNARY(Ceil, ceilf(x))
EDGEOPT_UNARY(Round, rintf(x))
EDGEOPT_UNARY(Not, x == 0.0F ? 1.0F : 0.0F)
EDGEOPT_UNARY(IsNaN, x != x ? 1.0F : 0.0F)
EDGEOPT_UNARY(IsInf, fabsf(x) > 3.402823466e38F ? 1.0F : 0.0F)
EDGEOPT_BINARY(Add, x + y)
EDGEOPT_BINARY(Sub, x - y)
EDGEOPT_BINARY(Mul, x* y)
EDGEOPT_BINARY(Div, x / y)
// NaN wins, as in ONNX Runtime.
EDGEOPT_BINARY(Max, x > y || x != x ? x : y)
EDGEOPT_BINARY(Min, x < y || x != x ? x : y)
EDGEOPT_BINARY(Pow, powf(x, y))
EDGEOPT_BINARY(And, (x != 0.0F) & (y != 0.0F) ? 1.0F : 0.0F)
EDGEOPT_BINARY(Or, (x != 0.0F) | (y != 0.0F) ? 1.0F : 0.0F)
EDGEOPT_BINARY(Equal, x == y ? 1.0F : 0.0F)
EDGEOPT_BINARY(Less, x < y ? 1.0F : 0.0F)
EDGEOPT_BINARY(LessOrEqual, x <= y ? 1.0F : 0.0F)
EDGEOPT_BINARY(Greater, x > y ? 1.0F : 0.0F)
EDGEOPT_BINARY(GreaterOrEqual, x >= y ? 1.0F : 0.0F)

#define EDGEOPT_TERNARY(NAME, EXPRESSION)                             \
    struct NAME {                                                     \
        static float of(float x, float y, float z) { return EXPRESSION; } \
    };
EDGEOPT_TERNARY(Where, x != 0.0F ? y : z)
EDGEOPT_TERNARY(MulAdd, x* y + z)
EDGEOPT_TERNARY(MulSub, x* y - z)
EDGEOPT_TERNARY(SubMul, x - y * z)
EDGEOPT_TERNARY(MulDiv, x* y / z)
EDGEOPT_BINARY(SqrtAdd, sqrtf(x) + y)

struct MulMulAdd {
    static float of(float x, float y, float z, float w) { return x * y + z * w; }
};

// Sums in several lanes, so that they run side by side; the order is always the same.
constexpr std::size_t kLanes = 32;

double sum(const float* values, std::size_t count) {
    double lanes[kLanes] = {};
    std::size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += static_cast<double>(values[i + lane]);
    }
    double total = 0.0;
    for (; i < count; ++i) total += static_cast<double>(values[i]);
    for (const double lane : lanes) total += lane;
    return total;
}

float finite(const float* values, std::size_t count) {
    float lanes[kLanes] = {};
    std::size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += values[i + lane] * 0.0F;
    }
    float total = 0.0F;
    for (; i < count; ++i) total += values[i] * 0.0F;
    for (const float lane : lanes) total += lane;
    return total;
}

float largest(const float* values, std::size_t count) {
    float found = values[0];
    for (std::size_t i = 1; i < count; ++i) found = Max::of(found, values[i]);
    return found;
}

float smallest(const float* values, std::size_t count) {
    float found = values[0];
    for (std::size_t i = 1; i < count; ++i) found = Min::of(found, values[i]);
    return found;
}

template <typename F>
void set_unary(Loops& loops, Code code) {
    Loop* forms = loops.of[static_cast<std::size_t>(code)];
    for (std::size_t form = 0; form < kForms; ++form) forms[form] = form & 1 ? unary<F, true> : unary<F, false>;
}

template <typename F>
void set_binary(Loops& loops, Code code) {
    Loop* forms = loops.of[static_cast<std::size_t>(code)];
    for (std::size_t form = 0; form < kForms; form += 4) {
        forms[form] = binary<F, false, false>;
        forms[form + 1] = binary<F, true, false>;
        forms[form + 2] = binary<F, false, true>;
        forms[form + 3] = binary<F, true, true>;
    }
}

template <typename F>
void set_ternary(Loops& loops, Code code) {
    Loop* forms = loops.of[static_cast<std::size_t>(code)];
    for (std::size_t form = 0; form < kForms; form += 8) {
        forms[form] = ternary<F, false, false, false>;
        forms[form + 1] = ternary<F, true, false, false>;
        forms[form + 2] = ternary<F, false, true, false>;
        forms[form + 3] = ternary<F, true, true, false>;
        forms[form + 4] = ternary<F, false, false, true>;
        forms[form + 5] = ternary<F, true, false, true>;
        forms[form + 6] = ternary<F, false, true, true>;
        forms[form + 7] = ternary<F, true, true, true>;
    }
}

template <typename F, bool C, bool D>
void set_half(Loop* forms) {
    forms[0] = quaternary<F, false, false, C, D>;
    forms[1] = quaternary<F, true, false, C, D>;
    forms[2] = quaternary<F, false, true, C, D>;
    forms[3] = quaternary<F, true, true, C, D>;
}

template <typename F>
void set_quaternary(Loops& loops, Code code) {
    Loop* forms = loops.of[static_cast<std::size_t>(code)];
    set_half<F, false, false>(forms);
    set_half<F, true, false>(forms + 4);
    set_half<F, false, true>(forms + 8);
    set_half<F, true, true>(forms + 12);
}

Loops make_loops(const char* name) {
    Loops loops{};
    loops.name = name;
    loops.sum = sum;
    loops.largest = largest;
    loops.smallest = smallest;
    loops.finite = finite;
    set_unary<Copy>(loops, Code::kCopy);
    set_binary<Add>(loops, Code::kAdd);
    set_binary<Sub>(loops, Code::kSub);
    set_binary<Mul>(loops, Code::kMul);
    set_binary<Div>(loops, Code::kDiv);
    set_binary<Max>(loops, Code::kMax);
    set_binary<Min>(loops, Code::kMin);
    set_binary<Pow>(loops, Code::kPow);
    set_unary<Neg>(loops, Code::kNeg);
    set_unary<Abs>(loops, Code::kAbs);
    set_unary<Sqrt>(loops, Code::kSqrt);
    set_unary<Reciprocal>(loops, Code::kReciprocal);
    set_unary<Exp>(loops, Code::kExp);
    set_unary<Log>(loops, Code::kLog);
    set_unary<Sign>(loops, Code::kSign);
    set_unary<Tanh>(loops, Code::kTanh);
    set_unary<Sigmoid>(loops, Code::kSigmoid);
    set_unary<Floor>(loops, Code::kFloor);
    set_unary<Ceil>(loops, Code::kCeil);
    set_unary<Round>(loops, Code::kRound);
    set_unary<Not>(loops, Code::kNot);
    set_binary<And>(loops, Code::kAnd);
    set_binary<Or>(loops, Code::kOr);
    set_binary<Equal>(loops, Code::kEqual);
    set_binary<Less>(loops, Code::kLess);
    set_binary<LessOrEqual>(loops, Code::kLessOrEqual);
    set_binary<Greater>(loops, Code::kGreater);
    set_binary<GreaterOrEqual>(loops, Code::kGreaterOrEqual);
    set_unary<IsNaN>(loops, Code::kIsNaN);
    set_unary<IsInf>(loops, Code::kIsInf);
    set_ternary<Where>(loops, Code::kWhere);
    set_ternary<MulAdd>(loops, Code::kMulAdd);
    set_ternary<MulSub>(loops, Code::kMulSub);
    set_ternary<SubMul>(loops, Code::kSubMul);
    set_quaternary<MulMulAdd>(loops, Code::kMulMulAdd);
    set_ternary<MulDiv>(loops, Code::kMulDiv);
    set_binary<SqrtAdd>(loops, Code::kSqrtAdd);
    return loops;
}

}  // namespace

}  // namespace edgeopt::chain
