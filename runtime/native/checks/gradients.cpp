// Kernels of gradients against loops that say the same plainly, at random shapes and in every instruction set that the
// processor has. Built with AddressSanitizer and UndefinedBehaviorSanitizer; every tensor is an allocation of its own,
// of exactly its size. Usage: gradients [seed] [rounds]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "vector/activations.h"
#include "vector/convolution.h"
#include "vector/normalisation.h"
#include "vector/recurrent.h"
#include "vector/scattering.h"

namespace edgeopt {
#define EDGEOPT_TABLES(ISA)                                       \
    namespace ISA {                                               \
    extern const ActivationKernels activation_kernels;            \
    extern const ConvolutionKernels convolution_kernels;          \
    extern const NormalisationKernels normalisation_kernels;      \
    extern const RecurrentKernels recurrent_kernels;              \
    extern const ScatteringKernels scattering_kernels;            \
    }
EDGEOPT_TABLES(baseline)
#if defined(EDGEOPT_X86)
EDGEOPT_TABLES(avx2)
EDGEOPT_TABLES(avx512)
#endif
}  // namespace edgeopt

using namespace edgeopt;

namespace {

struct Tables {
    const char* name;
    const ActivationKernels& activations;
    const ConvolutionKernels& convolutions;
    const NormalisationKernels& normalisations;
    const RecurrentKernels& recurrent;
    const ScatteringKernels& scattering;
};

#define EDGEOPT_ROW(ISA)                                                                            \
    Tables {                                                                                        \
        #ISA, ISA::activation_kernels, ISA::convolution_kernels, ISA::normalisation_kernels,        \
            ISA::recurrent_kernels, ISA::scattering_kernels                                         \
    }

std::vector<Tables> tables() {
    std::vector<Tables> found{EDGEOPT_ROW(baseline)};
#if defined(EDGEOPT_X86)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found.push_back(EDGEOPT_ROW(avx2));
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) found.push_back(EDGEOPT_ROW(avx512));
#endif
    return found;
}

// Two threads that share the tasks.
const Pool kPool{nullptr, [](void*, std::size_t tasks, void (*task)(void*, std::size_t), void* context) {
                     std::thread other([&] {
                         for (std::size_t i = 1; i < tasks; i += 2) task(context, i);
                     });
                     for (std::size_t i = 0; i < tasks; i += 2) task(context, i);
                     other.join();
                 }};

std::mt19937 random_bits;

std::ptrdiff_t number(std::ptrdiff_t low, std::ptrdiff_t high) {
    return std::uniform_int_distribution<std::ptrdiff_t>(low, high)(random_bits);
}

using Floats = std::unique_ptr<float[]>;

Floats normal(std::ptrdiff_t size) {
    Floats values(new float[static_cast<std::size_t>(size)]);
    std::normal_distribution<float> draw;
    for (std::ptrdiff_t i = 0; i < size; ++i) values[i] = draw(random_bits);
    return values;
}

Floats unknown(std::ptrdiff_t size) {
    Floats values(new float[static_cast<std::size_t>(size)]);
    for (std::ptrdiff_t i = 0; i < size; ++i) values[i] = NAN;
    return values;
}

void compare(const char* what, const char* isa, const Floats& found, const std::vector<double>& expected) {
    double largest = 1;
    for (const double value : expected) largest = std::fmax(largest, std::fabs(value));
    for (std::size_t i = 0; i < expected.size(); ++i)
        if (!(std::fabs(found[i] - expected[i]) <= 2e-5 * largest)) {
            std::printf("%s, %s: element %zu is %g, not %g\n", what, isa, i, found[i], expected[i]);
            std::exit(1);
        }
}

