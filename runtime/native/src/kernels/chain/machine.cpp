#include "machine.h"

#include "combine.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <new>
#include <utility>

namespace edgeopt::chain {

namespace {

// Floats that a block's registers and runs of memory may take together: short enough that the processor overlaps a loop with the next.
constexpr std::size_t kCache = 3 * 1024;
constexpr std::size_t kLongestBlock = 1024;
constexpr std::size_t kShortestBlock = 64;

// Elements that are worth another thread.
constexpr std::int64_t kTask = 1 << 15;

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

constexpr std::size_t kAlignment = 64;

struct Free {
    void operator()(float* memory) const { ::operator delete(memory, std::align_val_t{kAlignment}); }
};

std::unique_ptr<float, Free> scratch_of(std::size_t count) {
    return std::unique_ptr<float, Free>(
        static_cast<float*>(::operator new(std::max<std::size_t>(count, 1) * sizeof(float), std::align_val_t{kAlignment})));
}

double start_of(Reduction kind) {
    if (kind == Reduction::kMax) return -std::numeric_limits<double>::infinity();
    if (kind == Reduction::kMin) return std::numeric_limits<double>::infinity();
    return 0.0;
}

double combined(Reduction kind, double so_far, double more) {
    if (kind == Reduction::kMax) return more > so_far || std::isnan(more) ? more : so_far;
    if (kind == Reduction::kMin) return more < so_far || std::isnan(more) ? more : so_far;
    return so_far + more;
}

}  // namespace

Machine::Machine(Program program) : program_(std::move(program)) {
    for (const Section& section : program_.sections) plans_.push_back(planned(combined(section)));
    share_out();
}

// Gives each result a register until it was read for the last time, or the memory of the output where it goes.
Machine::Plan Machine::planned(const Section& section) const {
    const auto constants = static_cast<std::uint32_t>(program_.constants.size());
    const auto numbers = static_cast<std::uint32_t>(program_.inputs.size());
    const auto stores = static_cast<std::uint32_t>(section.stores.size());
    const std::uint32_t first_load = constants + numbers;
    const std::uint32_t first_store = first_load + section.loads;
    const std::uint32_t first_register = first_store + stores;
    const std::size_t count = section.instructions.size();

    Plan plan;
    std::vector<std::uint32_t> place(count, kNone);
    std::vector<std::size_t> last(count, 0);
    for (std::size_t i = 0; i < count; ++i) {
        last[i] = i;
        if (section.instructions[i].code == Code::kAll) continue;
        for (int k = 0; k < section.instructions[i].count; ++k) {
            const Operand& operand = section.instructions[i].operands[k];
            if (operand.source == Source::kResult) last[operand.place] = i;
        }
    }
    for (const Reduced& reduced : section.reductions) {
        if (reduced.operand.source == Source::kResult) last[reduced.operand.place] = count;
    }
    std::vector<bool> copied(stores, true);
    for (std::uint32_t i = 0; i < stores; ++i) {
        const Operand& operand = section.stores[i];
        if (operand.source != Source::kResult) continue;
        last[operand.place] = count;
        if (place[operand.place] == kNone) {
            place[operand.place] = first_store + i;
            copied[i] = false;
        }
    }

    const auto slot = [&](const Operand& operand) {
        switch (operand.source) {
            case Source::kConstant:
                return operand.place;
            case Source::kNumber:
                return constants + operand.place;
            case Source::kLoad:
                return first_load + operand.place;
            default:
                return place[operand.place];
        }
    };
    const auto is_number = [](const Operand& operand) {
        return operand.source == Source::kConstant || operand.source == Source::kNumber;
    };
    const Loops& table = loops();
    std::vector<std::uint32_t> free;
    for (std::size_t i = 0; i < count; ++i) {
        const Instruction& instruction = section.instructions[i];
        if (instruction.code == Code::kAll) continue;
        Step step;
        std::size_t form = 0;
        for (int k = 0; k < 4; ++k) {
            // Loops look at the first element of each operand; those that there are not are the first one again.
            const Operand& operand = instruction.operands[k < instruction.count ? k : 0];
            step.from[k] = slot(operand);
            if (k < instruction.count && is_number(operand)) form |= std::size_t{1} << k;
        }
        for (int k = 0; k < instruction.count; ++k) {
            const Operand& operand = instruction.operands[k];
            const bool dies = operand.source == Source::kResult && last[operand.place] == i;
            if (dies && slot(operand) >= first_register &&
                std::find(free.begin(), free.end(), slot(operand)) == free.end()) {
                free.push_back(slot(operand));
            }
        }
        if (place[i] == kNone) {
            if (free.empty()) {
                place[i] = first_register + plan.registers++;
            } else {
                place[i] = free.back();
                free.pop_back();
            }
        }
        step.to = place[i];
        step.loop = table.of[static_cast<std::size_t>(instruction.code)][form];
        plan.steps.push_back(step);
        if (last[i] == i && place[i] >= first_register) free.push_back(place[i]);  // nobody reads it
    }
    for (std::uint32_t i = 0; i < stores; ++i) {
        if (!copied[i]) continue;
        Step step;
        step.to = first_store + i;
        for (std::uint32_t& from : step.from) from = slot(section.stores[i]);
        step.loop = table.of[static_cast<std::size_t>(Code::kCopy)][is_number(section.stores[i]) ? 1 : 0];
        plan.steps.push_back(step);
    }
    for (const Reduced& reduced : section.reductions) {
        std::uint32_t from = slot(reduced.operand);
        if (is_number(reduced.operand)) {
            // Spread to as many elements as there are.
            Step step;
            step.to = first_register + plan.registers++;
            for (std::uint32_t& place : step.from) place = from;
            step.loop = table.of[static_cast<std::size_t>(Code::kCopy)][1];
            plan.steps.push_back(step);
            from = step.to;
        }
        plan.reductions.push_back({program_.outputs[reduced.output].reduction, from, reduced.output});
    }
    const std::size_t streams = plan.registers + section.loads + stores;
    plan.block = kCache / std::max<std::size_t>(streams, 1) / kShortestBlock * kShortestBlock;
    plan.block = std::clamp(plan.block, kShortestBlock, kLongestBlock);
    return plan;
}

// Cuts the work into tasks of about equal size, which depend on the program alone.
void Machine::share_out() {
    std::int64_t room = 0;
    for (std::uint32_t section = 0; section < program_.sections.size(); ++section) {
        const auto& units = program_.sections[section].units;
        for (std::uint32_t unit = 0; unit < units.size(); ++unit) {
            for (std::int64_t begin = 0; begin < units[unit].size;) {
                if (room == 0) {
                    tasks_.emplace_back();
                    room = kTask;
                }
                const std::int64_t end = std::min(units[unit].size, begin + room);
                tasks_.back().push_back({section, unit, begin, end});
                room -= end - begin;
                begin = end;
            }
        }
    }
}

void Machine::run(std::size_t task, const Tensors& tensors, double* reduced) const {
    for (std::size_t i = 0; i < program_.outputs.size(); ++i) reduced[i] = start_of(program_.outputs[i].reduction);
    std::size_t floats = 0;
    for (const Stretch& one : tasks_[task]) {
        const Plan& plan = plans_[one.section];
        floats = std::max(floats, (plan.registers + program_.sections[one.section].stores.size()) * plan.block);
    }
    const auto scratch = scratch_of(floats);
    for (const Stretch& one : tasks_[task]) stretch(one, tensors, scratch.get(), reduced);
}

void Machine::stretch(const Stretch& one, const Tensors& tensors, float* scratch, double* reduced) const {
    const Section& section = program_.sections[one.section];
    const Unit& unit = section.units[one.unit];
    const Plan& plan = plans_[one.section];
    // Constants and numbers are only read; the pointers are of one type for the sake of the registers among them.
    std::vector<float*> slots;
    for (const float& constant : program_.constants) slots.push_back(const_cast<float*>(&constant));
    for (const float& number : tensors.numbers) slots.push_back(const_cast<float*>(&number));
    std::vector<std::uint32_t> moving;
    for (const Place& place : unit.loads) {
        moving.push_back(static_cast<std::uint32_t>(slots.size()));
        const float* first = tensors.inputs[static_cast<std::size_t>(place.tensor)];
        slots.push_back(const_cast<float*>(first + place.offset + one.begin));
    }
    for (std::size_t i = 0; i < unit.stores.size(); ++i) {
        const Place& place = unit.stores[i];
        if (place.tensor < 0) {
            slots.push_back(scratch + (plan.registers + i) * plan.block);
            continue;
        }
        moving.push_back(static_cast<std::uint32_t>(slots.size()));
        slots.push_back(tensors.outputs[static_cast<std::size_t>(place.tensor)] + place.offset + one.begin);
    }
    for (std::uint32_t i = 0; i < plan.registers; ++i) slots.push_back(scratch + i * plan.block);

    const Loops& table = loops();
    for (std::int64_t left = one.end - one.begin; left > 0;) {
        const std::size_t count = std::min(static_cast<std::size_t>(left), plan.block);
        for (const Step& step : plan.steps) {
            const float* const from[] = {slots[step.from[0]], slots[step.from[1]], slots[step.from[2]],
                                         slots[step.from[3]]};
            step.loop(slots[step.to], from, count);
        }
        for (const Reduce& reduction : plan.reductions) {
            const float* values = slots[reduction.from];
            double found = 0.0;
            switch (reduction.kind) {
                case Reduction::kFinite:
                    found = static_cast<double>(table.finite(values, count));
                    break;
                case Reduction::kMax:
                    found = static_cast<double>(table.largest(values, count));
                    break;
                case Reduction::kMin:
                    found = static_cast<double>(table.smallest(values, count));
                    break;
                default:
                    found = table.sum(values, count);
            }
            reduced[reduction.output] = combined(reduction.kind, reduced[reduction.output], found);
        }
        for (const std::uint32_t slot : moving) slots[slot] += count;
        left -= static_cast<std::int64_t>(count);
    }
}

void Machine::reduce(const std::vector<double>& reduced, const Tensors& tensors) const {
    const std::size_t count = program_.outputs.size();
    for (std::size_t i = 0; i < count; ++i) {
        const Reduction kind = program_.outputs[i].reduction;
        if (kind == Reduction::kNone) continue;
        double total = start_of(kind);
        for (std::size_t task = 0; task < tasks_.size(); ++task) total = combined(kind, total, reduced[task * count + i]);
        *tensors.outputs[i] = static_cast<float>(total);
    }
}

}  // namespace edgeopt::chain
