// What the benchmark compares with: one LibTorch process on all cores, plain SGD, written directly against LibTorch the
// way its documentation teaches, with the memory layout and thread count that are fastest on this machine. Nothing of
// ours is in it but the reader of idx files.
#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
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
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trainer/data/dataset.h"

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

// Shuffled batches, endlessly: the next one is read on a thread of its own while the present one is computed on.
class Loader {
 public:
  struct Batch {
    std::vector<float> samples;
    std::vector<std::int64_t> labels;
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
    const downpour::data::Batch read = dataset_.Read({order_.data() + next_, batch_});
    const absl::Span<const std::uint8_t> pixels = read.inputs[0].values<std::uint8_t>();
    const absl::Span<const std::int64_t> labels = read.targets[0].values<std::int64_t>();
    batch.samples.resize(pixels.size());
    std::transform(pixels.begin(), pixels.end(), batch.samples.begin(), [](std::uint8_t p) { return p / 255.0F; });
    batch.labels.assign(labels.begin(), labels.end());
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
  Trainer(const std::string& model, std::int64_t batch, Loader& loader, Setting setting)
      : batch_(batch), loader_(loader), setting_(setting) {
    at::set_num_threads(setting.threads);
    torch::manual_seed(1);
    if (model == "LeNet") {
      net_ = std::make_shared<LeNet>();
    } else {
      net_ = std::make_shared<Mlp>();
    }
    if (setting.channels_last) {
      for (Tensor& parameter : net_->parameters()) {
        if (parameter.dim() == 4) parameter.set_data(parameter.detach().contiguous(at::MemoryFormat::ChannelsLast));
      }
    }
    optimizer_ = std::make_unique<torch::optim::SGD>(net_->parameters(), torch::optim::SGDOptions(0.1));
  }

  void Step() {
    loader_.Next(current_);
    // One channel: row-major and channels_last are the same bytes, only the strides tell LibTorch which one is meant.
    const std::vector<std::int64_t> strides =
        setting_.channels_last ? std::vector<std::int64_t>{784, 1, 28, 1} : std::vector<std::int64_t>{784, 784, 28, 1};
    const Tensor samples = torch::from_blob(current_.samples.data(), {batch_, 1, 28, 28}, strides);
    const Tensor labels = torch::from_blob(current_.labels.data(), {batch_}, torch::kLong);
    optimizer_->zero_grad();
    torch::nn::functional::cross_entropy(net_->forward(samples), labels).backward();
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
  const std::int64_t batch_;
  Loader& loader_;
  const Setting setting_;
  std::shared_ptr<Net> net_;
  std::unique_ptr<torch::optim::SGD> optimizer_;
  Loader::Batch current_;
};

int Run(const std::string& model, std::int64_t batch, double seconds, double probe_seconds,
        const std::string& directory, const std::string& fixed_layout, int fixed_threads) {
  const auto dataset =
      downpour::data::OpenDataset({.format = "IDX", .directory = directory}, downpour::data::Split::kTrain);
  if (!dataset.ok()) {
    std::fprintf(stderr, "reference_trainer: %s\n", std::string(dataset.status().message()).c_str());
    return 2;
  }
  if ((*dataset)->fields().inputs[0].shape != std::vector<std::int64_t>{1, 28, 28} || batch > (*dataset)->size()) {
    std::fprintf(stderr, "reference_trainer: %s: expected at least %lld images of 28x28\n", directory.c_str(),
                 static_cast<long long>(batch));
    return 2;
  }
  at::set_num_interop_threads(1);
  Loader loader(**dataset, batch);

  std::vector<Setting> settings;
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  for (const bool channels_last : {false, true}) {
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
    Trainer trainer(model, batch, loader, setting);
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
  Trainer trainer(model, batch, loader, best);
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
  app.add_option("--model", model)->check(CLI::IsMember({"LeNet", "MLP"}))->capture_default_str();
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
