// Whole sequences of one direction.
//
// `LSTMForward` and `GRUForward`: of (x, w, r, b, h, c), numbered as the operators' inputs are, `given` says which there
// are. Results: those of the operator, then opened gates, and cells or what a GRU's reset gate multiplies.
// `LSTMBackward` (r, gates, cells, c, cotangents of h, c and, if there is one, of all states). Results: cotangents of
// the gates' arguments, of the initial h and c.
// `GRUBackward` (r, gates, kept, h, states, cotangents of h and, if there is one, of all states). Results: cotangents of
// the arguments of x's product, of the state's product, of the initial h.
#include "../vector/recurrent.h"

#include <algorithm>
#include <cstring>

#include "gradients.h"

namespace edgeopt::gradients {

namespace {

// The number of gates, and whether there are cells.
struct Lstm {
    static constexpr std::int64_t gates = 4;
    static constexpr bool cells = true;
};
struct Gru {
    static constexpr std::int64_t gates = 3;
    static constexpr bool cells = false;
};

// Memory of a result that the node does not have, but the way there needs.
class Room {
public:
    float* get(float* result, std::int64_t size) {
        if (result) return result;
        own_.resize(static_cast<std::size_t>(size));
        return own_.data();
    }

private:
    std::vector<float> own_;
};

template <class Cell>
class Forward final : public Kernel {
public:
    explicit Forward(const Info& info)
        : given_(info.integers("given")),
          backwards_(info.integer("backwards", 0) != 0),
          results_(info, Cell::cells ? 5 : 4) {
        require(given_.size() == info.inputs() && given_.size() >= 3 && given_[0] == 0 && given_[1] == 1 && given_[2] == 2,
                "`given` names the inputs");
    }

    void run(const Context& context) const override {
        const Shape x = context.input(0).shape, r = context.input(2).shape;
        require(x.size() == 3 && r.size() == 3 && r[0] == 1 && r[2] > 0 && r[1] == Cell::gates * r[2] && x[2] > 0,
                "x is (time, batch, features) and r (1, gates, hidden)");
        const std::int64_t hidden = r[2], width = Cell::gates * hidden;
        const Sequence s{x[0], x[1], x[2], hidden, backwards_};
        const Shape state{1, x[1], hidden}, all{x[0], x[1], hidden}, opened{x[0], x[1], width};
        const RecurrentWeights weights{floats(context, 1, {1, width, x[2]}), floats(context, 2, r),
                                       optional(context, 3, {1, 2 * width})};
        const RecurrentStates initial{optional(context, 5, state), Cell::cells ? optional(context, 6, state) : nullptr};
        constexpr std::int64_t last = Cell::cells ? 3 : 2;
        float* to_y = results_.get(context, 0, {x[0], 1, x[1], hidden});
        float* to_h = results_.get(context, 1, state);
        float* to_c = Cell::cells ? results_.get(context, 2, state) : nullptr;
        Room y, gates, inner;
        const RecurrentTrace trace{y.get(to_y, size_of(all)),
                                   gates.get(results_.get(context, last, opened), size_of(opened)),
                                   inner.get(results_.get(context, last + 1, all), size_of(all))};
        const auto kernel = Cell::cells ? recurrent_kernels().lstm : recurrent_kernels().gru;
        if (!kernel(pool_of(context), s, floats(context, 0, x), weights, initial, trace)) throw std::bad_alloc();
        take_last(s, trace.states, initial.h, to_h);
        take_last(s, trace.inner, initial.c, to_c);
    }

private:
    const float* optional(const Context& context, std::int64_t position, const Shape& shape) const {
        const auto found = std::find(given_.begin(), given_.end(), position);
        return found == given_.end() ? nullptr : floats(context, static_cast<std::size_t>(found - given_.begin()), shape);
    }

    static void take_last(const Sequence& s, const float* all, const float* initial, float* to) {
        if (!to) return;
        const auto bytes = static_cast<std::size_t>(s.batch * s.hidden) * sizeof(float);
        if (s.time > 0)
            std::memcpy(to, all + (s.backwards ? 0 : s.time - 1) * s.batch * s.hidden, bytes);
        else if (initial)
            std::memcpy(to, initial, bytes);
        else
            std::memset(to, 0, bytes);
    }

    std::vector<std::int64_t> given_;
    bool backwards_;
    Results results_;
};

template <class Cell>
class Backward final : public Kernel {
public:
    explicit Backward(const Info& info) : backwards_(info.integer("backwards", 0) != 0), results_(info, 3) {}

    void run(const Context& context) const override {
        const Shape r = context.input(0).shape, gates = context.input(1).shape;
        require(r.size() == 2 && r[1] > 0 && r[0] == Cell::gates * r[1] && gates.size() == 3 && gates[2] == r[0],
                "r is (gates, hidden), and the gates are (time, batch, gates)");
        const std::int64_t hidden = r[1];
        const Sequence s{gates[0], gates[1], 0, hidden, backwards_};
        const Shape all{gates[0], gates[1], hidden}, state{gates[1], hidden};
        const float *weights = floats(context, 0, r), *opened = floats(context, 1, gates), *inner = floats(context, 2, all);
        const float *initial = floats(context, 3, state), *fourth = floats(context, 4, Cell::cells ? state : all);
        const float* fifth = floats(context, 5, state);
        const float* to_states = context.has(6) ? floats(context, 6, all) : nullptr;
        Room first, second;
        const std::int64_t size = size_of(gates);
        bool done;
        if (Cell::cells) {
            const RecurrentCotangents to{first.get(results_.get(context, 0, gates), size), nullptr,
                                         results_.get(context, 1, state), results_.get(context, 2, state)};
            done = recurrent_kernels().lstm_back(pool_of(context), s, to_states, {fourth, fifth}, weights,
                                                 {nullptr, initial}, {nullptr, opened, inner}, to);
        } else {
            const RecurrentCotangents to{first.get(results_.get(context, 0, gates), size),
                                         second.get(results_.get(context, 1, gates), size),
                                         results_.get(context, 2, state), nullptr};
            done = recurrent_kernels().gru_back(pool_of(context), s, to_states, {fifth, nullptr}, weights,
                                                {initial, nullptr}, {fourth, opened, inner}, to);
        }
        if (!done) throw std::bad_alloc();
    }

private:
    bool backwards_;
    Results results_;
};

}  // namespace

void add_recurrent(std::deque<Op>& table) {
    add_named(table, "LSTMForward", made<Forward<Lstm>>);
    add_named(table, "GRUForward", made<Forward<Gru>>);
    add_named(table, "LSTMBackward", made<Backward<Lstm>>);
    add_named(table, "GRUBackward", made<Backward<Gru>>);
}

}  // namespace edgeopt::gradients
