#include "program.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace edgeopt::chain {

namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 40;
constexpr std::int64_t kMostInstructions = 4096;
constexpr std::int64_t kMostRank = 64;

[[noreturn]] void refuse(const std::string& what) { throw ProgramError("the program is damaged: " + what); }

class Reader {
public:
    explicit Reader(const std::vector<std::int64_t>& words) : words_(words) {}

    std::int64_t next(std::int64_t least, std::int64_t most, const char* what) {
        if (place_ >= words_.size()) refuse("it ends before " + std::string(what));
        const std::int64_t word = words_[place_++];
        if (word < least || word > most) refuse(std::string(what) + " is " + std::to_string(word));
        return word;
    }

    // A number of things of which each takes at least one word, so that a program cannot ask for more memory than it has
    // words.
    std::int64_t count(const char* what, std::int64_t words_of_each = 1) {
        const auto left = static_cast<std::int64_t>(words_.size() - place_);
        return next(0, left / std::max<std::int64_t>(words_of_each, 1), what);
    }

    bool done() const { return place_ == words_.size(); }

private:
    const std::vector<std::int64_t>& words_;
    std::size_t place_ = 0;
};

std::int64_t product(const std::vector<std::int64_t>& shape) {
    std::int64_t size = 1;
    for (const std::int64_t length : shape) {
        if (length > 0 && size > kMostElements / length) refuse("an output is too large");
        size *= length;
    }
    return size;
}

Output read_output(Reader& reader) {
    Output output;
    std::int64_t rank = reader.next(-1, kMostRank, "the rank of an output");
    if (rank < 0) {
        output.reduction = static_cast<Reduction>(
            reader.next(1, static_cast<std::int64_t>(Reduction::kEnd) - 1, "the kind of a reduction"));
        rank = reader.next(0, kMostRank, "the rank of an output");
    }
    for (std::int64_t axis = 0; axis < rank; ++axis) {
        output.shape.push_back(reader.next(0, kMostElements, "a length"));
    }
    output.size = product(output.shape);
    if (output.reduction != Reduction::kNone && output.size != 1) refuse("a reduction gives one number");
    return output;
}

class Checker {
public:
    Checker(Reader& reader, Program& program) : reader_(reader), program_(program) {}

    void section() {
        Section section;
        section.loads = static_cast<std::uint32_t>(reader_.next(0, 4096, "the number of loads"));
        const auto stores = reader_.count("the number of stores");
        const auto reductions = reader_.count("the number of reductions", 2);
        const auto instructions = reader_.next(0, kMostInstructions, "the number of instructions");
        for (std::int64_t i = 0; i < instructions; ++i) section.instructions.push_back(instruction(section));
        for (std::int64_t i = 0; i < stores; ++i) section.stores.push_back(operand(section));
        for (std::int64_t i = 0; i < reductions; ++i) {
            Reduced reduced;
            reduced.operand = operand(section);
            reduced.output = static_cast<std::uint32_t>(tensor(program_.outputs.size(), "the output of a reduction"));
            if (program_.outputs[reduced.output].reduction == Reduction::kNone) refuse("a vector is no reduction");
            section.reductions.push_back(reduced);
        }
        const auto units = reader_.count("the number of units", 1 + 2 * (section.loads + stores));
        for (std::int64_t i = 0; i < units; ++i) section.units.push_back(unit(section));
        program_.sections.push_back(std::move(section));
    }

    // Each element of a vector is written, and by one unit only: units run at the same time.
    void coverage() const {
        std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> written(program_.outputs.size());
        for (const Section& section : program_.sections) {
            for (const Unit& unit : section.units) {
                for (const Place& place : unit.stores) {
                    if (place.tensor >= 0 && unit.size > 0) {
                        written[static_cast<std::size_t>(place.tensor)].emplace_back(place.offset,
                                                                                     place.offset + unit.size);
                    }
                }
            }
        }
        for (std::size_t i = 0; i < written.size(); ++i) {
            if (program_.outputs[i].reduction != Reduction::kNone) continue;
            std::sort(written[i].begin(), written[i].end());
            std::int64_t end = 0;
            for (const auto& [begin, next] : written[i]) {
                if (begin != end) refuse("output " + std::to_string(i) + " has elements that are written twice or never");
                end = next;
            }
            if (end != program_.outputs[i].size) refuse("output " + std::to_string(i) + " is not written to its end");
        }
    }

private:
    std::int64_t tensor(std::size_t count, const char* what) {
        return reader_.next(0, static_cast<std::int64_t>(count) - 1, what);
    }

