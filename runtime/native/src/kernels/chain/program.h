// The program of a chain, checked: elementwise arithmetic on vectors, said as instructions. The format is described in
// edgeopt/fusion/programs.py. A program may come from anyone, so nothing in it is believed.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace edgeopt::chain {

inline constexpr std::int64_t kVersion = 1;

struct ProgramError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The numbers are those of edgeopt/fusion/instructions.py, and never change.
enum class Code : std::uint8_t {
    kCopy = 1,
    kAdd,
    kSub,
    kMul,
    kDiv,
    kMax,
    kMin,
    kPow,
    kNeg,
    kAbs,
    kSqrt,
    kReciprocal,
    kExp,
    kLog,
    kSign,
    kTanh,
    kSigmoid,
    kFloor,
    kCeil,
    kRound,
    kNot,
    kAnd,
    kOr,
    kEqual,
    kLess,
    kLessOrEqual,
    kGreater,
    kGreaterOrEqual,
    kIsNaN,
    kIsInf,
    kWhere,
    kEnd,
    // Several at once: no program holds them, `combined` makes them.
    kMulAdd = kEnd,  // a * b + c
    kMulSub,         // a * b - c
    kSubMul,         // a - b * c
    kMulMulAdd,      // a * b + c * d
    kMulDiv,         // a * b / c
    kSqrtAdd,        // sqrt(a) + b
    kAll,
};

enum class Reduction : std::uint8_t { kNone = 0, kSum, kMax, kMin, kFinite, kEnd };

enum class Source : std::uint8_t { kResult, kLoad, kNumber, kConstant };

struct Operand {
    Source source = Source::kResult;
    std::uint32_t place = 0;
};

struct Instruction {
    Code code = Code::kCopy;
    std::uint8_t count = 0;
    Operand operands[4];
};

struct Reduced {
    Operand operand;
    std::uint32_t output = 0;
};

// Elements of an input or output, from an offset on.
struct Place {
    std::int32_t tensor = 0;  // -1: nowhere
    std::int64_t offset = 0;
};

struct Unit {
    std::int64_t size = 0;
    std::vector<Place> loads;
    std::vector<Place> stores;
};

struct Section {
    std::uint32_t loads = 0;
    std::vector<Instruction> instructions;
    std::vector<Operand> stores;
    std::vector<Reduced> reductions;
    std::vector<Unit> units;
};

struct Output {
    Reduction reduction = Reduction::kNone;
    std::vector<std::int64_t> shape;
    std::int64_t size = 1;
};

struct Program {
    std::vector<std::int64_t> inputs;  // elements of each, or -1 for a number
    std::vector<Output> outputs;
    std::vector<float> constants;
    std::vector<Section> sections;
};

// Reads a program for a node with so many inputs and outputs. Afterwards every operand, input, output and range of
// elements in it exists, and each element of each output is written exactly once.
//
// Throws ProgramError: it is of another version, or says something that cannot be.
Program read_program(const std::vector<std::int64_t>& words, std::vector<float> constants, std::size_t inputs,
                     std::size_t outputs);

// How many operands an instruction takes.
int operands_of(Code code);

}  // namespace edgeopt::chain
