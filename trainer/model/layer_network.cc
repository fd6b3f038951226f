#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/functional/pooling.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/utils/rnn.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "trainer/model/network.h"
#include "trainer/model/pooled_convolution.h"

namespace downpour::model {
namespace {

using torch::Tensor;

constexpr std::int64_t kMaxFusedKernel = 7;  // beyond it the columns of a sample leave the cache

template <typename Options>
void SetPadding(const Layer& layer, Options* options) {
  if (layer.integer("padding") == kSame) {
    options->padding(torch::kSame);
  } else {
    options->padding(layer.integer("padding"));
  }
}

// True at the positions that a sequence has: [N, T]. Undefined where all have all.
Tensor RealPositions(const Flow& flow) {
  if (!flow.lengths.defined()) return {};
  const Tensor positions = at::arange(flow.value.size(1), flow.value.device());
  return positions.unsqueeze(0).lt(flow.lengths.to(flow.value.device()).unsqueeze(1));
}

// Weights of its own at every position (Dean et al. 2012, section 5, "locally connected").
class LocallyConnected final : public torch::nn::Module {
 public:
  explicit LocallyConnected(const Layer& layer) : kernel_(layer.integer("kernel")), stride_(layer.integer("stride")) {
    const std::vector<std::int64_t>& out = layer.output.shape;
    weight_ =
        register_parameter("weight", torch::empty({out[1] * out[2], out[0], layer.input.shape[0] * kernel_ * kernel_}));
    bias_ = register_parameter("bias", torch::empty(out));
  }

  Tensor Forward(const Tensor& input) const {
    const Tensor columns = at::im2col(input, {kernel_, kernel_}, {1, 1}, {0, 0}, {stride_, stride_});  // [N, CKK, L]
    const Tensor products = at::bmm(weight_, columns.permute({2, 1, 0}));                              // [L, F, N]
    return products.permute({2, 1, 0}).reshape({input.size(0), bias_.size(0), bias_.size(1), bias_.size(2)}) + bias_;
  }

 private:
  const std::int64_t kernel_, stride_;
  Tensor weight_, bias_;
};

// Ioffe and Szegedy 2015. LibTorch's module refuses a batch of one vector, which the end of an epoch may be: it has no
// variance, so it is normalised by the running statistics and leaves them.
class BatchNorm final : public torch::nn::Module {
 public:
  explicit BatchNorm(const Layer& layer)
      : momentum_(layer.numbers.at("momentum")), epsilon_(layer.numbers.at("epsilon")) {
    const std::int64_t channels = layer.input.shape[0];
    weight_ = register_parameter("weight", torch::ones({channels}));
    bias_ = register_parameter("bias", torch::zeros({channels}));
    mean_ = register_buffer("running_mean", torch::zeros({channels}));
    variance_ = register_buffer("running_var", torch::ones({channels}));
  }

  Tensor Forward(const Tensor& input) const {
    const bool by_batch = is_training() && input.numel() > input.size(1);
    return at::batch_norm(input, weight_, bias_, mean_, variance_, by_batch, momentum_, epsilon_, false);
  }

 private:
  const double momentum_, epsilon_;
  Tensor weight_, bias_, mean_, variance_;
};

// Multi-head self-attention (Vaswani et al. 2017, section 3.2.2); no position looks at padding.
class SelfAttention final : public torch::nn::Module {
 public:
  explicit SelfAttention(const Layer& layer) : heads_(layer.integer("heads")), dropout_(layer.numbers.at("dropout")) {
    const std::int64_t features = layer.input.shape[1];
    in_ = register_module("in_proj", torch::nn::Linear(features, 3 * features));
    out_ = register_module("out_proj", torch::nn::Linear(features, features));
  }

  Tensor Forward(const Flow& flow) {
    const std::int64_t samples = flow.value.size(0), length = flow.value.size(1), features = flow.value.size(2);
    const std::vector<Tensor> parts = in_->forward(flow.value)
                                          .view({samples, length, 3, heads_, features / heads_})
                                          .permute({2, 0, 3, 1, 4})
                                          .unbind(0);
    std::optional<Tensor> mask;
    if (const Tensor real = RealPositions(flow); real.defined()) mask = real.view({samples, 1, 1, length});
    const Tensor attended =
        at::scaled_dot_product_attention(parts[0], parts[1], parts[2], mask, is_training() ? dropout_ : 0.0, false);
    return out_->forward(attended.transpose(1, 2).reshape({samples, length, features}));
  }

