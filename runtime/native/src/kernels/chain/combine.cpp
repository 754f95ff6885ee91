#include "combine.h"

namespace edgeopt::chain {

namespace {

class Combiner {
public:
    explicit Combiner(Section& section) : section_(section), uses_(section.instructions.size(), 0) {
        for (const Instruction& instruction : section.instructions) {
            for (int i = 0; i < instruction.count; ++i) count(instruction.operands[i]);
        }
        // What is stored or reduced is needed by itself.
        for (const Operand& operand : section.stores) count(operand, 2);
        for (const Reduced& reduced : section.reductions) count(reduced.operand, 2);
    }

    void run() {
        for (Instruction& instruction : section_.instructions) combine(instruction);
    }

private:
    void count(const Operand& operand, int times = 1) {
        if (operand.source == Source::kResult) uses_[operand.place] += times;
    }

    // The instruction of which this is the result, if nothing else reads that.
    Instruction* only(const Operand& operand, Code code) {
        if (operand.source != Source::kResult || uses_[operand.place] != 1) return nullptr;
        Instruction& found = section_.instructions[operand.place];
        return found.code == code ? &found : nullptr;
    }

    static void become(Instruction& instruction, Code code, std::initializer_list<Operand> operands) {
        instruction.code = code;
        instruction.count = 0;
        for (const Operand& operand : operands) instruction.operands[instruction.count++] = operand;
    }

    void combine(Instruction& it) {
        const Operand a = it.operands[0], b = it.operands[1];
        if (it.code == Code::kAdd) {
            Instruction *left = only(a, Code::kMul), *right = only(b, Code::kMul);
            if (left != nullptr && right != nullptr && left != right) {
                become(it, Code::kMulMulAdd,
                       {left->operands[0], left->operands[1], right->operands[0], right->operands[1]});
                left->code = right->code = Code::kAll;
            } else if (left != nullptr) {
                become(it, Code::kMulAdd, {left->operands[0], left->operands[1], b});
                left->code = Code::kAll;
            } else if (right != nullptr) {
                become(it, Code::kMulAdd, {right->operands[0], right->operands[1], a});
                right->code = Code::kAll;
            } else if (Instruction* root = only(a, Code::kSqrt)) {
                become(it, Code::kSqrtAdd, {root->operands[0], b});
                root->code = Code::kAll;
            }
        } else if (it.code == Code::kSub) {
            if (Instruction* left = only(a, Code::kMul)) {
                become(it, Code::kMulSub, {left->operands[0], left->operands[1], b});
                left->code = Code::kAll;
            } else if (Instruction* right = only(b, Code::kMul)) {
                become(it, Code::kSubMul, {a, right->operands[0], right->operands[1]});
                right->code = Code::kAll;
            }
        } else if (it.code == Code::kDiv) {
            if (Instruction* left = only(a, Code::kMul)) {
                become(it, Code::kMulDiv, {left->operands[0], left->operands[1], b});
                left->code = Code::kAll;
            }
        }
    }

    Section& section_;
    std::vector<int> uses_;
};

}  // namespace

Section combined(Section section) {
    Combiner(section).run();
    return section;
}

}  // namespace edgeopt::chain
