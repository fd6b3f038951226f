// What the benchmark compares with: one LibTorch process on all cores, plain SGD, written directly against LibTorch the
// way its documentation teaches, with the memory layout and thread count that are fastest on this machine. Nothing of
// ours is in it but the data sets.
#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trainer/data/open_dataset.h"

namespace {

using downpour::data::Dataset;
using torch::Tensor;

struct Net : torch::nn::Module {
  virtual Tensor forward(Tensor samples) = 0;
};

struct LeNet final : Net {
  LeNet() {
    conv1 = register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 20, 3)));
    conv2 = register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(20, 50, 5)));
    fc1 = register_module("fc1", torch::nn::Linear(800, 128));
    fc2 = register_module("fc2", torch::nn::Linear(128, 10));
  }
  Tensor forward(Tensor samples) override {
    Tensor x = torch::avg_pool2d(conv1->forward(samples).relu_(), 2);
    x = torch::avg_pool2d(conv2->forward(x).relu_(), 2);
    return fc2->forward(fc1->forward(x.flatten(1)).relu_());
  }
  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr};
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
};

struct Mlp final : Net {
  Mlp() {
    fc1 = register_module("fc1", torch::nn::Linear(784, 128));
    fc2 = register_module("fc2", torch::nn::Linear(128, 10));
  }
  Tensor forward(Tensor samples) override { return fc2->forward(fc1->forward(samples.flatten(1)).relu_()); }
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
};

// Logistic units, as in DistBelief's acoustic model.
struct Acoustic final : Net {
  Acoustic() {
    for (const std::int64_t inputs : {440, 2560, 2560, 2560}) {
      hidden.push_back(register_module("hidden" + std::to_string(hidden.size()), torch::nn::Linear(inputs, 2560)));
    }
    output = register_module("output", torch::nn::Linear(2560, 8192));
  }
  Tensor forward(Tensor samples) override {
    Tensor x = samples.flatten(1);
    for (torch::nn::Linear& layer : hidden) x = layer->forward(x).sigmoid();
    return output->forward(x);
  }
  std::vector<torch::nn::Linear> hidden;
  torch::nn::Linear output{nullptr};
};

// Four levels, from 64 channels on; the deepest is not doubled.
struct UNet final : Net {
  UNet() {
    static constexpr std::int64_t kDown[] = {12, 64, 128, 256, 512, 512};
    for (int level = 0; level < 5; ++level) {
      down[level] = Twice("down" + std::to_string(level), kDown[level], kDown[level + 1], kDown[level + 1]);
    }
    static constexpr std::int64_t kUp[] = {512, 256, 128, 64, 64};
    for (int level = 0; level < 4; ++level) {
      up[level] = Twice("up" + std::to_string(level), 2 * kUp[level], kUp[level], kUp[level + 1]);
    }
    output = register_module("output", torch::nn::Conv2d(torch::nn::Conv2dOptions(64, 1, 1)));
  }
  torch::nn::Sequential Twice(const std::string& name, std::int64_t inputs, std::int64_t middle, std::int64_t outputs) {
    torch::nn::Sequential layers(torch::nn::Conv2d(torch::nn::Conv2dOptions(inputs, middle, 3).padding(1)),
                                 torch::nn::BatchNorm2d(middle));
    layers->push_back(torch::nn::ReLU(torch::nn::ReLUOptions(true)));
    layers->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(middle, outputs, 3).padding(1)));
    layers->push_back(torch::nn::BatchNorm2d(outputs));
    layers->push_back(torch::nn::ReLU(torch::nn::ReLUOptions(true)));
    return register_module(name, layers);
  }
  Tensor forward(Tensor samples) override {
    Tensor levels[5] = {down[0]->forward(samples)};
    for (int level = 1; level < 5; ++level)
      levels[level] = down[level]->forward(torch::max_pool2d(levels[level - 1], 2));
    Tensor x = levels[4];
    for (int level = 0; level < 4; ++level) {
      const Tensor beside = levels[3 - level];
      x = torch::upsample_nearest2d(x, {beside.size(2), beside.size(3)});
      x = up[level]->forward(torch::cat({beside, x}, 1));
    }
    return output->forward(x);
  }
  torch::nn::Sequential down[5] = {nullptr, nullptr, nullptr, nullptr, nullptr};
  torch::nn::Sequential up[4] = {nullptr, nullptr, nullptr, nullptr};
  torch::nn::Conv2d output{nullptr};
};

std::shared_ptr<Net> MakeNet(const std::string& model) {
  if (model == "LeNet") return std::make_shared<LeNet>();
  if (model == "MLP") return std::make_shared<Mlp>();
  if (model == "Acoustic") return std::make_shared<Acoustic>();
  return std::make_shared<UNet>();
}