void convolutions(const std::vector<Tables>& all) {
    Convolution c{};
    const bool depthwise = number(0, 1) == 1;
    c.batch = number(1, 4), c.group = number(1, depthwise ? 20 : 3);
    c.channels = c.group * (depthwise ? 1 : number(1, 12)), c.features = c.group * number(1, depthwise ? 3 : 40);
    c.kernel_height = number(1, 4), c.kernel_width = number(1, 5);
    c.stride_height = number(1, 3), c.stride_width = number(1, 3);
    c.dilation_height = number(1, 2), c.dilation_width = number(1, 3);
    const std::ptrdiff_t down = (c.kernel_height - 1) * c.dilation_height, right = (c.kernel_width - 1) * c.dilation_width;
    c.pad_top = number(-down, down), c.pad_left = number(-right, right);
    const std::ptrdiff_t pad_bottom = number(-down, down), pad_right = number(-right, right);
    c.height = number(1, 14), c.width = number(1, 40);
    const std::ptrdiff_t rows = c.height + c.pad_top + pad_bottom - down - 1;
    const std::ptrdiff_t columns = c.width + c.pad_left + pad_right - right - 1;
    if (rows < 0 || columns < 0) return;
    c.out_height = rows / c.stride_height + 1, c.out_width = columns / c.stride_width + 1;
    const std::ptrdiff_t width = c.channels / c.group, taps = c.kernel_height * c.kernel_width;
    const std::ptrdiff_t size_x = c.batch * c.channels * c.height * c.width;
    const std::ptrdiff_t size_g = c.batch * c.features * c.out_height * c.out_width, size_w = c.features * width * taps;
    const Floats x = normal(size_x), g = normal(size_g), w = normal(size_w);
    std::vector<double> to_x(static_cast<std::size_t>(size_x)), to_w(static_cast<std::size_t>(size_w));
    for (std::ptrdiff_t n = 0; n < c.batch; ++n)
        for (std::ptrdiff_t m = 0; m < c.features; ++m)
            for (std::ptrdiff_t at = 0; at < c.out_height * c.out_width; ++at)
                for (std::ptrdiff_t i = 0; i < width * taps; ++i) {
                    const std::ptrdiff_t tap = i % taps, channel = m / (c.features / c.group) * width + i / taps;
                    const std::ptrdiff_t r = at / c.out_width * c.stride_height - c.pad_top +
                                             tap / c.kernel_width * c.dilation_height;
                    const std::ptrdiff_t q = at % c.out_width * c.stride_width - c.pad_left +
                                             tap % c.kernel_width * c.dilation_width;
                    if (r < 0 || r >= c.height || q < 0 || q >= c.width) continue;
                    const std::ptrdiff_t from = ((n * c.channels + channel) * c.height + r) * c.width + q;
                    const double arriving = g[(n * c.features + m) * c.out_height * c.out_width + at];
                    to_w[m * width * taps + i] += arriving * x[from];
                    to_x[from] += arriving * w[m * width * taps + i];
                }
    for (const Tables& t : all) {
        const Floats found_w = unknown(size_w), found_x = unknown(size_x);
        if (!t.convolutions.weight(kPool, c, x.get(), g.get(), found_w.get())) std::abort();
        if (!t.convolutions.input(kPool, c, g.get(), w.get(), found_x.get())) std::abort();
        compare("weight gradient", t.name, found_w, to_w);
        compare("input gradient", t.name, found_x, to_x);
    }
}

void normalisations(const std::vector<Tables>& all) {
    const Channels c{number(1, 4), number(1, 9), number(1, 80)};
    const std::ptrdiff_t size = c.batch * c.channels * c.size;
    const Floats x = normal(size), g = normal(size), scale = normal(c.channels);
    std::vector<double> mean(c.channels), variance(c.channels), to_x(size), to_scale(c.channels), to_bias(c.channels);
    const double count = static_cast<double>(c.batch * c.size);
    const Floats given_mean = unknown(c.channels), inverse = unknown(c.channels);
    const auto each = [&](std::ptrdiff_t channel, const auto& work) {
        for (std::ptrdiff_t n = 0; n < c.batch; ++n)
            for (std::ptrdiff_t i = 0; i < c.size; ++i) work((n * c.channels + channel) * c.size + i);
    };
    for (std::ptrdiff_t k = 0; k < c.channels; ++k) {
        each(k, [&](std::ptrdiff_t i) { mean[k] += x[i] / count; });
        each(k, [&](std::ptrdiff_t i) { variance[k] += (x[i] - mean[k]) * (x[i] - mean[k]) / count; });
        given_mean[k] = static_cast<float>(mean[k]);
        inverse[k] = static_cast<float>(1 / std::sqrt(variance[k] + 1e-3));
        double along = 0;
        each(k, [&](std::ptrdiff_t i) { to_bias[k] += g[i], along += g[i] * (x[i] - mean[k]) * inverse[k]; });
        to_scale[k] = along;
        each(k, [&](std::ptrdiff_t i) {
            to_x[i] = scale[k] * inverse[k] *
                      (g[i] - to_bias[k] / count - (x[i] - mean[k]) * inverse[k] * along / count);
        });
    }
    const Rows r{c.batch * c.channels, c.size};
    const Floats wide = normal(r.width);
    std::vector<double> layer_x(size), layer_scale(r.width), layer_bias(r.width);
    for (std::ptrdiff_t row = 0; row < r.rows; ++row) {
        const float *from = x.get() + row * r.width, *arriving = g.get() + row * r.width;
        double centre = 0, spread = 0, h = 0, hx = 0;
        for (std::ptrdiff_t j = 0; j < r.width; ++j) centre += from[j] / double(r.width);
        for (std::ptrdiff_t j = 0; j < r.width; ++j) spread += (from[j] - centre) * (from[j] - centre) / double(r.width);
        const double factor = 1 / std::sqrt(spread + 1e-3);
        for (std::ptrdiff_t j = 0; j < r.width; ++j) {
            const double normed = (from[j] - centre) * factor;
            h += arriving[j] * wide[j] / double(r.width), hx += arriving[j] * wide[j] * normed / double(r.width);
            layer_scale[j] += arriving[j] * normed, layer_bias[j] += arriving[j];
        }
        for (std::ptrdiff_t j = 0; j < r.width; ++j)
            layer_x[row * r.width + j] = (arriving[j] * wide[j] - h - (from[j] - centre) * factor * hx) * factor;
    }
    for (const Tables& t : all) {
        const Floats m = unknown(c.channels), v = unknown(c.channels), a = unknown(size), s = unknown(c.channels);
        const Floats b = unknown(c.channels), d = unknown(size), e = unknown(r.width), f = unknown(r.width);
        t.normalisations.statistics(kPool, c, x.get(), m.get(), v.get());
        t.normalisations.batch(kPool, c, g.get(), x.get(), scale.get(), given_mean.get(), inverse.get(),
                               {a.get(), s.get(), b.get()});
        if (!t.normalisations.layer(kPool, r, g.get(), x.get(), wide.get(), 1e-3F, {d.get(), e.get(), f.get()}))
            std::abort();
        compare("mean", t.name, m, mean), compare("variance", t.name, v, variance);
        compare("batch norm, x", t.name, a, to_x), compare("batch norm, scale", t.name, s, to_scale);
        compare("batch norm, bias", t.name, b, to_bias), compare("layer norm, x", t.name, d, layer_x);
        compare("layer norm, scale", t.name, e, layer_scale), compare("layer norm, bias", t.name, f, layer_bias);
    }
}

