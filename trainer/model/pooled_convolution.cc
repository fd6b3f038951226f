#include "trainer/model/pooled_convolution.h"

#include <ATen/Parallel.h>
#include <torch/autograd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace downpour::model {
namespace {

using torch::Tensor;

// The loops below are compiled for several instruction sets and chosen when the program is loaded.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define DOWNPOUR_VECTORIZED \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), optimize("O3")))
#else
#define DOWNPOUR_VECTORIZED
#endif

struct Geometry {
  std::int64_t batch, channels, height, width, outputs, kernel;
  std::int64_t pooled_height, pooled_width;

  // A last odd row or column of the convolution never reaches the pooled output, so it is not computed.
  std::int64_t rows() const { return 2 * pooled_height; }
  std::int64_t columns() const { return 2 * pooled_width; }
  std::int64_t pixels() const { return rows() * columns(); }
  std::int64_t taps() const { return channels * kernel * kernel; }
  std::int64_t image() const { return channels * height * width; }
};

Geometry Check(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  for (const Tensor& tensor : {input, weight, bias}) {
    TORCH_CHECK(tensor.is_contiguous() && tensor.is_cpu() && tensor.scalar_type() == torch::kFloat,
                "PooledConvolution: fp32, row-major, on the CPU");
  }
  TORCH_CHECK(input.dim() == 4 && weight.dim() == 4 && weight.size(1) == input.size(1) &&
                  weight.size(2) == weight.size(3) && bias.numel() == weight.size(0) &&
                  input.size(2) > weight.size(2) && input.size(3) > weight.size(3),
              "PooledConvolution: input ", input.sizes(), ", weight ", weight.sizes(), ", bias ", bias.sizes());
  Geometry g{};
  g.batch = input.size(0);
  g.channels = input.size(1);
  g.height = input.size(2);
  g.width = input.size(3);
  g.outputs = weight.size(0);
  g.kernel = weight.size(2);
  g.pooled_height = (g.height - g.kernel + 1) / 2;
  g.pooled_width = (g.width - g.kernel + 1) / 2;
  return g;
}

// Calls `visit(image row, column row)` for each output row of each tap: the pixels in the image that meet this tap of
// the kernel, and their place in `columns` [tap][pixel].
template <typename Image, typename Columns, typename Visit>
void ForEachRow(const Geometry& g, Image* image, Columns* columns, const Visit& visit) {
  const std::int64_t rows = g.rows();
  const std::int64_t step = g.columns();
  for (std::int64_t channel = 0; channel < g.channels; ++channel) {
    for (std::int64_t y = 0; y < g.kernel; ++y) {
      for (std::int64_t x = 0; x < g.kernel; ++x) {
        Image* from = image + (channel * g.height + y) * g.width + x;
        for (std::int64_t row = 0; row < rows; ++row, from += g.width, columns += step) visit(from, columns);
      }
    }
  }
}

// Runs `body` with the row length as a compile-time constant where it is a common one (a copy of known size is a move
// or two, an unknown one a call), else with 0.
template <typename Body>
void WithRowLength(std::int64_t length, const Body& body) {
  switch (length) {
    case 8:
      return body(std::integral_constant<int, 8>());
    case 24:
      return body(std::integral_constant<int, 24>());
    default:
      return body(std::integral_constant<int, 0>());
  }
}

// columns[tap][pixel] = the input that meets this tap of the kernel at this output pixel.
void Unfold(const Geometry& g, const float* image, float* columns) {
  WithRowLength(g.columns(), [&](auto constant) {
    ForEachRow(g, image, columns, [&](const float* from, float* to) {
      std::memcpy(to, from, sizeof(float) * (constant() != 0 ? constant() : g.columns()));
    });
  });
}

// The transpose of Unfold: adds each column value to the input that it came from.
void Fold(const Geometry& g, const float* columns, float* image) {
  WithRowLength(g.columns(), [&](auto constant) {
    ForEachRow(g, image, columns, [&](float* __restrict to, const float* __restrict from) {
      const std::int64_t length = constant() != 0 ? constant() : g.columns();
      for (std::int64_t i = 0; i < length; ++i) to[i] += from[i];
    });
  });
}

// products [O][rows][columns] -> pooled [O][rows / 2][columns / 2], and which activations are positive. Leaves the
// activations in `products`. Loops that mix bytes and floats run over a whole plane: a row is shorter than a vector.
DOWNPOUR_VECTORIZED
void ReluPool(const Geometry& g, const float* __restrict bias, float* __restrict products,
              std::uint8_t* __restrict positive, float* __restrict pooled) {
  const std::int64_t pixels = g.pixels();
  const std::int64_t columns = g.columns();
  for (std::int64_t output = 0; output < g.outputs; ++output) {
    const float b = bias[output];
    for (std::int64_t i = 0; i < pixels; ++i) {
      const float value = products[i] + b;
      positive[i] = value > 0;
      products[i] = value > 0 ? value : 0;
    }
    for (std::int64_t row = 0; row < g.pooled_height; ++row) {
      const float* upper = products + 2 * row * columns;
      const float* lower = upper + columns;
      for (std::int64_t i = 0; i < g.pooled_width; ++i) {
        pooled[i] = 0.25F * (upper[2 * i] + upper[2 * i + 1] + lower[2 * i] + lower[2 * i + 1]);
      }
      pooled += g.pooled_width;
    }
    products += pixels;
    positive += pixels;
  }
}

// The gradient of ReluPool: gradient of pooled -> gradient of the products; their sums are added to that of the bias.
DOWNPOUR_VECTORIZED
void ReluPoolBackward(const Geometry& g, const float* __restrict pooled, const std::uint8_t* __restrict positive,
                      float* __restrict products, float* __restrict bias) {
  constexpr std::int64_t kLanes = 16;
  const std::int64_t pixels = g.pixels();
  const std::int64_t columns = g.columns();
  for (std::int64_t output = 0; output < g.outputs; ++output) {
    for (std::int64_t row = 0; row < g.pooled_height; ++row) {
      float* upper = products + 2 * row * columns;
      float* lower = upper + columns;
      for (std::int64_t i = 0; i < g.pooled_width; ++i) {
        const float share = 0.25F * pooled[i];
        upper[2 * i] = upper[2 * i + 1] = share;
        lower[2 * i] = lower[2 * i + 1] = share;
      }
      pooled += g.pooled_width;
    }
    for (std::int64_t i = 0; i < pixels; ++i) products[i] = positive[i] != 0 ? products[i] : 0;
    float lanes[kLanes] = {};
    std::int64_t i = 0;
    for (; i + kLanes <= pixels; i += kLanes) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += products[i + lane];
    }
    float total = 0;
    for (; i < pixels; ++i) total += products[i];
    for (const float lane : lanes) total += lane;
    bias[output] += total;
    products += pixels;
    positive += pixels;
  }
}