 private:
  const std::int64_t heads_;
  const double dropout_;
  torch::nn::Linear in_{nullptr}, out_{nullptr};
};

// LSTM and GRU alike; in both directions the outputs lie side by side.
template <typename Holder, typename Options>
class Recurrent final : public torch::nn::Module {
 public:
  explicit Recurrent(const Layer& layer) : sequence_(layer.integer("output") != 0) {
    inner_ = Holder(Options(layer.input.shape[1], layer.integer("units"))
                        .batch_first(true)
                        .bidirectional(layer.integer("bidirectional") != 0));
    for (auto& named : inner_->named_parameters()) register_parameter(named.key(), named.value());
  }

  Tensor Forward(const Flow& flow) {
    namespace rnn = torch::nn::utils::rnn;
    const std::int64_t samples = flow.value.size(0), length = flow.value.size(1);
    const Tensor lengths = flow.lengths.defined() ? flow.lengths.clamp_min(1) : at::full({samples}, length, at::kLong);
    const auto packed = rnn::pack_padded_sequence(flow.value, lengths, /*batch_first=*/true, /*enforce_sorted=*/false);
    const auto [output, state] = inner_->forward_with_packed_input(packed);
    if (sequence_) return std::get<0>(rnn::pad_packed_sequence(output, /*batch_first=*/true, 0.0, length));
    const Tensor last = Last(state);  // [directions, N, units]
    return last.transpose(0, 1).reshape({samples, -1});
  }

 private:
  static Tensor Last(const Tensor& state) { return state; }
  static Tensor Last(const std::tuple<Tensor, Tensor>& state) { return std::get<0>(state); }

  const bool sequence_;
  Holder inner_{nullptr};
};

// Subtractive and divisive over a window of all channels (Jarrett et al. 2009, section 2.1, with a window of equal
// weights): no value is divided by less than the mean deviation of its sample.
Tensor LocalContrastNorm(const Tensor& input, std::int64_t kernel) {
  const auto local_mean = [kernel](const Tensor& of) {
    return at::avg_pool2d(of.mean(1, true), kernel, 1, kernel / 2, false, /*count_include_pad=*/false);
  };
  const Tensor centred = input - local_mean(input);
  const Tensor deviation = (local_mean(centred.square()) + 1e-8).sqrt();
  return centred / at::maximum(deviation, deviation.mean({1, 2, 3}, true));
}

// Sines and cosines of the position (Vaswani et al. 2017, section 3.5).
Tensor PositionalEncoding(std::int64_t length, std::int64_t features, const at::TensorOptions& options) {
  const Tensor positions = at::arange(length, at::kFloat).unsqueeze(1);
  const Tensor column = at::arange(features, at::kFloat);
  const Tensor pair = at::floor(column / 2) * 2;
  const Tensor angles = positions * at::exp(pair * (-std::log(10000.0) / static_cast<double>(features)));
  return at::where(column.remainder(2).eq(0).unsqueeze(0), angles.sin(), angles.cos()).to(options);
}

class LayerNetwork final : public Network, public torch::nn::Module {
 public:
  LayerNetwork(const LayerPlan& plan, const data::Field& input, std::uint64_t seed) : used_shape_(input.shape) {
    steps_ = Build(plan.layers);
    if (input.shape.size() == 3 && !input.ragged()) TrimInput(plan.layers);
    Initialize(seed);
  }

  std::vector<NamedTensor> Parameters() const override { return Named(named_parameters()); }
  std::vector<NamedTensor> Buffers() const override { return Named(named_buffers()); }
  void Train(bool on) override { train(on); }
  void To(torch::Device device) override { to(device); }
  const std::vector<std::int64_t>& used_shape() const override { return used_shape_; }
  bool has_convolutions() const override { return has_convolutions_; }
  bool can_fuse() const override { return can_fuse_; }
  bool draws() const override { return draws_; }
  bool TellUse(const std::function<void(const std::string&)>& use) override {
    use_ = use;
    return true;
  }

  Tensor Forward(const Flow& samples, bool fused) override {
    fused_ = fused;
    return Apply(steps_, samples).value;
  }