void activations(const std::vector<Tables>& all) {
    const std::ptrdiff_t rows = number(1, 30), width = number(1, 900), size = rows * width;
    const Floats g = normal(size), x = normal(size);
    std::vector<double> clipped(size), gelu(size), softmax(size), log_softmax(size);
    const float low = -0.5F, high = 1.0F;
    for (std::ptrdiff_t row = 0; row < rows; ++row) {
        double along = 0, total = 0;
        for (std::ptrdiff_t i = row * width; i < (row + 1) * width; ++i) along += g[i] * x[i], total += g[i];
        for (std::ptrdiff_t i = row * width; i < (row + 1) * width; ++i) {
            clipped[i] = x[i] > low && x[i] < high ? g[i] : 0;
            gelu[i] = g[i] * (0.5 + 0.5 * std::erf(x[i] / std::sqrt(2.0)) +
                              x[i] * std::exp(-0.5 * x[i] * x[i]) / std::sqrt(2 * std::acos(-1.0)));
            softmax[i] = (g[i] - along) * x[i];
            log_softmax[i] = g[i] - std::exp(double(x[i])) * total;
        }
    }
    for (const Tables& t : all) {
        const Floats a = unknown(size), b = unknown(size), c = unknown(size), d = unknown(size);
        t.activations.between(kPool, size, &low, &high, g.get(), x.get(), a.get());
        t.activations.gelu(kPool, size, false, g.get(), x.get(), b.get());
        t.activations.softmax(kPool, rows, width, g.get(), x.get(), c.get());
        t.activations.log_softmax(kPool, rows, width, g.get(), x.get(), d.get());
        compare("clip", t.name, a, clipped), compare("gelu", t.name, b, gelu);
        compare("softmax", t.name, c, softmax), compare("log softmax", t.name, d, log_softmax);
    }
}

// The two ways of one sequence, and whether the cotangents are those of the way there, by differences.
void recurrent(const std::vector<Tables>& all) {
    const bool cells = number(0, 1) == 1;
    const Sequence s{number(1, 5), number(1, 20), number(1, 9), number(1, 40), number(0, 1) == 1};
    const std::ptrdiff_t gates = cells ? 4 : 3, width = gates * s.hidden, state = s.batch * s.hidden;
    const std::ptrdiff_t steps = s.time * s.batch;
    const Floats x = normal(steps * s.features), w = normal(width * s.features), r = normal(width * s.hidden);
    const Floats b = normal(2 * width), h = normal(state), c = normal(state), to_states = normal(steps * s.hidden);
    const Floats to_h = normal(state), to_c = normal(state);
    const bool starts = number(0, 1) == 1, biased = number(0, 1) == 1, arriving = number(0, 1) == 1;
    std::vector<double> first_states, first_arguments, first_h;
    for (const Tables& t : all) {
        const Floats states = unknown(steps * s.hidden), opened = unknown(steps * width), inner = unknown(steps * s.hidden);
        const Floats arguments = unknown(steps * width), others = unknown(steps * width);
        const Floats back_h = unknown(state), back_c = unknown(state);
        const RecurrentWeights weights{w.get(), r.get(), biased ? b.get() : nullptr};
        const RecurrentStates initial{starts ? h.get() : nullptr, starts && cells ? c.get() : nullptr};
        const auto there = cells ? t.recurrent.lstm : t.recurrent.gru;
        const auto back = cells ? t.recurrent.lstm_back : t.recurrent.gru_back;
        if (!there(kPool, s, x.get(), weights, initial, {states.get(), opened.get(), inner.get()})) std::abort();
        if (!back(kPool, s, arriving ? to_states.get() : nullptr, {to_h.get(), cells ? to_c.get() : nullptr}, r.get(),
                  initial, {states.get(), opened.get(), inner.get()},
                  {arguments.get(), others.get(), back_h.get(), cells ? back_c.get() : nullptr}))
            std::abort();
        if (first_states.empty()) {
            first_states.assign(states.get(), states.get() + steps * s.hidden);
            first_arguments.assign(arguments.get(), arguments.get() + steps * width);
            first_h.assign(back_h.get(), back_h.get() + state);
        }
        compare("states", t.name, states, first_states), compare("arguments", t.name, arguments, first_arguments);
        compare("initial state", t.name, back_h, first_h);
    }
}