// Splits the batch into one range a thread and calls `body(range index, begin, end)`.
template <typename Body>
void ForEachRange(std::int64_t batch, const Body& body) {
  const std::int64_t ranges = at::get_num_threads();
  const std::int64_t size = (batch + ranges - 1) / ranges;
  at::parallel_for(0, ranges, 1, [&](std::int64_t first, std::int64_t last) {
    const torch::NoGradGuard no_grad;  // thread-local, so not inherited
    for (std::int64_t range = first; range < last; ++range) {
      body(range, std::min(batch, range * size), std::min(batch, (range + 1) * size));
    }
  });
}

class Function : public torch::autograd::Function<Function> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& input, const Tensor& weight,
                        const Tensor& bias) {
    const Geometry g = Check(input, weight, bias);
    Tensor pooled = torch::empty({g.batch, g.outputs, g.pooled_height, g.pooled_width});
    const Tensor positive = torch::empty({g.batch, g.outputs, g.pixels()}, torch::kByte);
    const Tensor matrix = weight.view({g.outputs, g.taps()});
    ForEachRange(g.batch, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
      const Tensor columns = torch::empty({g.taps(), g.pixels()});
      Tensor products = torch::empty({g.outputs, g.pixels()});
      for (std::int64_t sample = begin; sample < end; ++sample) {
        Unfold(g, input.const_data_ptr<float>() + sample * g.image(), columns.data_ptr<float>());
        at::mm_out(products, matrix, columns);
        ReluPool(g, bias.const_data_ptr<float>(), products.data_ptr<float>(),
                 positive.data_ptr<std::uint8_t>() + sample * g.outputs * g.pixels(),
                 pooled.data_ptr<float>() + sample * g.outputs * g.pixels() / 4);
      }
    });
    context->save_for_backward({input, weight, bias, positive});
    return pooled;
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    const torch::autograd::tensor_list saved = context->get_saved_variables();
    const Tensor &input = saved[0], &weight = saved[1], &bias = saved[2], &positive = saved[3];
    const Geometry g = Check(input, weight, bias);
    const Tensor pooled = gradients[0].contiguous();
    const Tensor transposed = weight.detach().view({g.outputs, g.taps()}).t();
    const bool wants_input = context->needs_input_grad(0);
    Tensor input_gradient = wants_input ? torch::zeros_like(input) : Tensor();
    // A partial sum a range, added in order: the result does not depend on which thread was first.
    const Tensor weight_sums = torch::zeros({at::get_num_threads(), g.outputs, g.taps()});
    const Tensor bias_sums = torch::zeros({at::get_num_threads(), g.outputs});
    ForEachRange(g.batch, [&](std::int64_t range, std::int64_t begin, std::int64_t end) {
      const Tensor columns = torch::empty({g.taps(), g.pixels()});
      const Tensor columns_transposed = columns.t();
      Tensor column_gradient = torch::empty({g.taps(), g.pixels()});
      const Tensor products = torch::empty({g.outputs, g.pixels()});
      Tensor weight_sum = weight_sums[range];
      for (std::int64_t sample = begin; sample < end; ++sample) {
        ReluPoolBackward(g, pooled.const_data_ptr<float>() + sample * g.outputs * g.pixels() / 4,
                         positive.const_data_ptr<std::uint8_t>() + sample * g.outputs * g.pixels(),
                         products.data_ptr<float>(), bias_sums.data_ptr<float>() + range * g.outputs);
        Unfold(g, input.const_data_ptr<float>() + sample * g.image(), columns.data_ptr<float>());
        weight_sum.addmm_(products, columns_transposed);
        if (!wants_input) continue;
        at::mm_out(column_gradient, transposed, products);
        Fold(g, column_gradient.const_data_ptr<float>(), input_gradient.data_ptr<float>() + sample * g.image());
      }
    });
    return {input_gradient, weight_sums.sum(0).view(weight.sizes()), bias_sums.sum(0)};
  }
};

}  // namespace

torch::Tensor PooledConvolution(const torch::Tensor& input, const torch::Tensor& weight, const torch::Tensor& bias) {
  return Function::apply(input, weight, bias);
}

}  // namespace downpour::model
