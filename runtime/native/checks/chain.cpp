// Runs under AddressSanitizer and UndefinedBehaviorSanitizer (`make test`): every instruction in every form against
// arithmetic written here, and programs that were damaged at random. Memory is exactly as large as a program says, so
// that a step beyond it is seen.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>

#include "../src/kernels/chain/machine.h"

using namespace edgeopt::chain;

namespace {

using Words = std::vector<std::int64_t>;

int failures = 0;

void expect(bool holds, const char* what, std::int64_t detail) {
    if (holds) return;
    std::fprintf(stderr, "failed: %s (%lld)\n", what, static_cast<long long>(detail));
    ++failures;
}

float reference(Code code, float x, float y, float z) {
    switch (code) {
        case Code::kCopy: return x;
        case Code::kAdd: return x + y;
        case Code::kSub: return x - y;
        case Code::kMul: return x * y;
        case Code::kDiv: return x / y;
        case Code::kMax: return std::isnan(x) || std::isnan(y) ? NAN : std::fmax(x, y);
        case Code::kMin: return std::isnan(x) || std::isnan(y) ? NAN : std::fmin(x, y);
        case Code::kPow: return std::pow(x, y);
        case Code::kNeg: return -x;
        case Code::kAbs: return std::fabs(x);
        case Code::kSqrt: return std::sqrt(x);
        case Code::kReciprocal: return 1.0F / x;
        case Code::kExp: return std::exp(x);
        case Code::kLog: return std::log(x);
        case Code::kSign: return std::isnan(x) ? x : (x == 0.0F ? 0.0F : std::copysign(1.0F, x));
        case Code::kTanh: return std::tanh(x);
        case Code::kSigmoid: return 1.0F / (1.0F + std::exp(-x));
        case Code::kFloor: return std::floor(x);
        case Code::kCeil: return std::ceil(x);
        case Code::kRound: return std::nearbyint(x);
        case Code::kNot: return static_cast<float>(x == 0.0F);
        case Code::kAnd: return static_cast<float>(x != 0.0F && y != 0.0F);
        case Code::kOr: return static_cast<float>(x != 0.0F || y != 0.0F);
        case Code::kEqual: return static_cast<float>(x == y);
        case Code::kLess: return static_cast<float>(x < y);
        case Code::kLessOrEqual: return static_cast<float>(x <= y);
        case Code::kGreater: return static_cast<float>(x > y);
        case Code::kGreaterOrEqual: return static_cast<float>(x >= y);
        case Code::kIsNaN: return static_cast<float>(std::isnan(x));
        case Code::kIsInf: return static_cast<float>(std::isinf(x));
        case Code::kWhere: return x != 0.0F ? y : z;
        default: std::abort();
    }
}

bool same(float a, float b) { return (std::isnan(a) && std::isnan(b)) || a == b; }

// Numbers of all kinds.
float any_number(std::mt19937& random) {
    static const float special[] = {0.0F, -0.0F, 1.0F, -1.0F, 1e38F, -1e38F, 1e-40F, -1e-45F, 0.5F, 2.5F,
                                    std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                                    std::numeric_limits<float>::quiet_NaN()};
    const auto drawn = random() % 40;
    return drawn < 13 ? special[drawn] : std::normal_distribution<float>(0.0F, 3.0F)(random);
}

struct Memory {
    std::vector<std::unique_ptr<float[]>> blocks;
    Tensors tensors;
};

// Vectors of exactly the sizes of the program, from malloc, whose ends a sanitizer watches.
Memory memory_of(const Program& program, std::mt19937& random) {
    Memory memory;
    for (const std::int64_t size : program.inputs) {
        const auto count = static_cast<std::size_t>(size < 0 ? 1 : size);
        memory.blocks.emplace_back(new float[count]);
        for (std::size_t i = 0; i < count; ++i) memory.blocks.back()[i] = any_number(random);
        memory.tensors.inputs.push_back(memory.blocks.back().get());
        memory.tensors.numbers.push_back(count > 0 ? memory.blocks.back()[0] : 0.0F);
    }
    for (const Output& output : program.outputs) {
        memory.blocks.emplace_back(new float[static_cast<std::size_t>(output.size)]);
        memory.tensors.outputs.push_back(memory.blocks.back().get());
    }
    return memory;
}

void run(const Machine& machine, const Memory& memory) {
    const std::size_t width = machine.program().outputs.size();
    std::vector<double> reduced(machine.tasks() * width + 1);
    for (std::size_t task = 0; task < machine.tasks(); ++task) {
        machine.run(task, memory.tensors, reduced.data() + task * width);
    }
    machine.reduce(reduced, memory.tensors);
}

// One instruction on vectors of `size` elements; bit i of `form` makes operand i a number.
void one_instruction(Code code, int form, std::int64_t size, std::mt19937& random) {
    const int count = operands_of(code);
    Words words = {kVersion, count};
    Words loads;
    std::vector<std::int64_t> operands;
    for (int i = 0; i < count; ++i) {
        const bool number = ((form >> i) & 1) != 0;
        words.push_back(number ? -1 : size);
        operands.push_back(number ? 4 * i + 2 : 4 * static_cast<std::int64_t>(loads.size() / 2) + 1);
        if (!number) loads.insert(loads.end(), {i, 0});
    }
    words.insert(words.end(), {1, 1, size, 1, static_cast<std::int64_t>(loads.size() / 2), 1, 0, 1,
                               static_cast<std::int64_t>(code), count});
    words.insert(words.end(), operands.begin(), operands.end());
    words.insert(words.end(), {0, 1, size});
    words.insert(words.end(), loads.begin(), loads.end());
    words.insert(words.end(), {0, 0});
    const Machine machine(read_program(words, {}, static_cast<std::size_t>(count), 1));
    const Memory memory = memory_of(machine.program(), random);
    run(machine, memory);
    for (std::int64_t i = 0; i < size; ++i) {
        float x[3] = {0.0F, 0.0F, 0.0F};
        for (int k = 0; k < count; ++k) x[k] = memory.tensors.inputs[static_cast<std::size_t>(k)][(form >> k) & 1 ? 0 : i];
        expect(same(memory.tensors.outputs[0][i], reference(code, x[0], x[1], x[2])), "an instruction",
               static_cast<std::int64_t>(code));
    }
}

// AdamW on a vector in two pieces and one of `size` elements: combined instructions, several outputs, a reduction.
Words adamw(std::int64_t size) {
    const std::int64_t n = size, k = 3;
    return {kVersion, 15, -1, -1, -1, -1, -1, -1, -1, n, n, n, n, k + 1, k + 1, k, 1, 7, 1, n, 1, n, 1, n, 1, k + 1, 1, k + 1,
            1, k + 1, -1, 4, 0, 1,
            4, 3, 1, 13, 4, 2, 1, 1, 4, 2, 2, 0, 4, 2, 6, 5, 2, 2, 8, 4, 11, 1, 12, 2, 2, 16, 10, 4, 2, 14, 1, 4, 2, 18, 9,
            2, 2, 28, 24, 4, 2, 22, 32, 5, 2, 36, 20, 4, 2, 26, 13, 3, 2, 44, 40,
            12, 32, 48, 48, 6,
            3, n, 7, 0, 8, 0, 9, 0, 10, 0, 1, 0, 0, 0, 2, 0,
            k, 13, 0, 11, 0, 12, 0, 13, 0, 4, 0, 3, 0, 5, 0,
            1, 14, 0, 11, k, 12, k, 14, 0, 4, k, 3, k, 5, k};
}

void damaged_programs(int rounds, std::mt19937& random) {
    int accepted = 0;
    for (int round = 0; round < rounds; ++round) {
        Words words = adamw(static_cast<std::int64_t>(random() % 700));
        const auto damages = random() % 4;
        for (unsigned i = 0; i < damages; ++i) {
            std::int64_t& word = words[random() % words.size()];
            switch (random() % 6) {
                case 0: word += 1; break;
                case 1: word -= 1; break;
                case 2: word = static_cast<std::int64_t>(random() % 64); break;
                case 3: word = -word; break;
                case 4: word = std::numeric_limits<std::int64_t>::max() >> (random() % 60); break;
                default: word = std::numeric_limits<std::int64_t>::min() >> (random() % 60);
            }
        }
        if (random() % 8 == 0) words.resize(random() % (words.size() + 1));
        try {
            const Machine machine(read_program(words, {0.5F, 2.0F}, 15, 7));
            std::int64_t elements = 0;
            for (const std::int64_t input : machine.program().inputs) elements += std::max<std::int64_t>(input, 0);
            for (const Output& output : machine.program().outputs) elements += output.size;
            if (elements > (1 << 20)) continue;  // a graph that has such tensors may have them
            const Memory memory = memory_of(machine.program(), random);
            run(machine, memory);
            ++accepted;
        } catch (const ProgramError&) {
        }
    }
    std::printf("%d damaged programs, of which %d still said something\n", rounds, accepted);
    expect(accepted > rounds / 10 && accepted < rounds, "some are accepted and some not", accepted);
}

}  // namespace

int main(int count, char** arguments) {
    std::mt19937 random(17);
    for (int code = 1; code < static_cast<int>(Code::kEnd); ++code) {
        for (int form = 0; form < (1 << operands_of(static_cast<Code>(code))) - 1; ++form) {
            for (const std::int64_t size : {1, 2, 15, 64, 257, 1500}) {
                one_instruction(static_cast<Code>(code), form, size, random);
            }
        }
    }
    damaged_programs(count > 1 ? std::atoi(arguments[1]) : 20000, random);
    std::printf("%s, %d failures\n", loops().name, failures);
    return failures == 0 ? 0 : 1;
}