downpour::data::DatasetSpec MakeDatasetSpec(const std::string& model, const std::string& directory) {
  downpour::data::DatasetSpec spec;
  spec.format = "IDX";
  spec.directory = directory;
  if (model == "LeNet" || model == "MLP") return spec;
  spec.format = "Synthetic";
  spec.directory.clear();
  spec.synthetic.kind = model == "UNet" ? "Radar" : "Speech";
  return spec;
}

// Shuffled batches, endlessly: the next one is read on a thread of its own while the present one is computed on.
class Loader {
 public:
  struct Batch {
    std::vector<float> samples;
    std::vector<std::int64_t> labels;  // one a sample, or else
    std::vector<float> values;         // what is to be predicted
  };

  Loader(const Dataset& dataset, std::int64_t batch) : dataset_(dataset), batch_(batch), order_(dataset.size()) {
    std::iota(order_.begin(), order_.end(), 0);
    next_ = order_.size();
    thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  }

  // Swaps the ready batch into `batch`, whose memory is used for a later one.
  void Next(Batch& batch) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ready_; });
    std::swap(batch, slot_);
    ready_ = false;
    changed_.notify_all();
  }

 private:
  void Run(const std::stop_token& stop) {
    Batch batch;
    while (true) {
      Fill(batch);
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return !ready_; })) return;
      std::swap(batch, slot_);
      ready_ = true;
      changed_.notify_all();
    }
  }

  void Fill(Batch& batch) {
    if (next_ + batch_ > order_.size()) {
      std::shuffle(order_.begin(), order_.end(), random_);
      next_ = 0;
    }
    const downpour::data::Batch read = dataset_.Read({order_.data() + next_, batch_}, std::nullopt).value();
    if (read.inputs[0].type == downpour::data::ElementType::kU8) {
      const absl::Span<const std::uint8_t> pixels = read.inputs[0].values<std::uint8_t>();
      batch.samples.resize(pixels.size());
      std::transform(pixels.begin(), pixels.end(), batch.samples.begin(), [](std::uint8_t p) { return p / 255.0F; });
    } else {
      const absl::Span<const float> values = read.inputs[0].values<float>();
      batch.samples.assign(values.begin(), values.end());
    }
    if (read.targets[0].type == downpour::data::ElementType::kF32) {
      const absl::Span<const float> values = read.targets[0].values<float>();
      batch.values.assign(values.begin(), values.end());
    } else {
      const absl::Span<const std::int64_t> labels = read.targets[0].values<std::int64_t>();
      batch.labels.assign(labels.begin(), labels.end());
    }
    next_ += batch_;
  }

  const Dataset& dataset_;
  const std::size_t batch_;
  std::vector<std::int64_t> order_;
  std::size_t next_;
  std::mt19937_64 random_{1};
  std::mutex mutex_;
  std::condition_variable_any changed_;
  Batch slot_;
  bool ready_ = false;
  std::jthread thread_;
};

struct Setting {
  bool channels_last;
  int threads;
};

class Trainer {
 public:
  Trainer(const std::string& model, std::int64_t batch, const Dataset& dataset, Loader& loader, Setting setting)
      : batch_(batch),
        input_shape_(WithBatch(dataset.fields().inputs[0], batch)),
        target_shape_(WithBatch(dataset.fields().targets[0], batch)),
        loader_(loader),
        setting_(setting) {
    at::set_num_threads(setting.threads);
    torch::manual_seed(1);
    net_ = MakeNet(model);
    if (setting.channels_last) {
      for (Tensor& parameter : net_->parameters()) {
        if (parameter.dim() == 4) parameter.set_data(parameter.detach().contiguous(at::MemoryFormat::ChannelsLast));
      }
    }
    optimizer_ = std::make_unique<torch::optim::SGD>(net_->parameters(), torch::optim::SGDOptions(0.1));
  }

  void Step() {
    loader_.Next(current_);
    Tensor samples = torch::from_blob(current_.samples.data(), input_shape_);
    if (setting_.channels_last) {
      // With one channel, row-major and channels_last are the same bytes: only the strides tell LibTorch which is
      // meant.
      const std::vector<std::int64_t>& shape = input_shape_;
      samples = torch::empty_strided(shape, {shape[1] * shape[2] * shape[3], 1, shape[1] * shape[3], shape[1]})
                    .copy_(samples);
    }
    optimizer_->zero_grad();
    const Tensor output = net_->forward(samples);
    const Tensor loss =
        current_.values.empty()
            ? torch::nn::functional::cross_entropy(
                  output, torch::from_blob(current_.labels.data(), target_shape_, torch::kLong))
            : torch::nn::functional::mse_loss(output, torch::from_blob(current_.values.data(), target_shape_));
    loss.backward();
    optimizer_->step();
  }