 private:
  using Step = std::function<Tensor(const Flow&)>;

  // Stands for itself, or for three layers at once where the layout is fused.
  struct BuiltLayer {
    Step step;
    Step fused;
    bool ends_sequence = false;
    std::string uses;  // the tensors of the layer of this name; empty: it has none
  };

  Flow Apply(const std::vector<BuiltLayer>& steps, Flow flow) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const BuiltLayer& built = steps[i];
      if (use_ && !built.uses.empty()) use_(built.uses);
      if (fused_ && built.fused) {
        flow.value = built.fused(flow);
        i += 2;
        continue;
      }
      flow.value = built.step(flow);
      if (built.ends_sequence) flow.lengths = Tensor();
    }
    return flow;
  }

  std::vector<BuiltLayer> Build(const std::vector<Layer>& layers) {
    std::vector<BuiltLayer> steps;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const Layer& layer = layers[i];
      const bool after_products = i > 0 && (layers[i - 1].type == "dense" || layers[i - 1].type.starts_with("conv"));
      BuiltLayer built;
      built.step = MakeStep(layer, after_products);
      if (types_.contains(layer.name)) built.uses = layer.name;
      built.ends_sequence = layer.input.shape.size() > layer.output.shape.size();
      steps.push_back(std::move(built));
    }
    for (std::size_t i = 0; i + 2 < layers.size(); ++i) {
      if (!Fusible(layers[i], layers[i + 1], layers[i + 2])) continue;
      auto conv = std::dynamic_pointer_cast<torch::nn::Conv2dImpl>(named_children()[layers[i].name]);
      steps[i].fused = [conv](const Flow& flow) { return PooledConvolution(flow.value, conv->weight, conv->bias); };
      can_fuse_ = true;
    }
    return steps;
  }

  static bool Fusible(const Layer& conv, const Layer& relu, const Layer& pool) {
    return conv.type == "conv2d" && conv.integer("stride") == 1 && conv.integer("padding") == 0 &&
           conv.integer("bias") != 0 && conv.integer("kernel") <= kMaxFusedKernel && relu.type == "relu" &&
           pool.type == "avgPool2d" && pool.integer("size") == 2 && pool.integer("stride") == 2 &&
           pool.integer("padding") == 0;
  }

  template <typename Module>
  auto Register(const Layer& layer, std::shared_ptr<Module> module) {
    types_[layer.name] = layer.type;
    return register_module(layer.name, std::move(module));
  }

  Step MakeStep(const Layer& layer, bool in_place) {
    const std::string& type = layer.type;
    const auto number = [&layer](const char* field) { return layer.numbers.at(field); };
    const auto integer = [&layer](const char* field) { return layer.integer(field); };
    const std::vector<std::int64_t>& in = layer.input.shape;
    if (type == "dense") {
      auto module = Register(layer, std::make_shared<torch::nn::LinearImpl>(in.back(), integer("units")));
      return [module](const Flow& flow) { return module->forward(flow.value); };
    }
    if (type == "conv2d") {
      has_convolutions_ = true;
      torch::nn::Conv2dOptions options(in[0], integer("filters"), integer("kernel"));
      options.stride(integer("stride")).bias(integer("bias") != 0);
      SetPadding(layer, &options);
      auto module = Register(layer, std::make_shared<torch::nn::Conv2dImpl>(options));
      return [module](const Flow& flow) { return module->forward(flow.value); };
    }
    if (type == "conv1d") {
      torch::nn::Conv1dOptions options(in[0], integer("filters"), integer("kernel"));
      options.stride(integer("stride"));
      SetPadding(layer, &options);
      auto module = Register(layer, std::make_shared<torch::nn::Conv1dImpl>(options));
      return [module](const Flow& flow) { return module->forward(flow.value); };
    }
    if (type == "convTranspose2d") {
      has_convolutions_ = true;
      auto module = Register(layer, std::make_shared<torch::nn::ConvTranspose2dImpl>(
                                        torch::nn::ConvTranspose2dOptions(in[0], integer("filters"), integer("kernel"))
                                            .stride(integer("stride"))));
      return [module](const Flow& flow) { return module->forward(flow.value); };
    }
    if (type == "locallyConnected2d") {
      auto module = Register(layer, std::make_shared<LocallyConnected>(layer));
      return [module](const Flow& flow) { return module->Forward(flow.value); };
    }
    if (type == "maxPool1d") {
      return [size = integer("size"), stride = integer("stride")](const Flow& flow) {
        return at::max_pool1d(flow.value, size, stride);
      };
    }
    if (type == "maxPool2d" || type == "avgPool2d" || type == "l2Pool2d") {
      const std::int64_t size = integer("size"), stride = integer("stride"), padding = integer("padding");
      if (type == "maxPool2d") {
        return [=](const Flow& flow) { return at::max_pool2d(flow.value, size, stride, padding); };
      }
      if (type == "avgPool2d") {
        return [=](const Flow& flow) { return at::avg_pool2d(flow.value, size, stride, padding); };
      }
      // The root of the sum of squares (Le et al. 2012, section 3); the constant keeps its gradient finite at zero.
      return [=](const Flow& flow) {
        const double window = static_cast<double>(size * size);
        return (at::avg_pool2d(flow.value.square(), size, stride, padding) * window + 1e-8).sqrt();
      };
    }
    if (type == "globalAvgPool2d") return [](const Flow& flow) { return flow.value.mean({2, 3}); };
    if (type == "localContrastNorm") {
      return [kernel = integer("kernel")](const Flow& flow) { return LocalContrastNorm(flow.value, kernel); };
    }
    if (type == "upsample2d") {
      return [height = layer.output.shape[1], width = layer.output.shape[2]](const Flow& flow) {
        return at::upsample_nearest2d(flow.value, {height, width});
      };
    }
    if (type == "batchNorm") {
      auto module = Register(layer, std::make_shared<BatchNorm>(layer));
      return [module](const Flow& flow) { return module->Forward(flow.value); };
    }
    if (type == "layerNorm") {
      auto module = Register(layer, std::make_shared<torch::nn::LayerNormImpl>(
                                        torch::nn::LayerNormOptions({in.back()}).eps(number("epsilon"))));
      return [module](const Flow& flow) { return module->forward(flow.value); };
    }
    if (type == "dropout") {
      draws_ = true;
      return [this, rate = number("rate")](const Flow& flow) { return at::dropout(flow.value, rate, is_training()); };
    }
    if (type == "flatten") return [](const Flow& flow) { return flow.value.flatten(1); };
    if (type == "reshape") {
      std::vector<std::int64_t> shape = layer.output.shape;
      shape.insert(shape.begin(), -1);
      return [shape](const Flow& flow) { return flow.value.reshape(shape); };
    }
    if (type == "relu") {
      // What a convolution or a product made nobody else reads.
      if (in_place) return [](const Flow& flow) { return Tensor(flow.value).relu_(); };
      return [](const Flow& flow) { return flow.value.relu(); };
    }
    if (type == "leakyRelu") {
      return [slope = number("slope")](const Flow& flow) { return at::leaky_relu(flow.value, slope); };
    }
    if (type == "elu") return [alpha = number("alpha")](const Flow& flow) { return at::elu(flow.value, alpha); };
    if (type == "tanh") return [](const Flow& flow) { return flow.value.tanh(); };
    if (type == "sigmoid") return [](const Flow& flow) { return flow.value.sigmoid(); };
    if (type == "gelu") return [](const Flow& flow) { return at::gelu(flow.value); };
    if (type == "embedding") {
      auto module = Register(layer, std::make_shared<torch::nn::EmbeddingImpl>(integer("vocabulary"), integer("size")));
      return [module](const Flow& flow) { return module->forward(flow.value); };
    }
    if (type == "positionalEncoding") {
      return [](const Flow& flow) {
        return flow.value + PositionalEncoding(flow.value.size(1), flow.value.size(2), flow.value.options());
      };
    }
    if (type == "lstm") {
      auto module = Register(layer, std::make_shared<Recurrent<torch::nn::LSTM, torch::nn::LSTMOptions>>(layer));
      return [module](const Flow& flow) { return module->Forward(flow); };
    }
    if (type == "gru") {
      auto module = Register(layer, std::make_shared<Recurrent<torch::nn::GRU, torch::nn::GRUOptions>>(layer));
      return [module](const Flow& flow) { return module->Forward(flow); };
    }
    if (type == "attention") {
      draws_ = true;
      auto module = Register(layer, std::make_shared<SelfAttention>(layer));
      return [module](const Flow& flow) { return module->Forward(flow); };
    }
    if (type == "sequenceMean") {
      return [](const Flow& flow) {
        const Tensor real = RealPositions(flow);
        if (!real.defined()) return flow.value.mean(1);
        const Tensor weights = real.to(flow.value.scalar_type()).unsqueeze(2);
        return (flow.value * weights).sum(1) / weights.sum(1).clamp_min(1);
      };
    }
    if (type == "residual") {
      return [this, inner = Build(layer.layers), around = Build(layer.shortcut)](const Flow& flow) {
        return Apply(around, flow).value + Apply(inner, flow).value;
      };
    }
    if (type == "concatenate") {
      return [this, inner = Build(layer.layers)](const Flow& flow) {
        return at::cat({flow.value, Apply(inner, flow).value}, 1);
      };
    }
    TORCH_CHECK(false, "layer ", layer.name, ": ", type, " is planned but not built");
  }

  // How much of the image the leading convolutions and poolings without padding look at.
  void TrimInput(const std::vector<Layer>& layers) {
    const auto keeps_positions = [](const Layer& layer) {
      return layer.type == "relu" || layer.type == "leakyRelu" || layer.type == "elu" || layer.type == "tanh" ||
             layer.type == "sigmoid" || layer.type == "gelu";
    };
    const auto window = [](const Layer& layer) -> const char* {
      const bool padded = layer.integers.contains("padding") && layer.integer("padding") != 0;
      if (padded) return nullptr;
      if (layer.type == "conv2d") return "kernel";
      return layer.type.ends_with("Pool2d") && layer.type != "globalAvgPool2d" ? "size" : nullptr;
    };
    std::size_t end = 0;
    while (end < layers.size() && (keeps_positions(layers[end]) || window(layers[end]) != nullptr)) ++end;
    if (end == 0) return;
    for (const std::size_t axis : {1, 2}) {
      std::int64_t used = layers[end - 1].output.shape[axis];
      for (std::size_t i = end; i-- > 0;) {
        if (const char* size = window(layers[i]); size != nullptr) {
          used = (used - 1) * layers[i].integer("stride") + layers[i].integer(size);
        }
      }
      used_shape_[axis] = used;
    }
  }

  // Matrices and kernels by Kaiming's uniform rule for ReLU (He et al. 2015, eq. 10), biases zero, the weights of
  // normalisations one, embeddings normal, recurrent layers uniform in +-1/sqrt(units) as LibTorch does. The values
  // come from a generator of our own, so nothing else in the process has a part in them.
  void Initialize(std::uint64_t seed) {
    const torch::NoGradGuard no_grad;
    const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    for (auto& named : named_parameters()) {
      Tensor& parameter = named.value();
      const std::string layer = named.key().substr(0, named.key().find('.'));
      const std::string& type = types_.at(layer);
      if (type == "lstm" || type == "gru") {
        const double gates = type == "lstm" ? 4 : 3;
        const double bound = 1 / std::sqrt(static_cast<double>(parameter.size(0)) / gates);
        parameter.uniform_(-bound, bound, generator);
      } else if (type == "embedding") {
        parameter.normal_(0, 1, generator);
      } else if (parameter.dim() < 2 || named.key().ends_with(".bias")) {
        const bool scale = (type == "batchNorm" || type == "layerNorm") && named.key().ends_with(".weight");
        parameter.fill_(scale ? 1 : 0);
      } else {
        const std::int64_t fan_in =
            type == "locallyConnected2d" ? parameter.size(2) : parameter.numel() / parameter.size(0);
        const double bound = std::sqrt(6.0 / static_cast<double>(fan_in));
        parameter.uniform_(-bound, bound, generator);
      }
    }
  }

  std::vector<std::int64_t> used_shape_;
  bool has_convolutions_ = false;
  bool can_fuse_ = false;
  bool draws_ = false;
  bool fused_ = false;
  std::map<std::string, std::string> types_;  // of the layers with parameters, by name
  std::vector<BuiltLayer> steps_;
  std::function<void(const std::string&)> use_;
};

}  // namespace

std::shared_ptr<Network> MakeLayerNetwork(const LayerPlan& plan, const data::Field& input, std::uint64_t seed) {
  return std::make_shared<LayerNetwork>(plan, input, seed);
}

}  // namespace downpour::model