    Operand operand(const Section& section) {
        const std::int64_t word = reader_.next(0, std::int64_t{1} << 32, "an operand");
        Operand operand;
        operand.source = static_cast<Source>(word & 3);
        operand.place = static_cast<std::uint32_t>(word >> 2);
        const std::size_t places[] = {section.instructions.size(), section.loads, program_.inputs.size(),
                                      program_.constants.size()};
        if (operand.place >= places[word & 3]) refuse("an operand does not exist");
        if (operand.source == Source::kNumber && std::abs(program_.inputs[operand.place]) != 1) {
            refuse("a vector is no number");
        };
        return operand;
    }

    Instruction instruction(const Section& section) {
        Instruction instruction;
        instruction.code =
            static_cast<Code>(reader_.next(1, static_cast<std::int64_t>(Code::kEnd) - 1, "an instruction"));
        instruction.count = static_cast<std::uint8_t>(reader_.next(1, 3, "the number of operands"));
        if (instruction.count != operands_of(instruction.code)) refuse("an instruction has too many or too few operands");
        for (int i = 0; i < instruction.count; ++i) instruction.operands[i] = operand(section);
        return instruction;
    }

    Unit unit(const Section& section) {
        Unit unit;
        unit.size = reader_.next(0, kMostElements, "the size of a unit");
        for (std::uint32_t i = 0; i < section.loads; ++i) {
            Place place;
            place.tensor = static_cast<std::int32_t>(tensor(program_.inputs.size(), "an input"));
            place.offset = reader_.next(0, kMostElements, "an offset");
            const std::int64_t size = program_.inputs[static_cast<std::size_t>(place.tensor)];
            if (size < 0) refuse("a number is no vector");
            if (place.offset > size - unit.size) refuse("a unit reads beyond an input");
            unit.loads.push_back(place);
        }
        for (std::size_t i = 0; i < section.stores.size(); ++i) {
            Place place;
            place.tensor = static_cast<std::int32_t>(
                reader_.next(-1, static_cast<std::int64_t>(program_.outputs.size()) - 1, "an output"));
            place.offset = reader_.next(0, kMostElements, "an offset");
            if (place.tensor >= 0) {
                const Output& output = program_.outputs[static_cast<std::size_t>(place.tensor)];
                if (output.reduction != Reduction::kNone) refuse("a number is no vector");
                if (place.offset > output.size - unit.size) refuse("a unit writes beyond an output");
            }
            unit.stores.push_back(place);
        }
        return unit;
    }

    Reader& reader_;
    Program& program_;
};

}  // namespace

int operands_of(Code code) {
    switch (code) {
        case Code::kAdd:
        case Code::kSub:
        case Code::kMul:
        case Code::kDiv:
        case Code::kMax:
        case Code::kMin:
        case Code::kPow:
        case Code::kAnd:
        case Code::kOr:
        case Code::kEqual:
        case Code::kLess:
        case Code::kLessOrEqual:
        case Code::kGreater:
        case Code::kGreaterOrEqual:
            return 2;
        case Code::kWhere:
            return 3;
        default:
            return 1;
    }
}

Program read_program(const std::vector<std::int64_t>& words, std::vector<float> constants, std::size_t inputs,
                     std::size_t outputs) {
    if (words.empty() || words[0] != kVersion) {
        throw ProgramError("the program is of version " + (words.empty() ? "(none)" : std::to_string(words[0])) +
                           ", and this library knows version " + std::to_string(kVersion) + " only");
    }
    Reader reader(words);
    Program program;
    program.constants = std::move(constants);
    reader.next(kVersion, kVersion, "the version");
    const auto input_count = reader.count("the number of inputs");
    for (std::int64_t i = 0; i < input_count; ++i) program.inputs.push_back(reader.next(-1, kMostElements, "a size"));
    const auto output_count = reader.count("the number of outputs");
    for (std::int64_t i = 0; i < output_count; ++i) program.outputs.push_back(read_output(reader));
    if (program.inputs.size() != inputs || program.outputs.size() != outputs) {
        refuse("it has another number of inputs or outputs than the node");
    }
    const auto sections = reader.count("the number of sections", 5);
    Checker checker(reader, program);
    for (std::int64_t i = 0; i < sections; ++i) checker.section();
    if (!reader.done()) refuse("there is more after its end");
    checker.coverage();
    return program;
}

}  // namespace edgeopt::chain