  // Trains for `seconds` and returns samples a second.
  double Run(double seconds) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    double elapsed = 0;
    std::int64_t steps = 0;
    do {
      Step();
      ++steps;
      elapsed = std::chrono::duration<double>(Clock::now() - start).count();
    } while (elapsed < seconds);
    return static_cast<double>(steps * batch_) / elapsed;
  }

 private:
  static std::vector<std::int64_t> WithBatch(const downpour::data::Field& field, std::int64_t batch) {
    std::vector<std::int64_t> shape = field.shape;
    shape.insert(shape.begin(), batch);
    return shape;
  }

  const std::int64_t batch_;
  const std::vector<std::int64_t> input_shape_;
  const std::vector<std::int64_t> target_shape_;
  Loader& loader_;
  const Setting setting_;
  std::shared_ptr<Net> net_;
  std::unique_ptr<torch::optim::SGD> optimizer_;
  Loader::Batch current_;
};

int Run(const std::string& model, std::int64_t batch, double seconds, double probe_seconds,
        const std::string& directory, const std::string& fixed_layout, int fixed_threads) {
  const auto dataset = downpour::data::OpenDataset(MakeDatasetSpec(model, directory), downpour::data::Split::kTrain);
  if (!dataset.ok()) {
    std::fprintf(stderr, "reference_trainer: %s\n", std::string(dataset.status().message()).c_str());
    return 2;
  }
  const bool images = model == "LeNet" || model == "MLP";
  if ((images && (*dataset)->fields().inputs[0].shape != std::vector<std::int64_t>{1, 28, 28}) ||
      batch > (*dataset)->size()) {
    std::fprintf(stderr, "reference_trainer: %s: expected at least %lld images of 28x28\n", directory.c_str(),
                 static_cast<long long>(batch));
    return 2;
  }
  at::set_num_interop_threads(1);
  Loader loader(**dataset, batch);

  std::vector<Setting> settings;
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  for (const bool channels_last : {false, true}) {
    if (channels_last && (*dataset)->fields().inputs[0].shape.size() != 3) continue;
    if (channels_last && model == "MLP") continue;
    if (!fixed_layout.empty() && channels_last != (fixed_layout == "channels_last")) continue;
    for (const int threads : {1, cores}) {
      if (fixed_threads != 0 && threads != (fixed_threads == 1 ? 1 : cores)) continue;
      if (settings.empty() || settings.back().threads != threads || settings.back().channels_last != channels_last) {
        settings.push_back({channels_last, threads});
      }
    }
  }
  nlohmann::json probes = nlohmann::json::array();
  Setting best = settings.front();
  double best_rate = 0;
  for (const Setting& setting : settings) {
    if (settings.size() == 1) break;
    Trainer trainer(model, batch, **dataset, loader, setting);
    trainer.Run(0.25 * probe_seconds);  // warms up
    const double rate = trainer.Run(probe_seconds);
    probes.push_back({{"layout", setting.channels_last ? "channels_last" : "default"},
                      {"threads", setting.threads},
                      {"samplesPerSecond", rate}});
    if (rate > best_rate) {
      best_rate = rate;
      best = setting;
    }
  }
  Trainer trainer(model, batch, **dataset, loader, best);
  trainer.Run(std::min(1.0, 0.2 * seconds));
  const double rate = trainer.Run(seconds);
  const nlohmann::json result = {
      {"samplesPerSecond", rate}, {"layout", best.channels_last ? "channels_last" : "default"},
      {"threads", best.threads},  {"model", model},
      {"batch", batch},           {"probes", probes}};
  std::printf("%s\n", result.dump().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("One LibTorch process that trains as fast as it can: the reference of the benchmarks");
  std::string model = "LeNet";
  std::int64_t batch = 256;
  double seconds = 10;
  double probe_seconds = 1;
  std::string directory = "/usr/share/datasets/fashion-mnist";
  std::string layout;
  int threads = 0;
  app.add_option("--model", model)->check(CLI::IsMember({"LeNet", "MLP", "Acoustic", "UNet"}))->capture_default_str();
  app.add_option("--batch", batch)->check(CLI::Range(1, 60000))->capture_default_str();
  app.add_option("--seconds", seconds, "How long to measure")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--probe-seconds", probe_seconds, "How long to try each layout and thread count")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--dataset", directory)->capture_default_str();
  app.add_option("--layout", layout, "Try only this one")->check(CLI::IsMember({"default", "channels_last"}));
  app.add_option("--threads", threads, "Try only this many: 1, or all cores")->check(CLI::Range(0, 1024));
  CLI11_PARSE(app, argc, argv);
  try {
    return Run(model, batch, seconds, probe_seconds, directory, layout, threads);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "reference_trainer: %s\n", error.what());
    return 1;
  }
}