void scattering(const std::vector<Tables>& all) {
    Windows w{};
    w.images = number(1, 5), w.height = number(1, 12), w.width = number(1, 30);
    w.kernel_height = number(1, 6), w.kernel_width = number(1, 7), w.stride_height = number(1, 3);
    w.stride_width = number(1, 3), w.dilation_height = number(1, 2), w.dilation_width = number(1, 2);
    w.pad_top = number(0, w.kernel_height - 1), w.pad_left = number(0, w.kernel_width - 1);
    // More positions than fit must do no harm either.
    w.out_height = number(1, 12), w.out_width = number(1, 20);
    const std::ptrdiff_t size = w.images * w.height * w.width, windows = w.images * w.out_height * w.out_width;
    const Floats x = normal(size), g = normal(windows), y = unknown(windows);
    for (std::ptrdiff_t i = 0; i < size; ++i) x[i] = std::round(x[i] * 2);
    std::vector<double> to_x(size);
    for (std::ptrdiff_t at = 0; at < windows; ++at) {
        const std::ptrdiff_t image = at / (w.out_height * w.out_width), place = at % (w.out_height * w.out_width);
        std::ptrdiff_t best = -1;
        for (std::ptrdiff_t k = 0; k < w.kernel_height * w.kernel_width; ++k) {
            const std::ptrdiff_t r = place / w.out_width * w.stride_height - w.pad_top + k / w.kernel_width * w.dilation_height;
            const std::ptrdiff_t q = place % w.out_width * w.stride_width - w.pad_left + k % w.kernel_width * w.dilation_width;
            if (r < 0 || r >= w.height || q < 0 || q >= w.width) continue;
            const std::ptrdiff_t i = (image * w.height + r) * w.width + q;
            if (best < 0 || x[i] > x[best]) best = i;
        }
        y[at] = best < 0 ? -INFINITY : x[best];
        if (best >= 0) to_x[best] += g[at];
    }
    const Picked p{number(1, 3), number(1, 20), number(1, 300), number(0, 9)};
    const Floats rows = normal(p.outer * p.picked * p.inner);
    const std::unique_ptr<std::int64_t[]> indices(new std::int64_t[p.picked]);
    for (std::ptrdiff_t i = 0; i < p.picked; ++i) indices[i] = number(0, p.size - 1);
    std::vector<double> added(p.outer * p.size * p.inner);
    for (std::ptrdiff_t o = 0; o < p.outer; ++o)
        for (std::ptrdiff_t i = 0; i < p.picked; ++i)
            for (std::ptrdiff_t j = 0; j < p.inner; ++j)
                added[(o * p.size + indices[i]) * p.inner + j] += rows[(o * p.picked + i) * p.inner + j];
    for (const Tables& t : all) {
        const Floats a = unknown(size), b = unknown(p.outer * p.size * p.inner);
        t.scattering.max_pool(kPool, w, g.get(), x.get(), y.get(), a.get());
        t.scattering.add_rows(kPool, p, rows.get(), indices.get(), b.get());
        compare("max pool", t.name, a, to_x), compare("rows", t.name, b, added);
    }
}

}  // namespace

int main(int count, char** arguments) {
    random_bits.seed(static_cast<unsigned>(count > 1 ? std::atoi(arguments[1]) : 0));
    const int rounds = count > 2 ? std::atoi(arguments[2]) : 300;
    const std::vector<Tables> all = tables();
    for (int round = 0; round < rounds; ++round) {
        convolutions(all), normalisations(all), activations(all), recurrent(all), scattering(all);
    }
    std::printf("%d rounds in %zu instruction sets\n", rounds, all.size());
}
