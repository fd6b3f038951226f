// How fast the kernels for GPUs are (trainer/cuda), against what the device copies within its memory: one JSON object a
// line. GB/s count what a kernel must read and write once, 10^9 bytes; the copy reads and writes too. Each figure is
// the median of five measurements, each of as many launches as take about 20 ms.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "trainer/core/codec/codec.h"
#include "trainer/core/codec/top_k.h"
#include "trainer/cuda/device_kernels.h"
#include "trainer/cuda/optimizer_step.h"
#include "trainer/cuda/plugin.h"

namespace downpour::bench {
namespace {

using core::FrameCodec;
using cuda::DeviceKernels;

constexpr double kTopK = 0.01;
constexpr std::size_t kTensors = 64;
constexpr int kMeasurements = 5;
constexpr double kMeasuredMilliseconds = 20;

// Ends the program: there is nothing to measure then.
void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "kernels_bench: %s\n", std::string(status.message()).c_str());
  std::exit(1);
}

class Memory {
 public:
  Memory(DeviceKernels& kernels, std::size_t bytes) : kernels_(kernels) {
    absl::StatusOr<void*> memory = kernels.Allocate(bytes);
    Must(memory.status());
    memory_ = *memory;
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { kernels_.Free(memory_); }
  template <typename T = void>
  T* as() const {
    return static_cast<T*>(memory_);
  }

 private:
  DeviceKernels& kernels_;
  void* memory_ = nullptr;
};

class Stopwatch {
 public:
  explicit Stopwatch(const cuda::PluginTable& table) : table_(table) {
    Check(table_.create_event(&begin_, 1));
    Check(table_.create_event(&end_, 1));
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() {
    (void)table_.destroy_event(begin_);
    (void)table_.destroy_event(end_);
  }

  // Milliseconds of one of them.
  double Median(absl::FunctionRef<absl::Status()> work) const {
    const double first = std::min(Once(work, 1), Once(work, 3));  // the first of all loads the kernel
    const int repetitions = static_cast<int>(std::clamp(kMeasuredMilliseconds / std::max(first, 1e-6), 1.0, 2000.0));
    std::vector<double> measured;
    for (int i = 0; i < kMeasurements; ++i) measured.push_back(Once(work, repetitions));
    std::nth_element(measured.begin(), measured.begin() + kMeasurements / 2, measured.end());
    return measured[kMeasurements / 2];
  }

 private:
  void Check(int error) const { Must(cuda::StatusOf(table_, error, "measuring")); }
  double Once(absl::FunctionRef<absl::Status()> work, int repetitions) const {
    Check(table_.record_event(begin_, nullptr));
    for (int i = 0; i < repetitions; ++i) Must(work());
    Check(table_.record_event(end_, nullptr));
    Check(table_.synchronize(nullptr));
    float milliseconds = 0;
    Check(table_.elapsed_ms(&milliseconds, begin_, end_));
    return double{milliseconds} / repetitions;
  }

  const cuda::PluginTable& table_;
  void* begin_ = nullptr;
  void* end_ = nullptr;
};

struct Buffers {
  Buffers(DeviceKernels& kernels, std::size_t elements)
      : a(kernels, elements * sizeof(float)),
        b(kernels, elements * sizeof(float)),
        c(kernels, elements * sizeof(float)),
        d(kernels, elements * sizeof(float)) {}
  Memory a, b, c, d;
};

// Of many magnitudes, as gradients are: a sequence that repeats itself.
void Fill(DeviceKernels& kernels, const Memory& memory, std::size_t elements, bool squares = false) {
  std::vector<float> values(std::min<std::size_t>(elements, 1 << 20));
  std::uint64_t state = 1;
  for (float& value : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto uniform = static_cast<float>(static_cast<std::int32_t>(state >> 32)) * 0x1p-31f;
    value = uniform * uniform * (squares ? 1e-4f : uniform * 1e-2f);
  }
  for (std::size_t at = 0; at < elements; at += values.size()) {
    const std::size_t count = std::min(values.size(), elements - at);
    Must(kernels.Copy(memory.as<float>() + at, values.data(), count * sizeof(float)));
  }
  Must(kernels.Finish());
}

class Bench {
 public:
  Bench(const cuda::PluginTable& table, DeviceKernels& kernels, std::size_t elements)
      : kernels_(kernels), elements_(elements), stopwatch_(table), buffers_(kernels, elements) {
    for (const Memory* memory : {&buffers_.a, &buffers_.b, &buffers_.c}) Fill(kernels, *memory, elements);
    Fill(kernels, buffers_.d, elements, /*squares=*/true);
  }

  void Run() {
    const std::size_t bytes = elements_ * sizeof(float);
    Report("copy", 2 * bytes, [&] { return kernels_.Copy(buffers_.b.as(), buffers_.a.as(), bytes); });
    Fill(kernels_, buffers_.b, elements_);
    for (const auto& [name, codec] : {std::pair("fp32", FrameCodec::kFp32), std::pair("bf16", FrameCodec::kBf16),
                                      std::pair("int8", FrameCodec::kInt8), std::pair("topK", FrameCodec::kTopK),
                                      std::pair("oneBit", FrameCodec::kOneBit)}) {
      Encode(name, codec);
    }
    for (const v1::OptimizerType type : {v1::SGD, v1::MOMENTUM, v1::NESTEROV, v1::ADAM, v1::ADAM_W}) Step(type);
  }

 private:
  void Encode(const char* name, FrameCodec codec) {
    const std::size_t encoded = core::EncodedBytes(codec, kTopK, elements_);
    const Memory bytes(kernels_, encoded);
    const Memory scratch(kernels_, kernels_.ScratchBytes(codec, elements_));
    const Memory checks(kernels_, sizeof(cuda::GradientChecks));
    const cuda::EncodeArguments arguments = {.gradient = buffers_.a.as<float>(),
                                             .residual = buffers_.b.as<float>(),
                                             .next = buffers_.c.as<float>(),
                                             .bytes = bytes.as<std::uint8_t>(),
                                             .elements = elements_,
                                             .kept = core::TopKCount(kTopK, elements_),
                                             .scratch = scratch.as(),
                                             .checks = checks.as<cuda::GradientChecks>()};
    Report(name, 3 * elements_ * sizeof(float) + encoded, [&] { return kernels_.Encode(codec, arguments); });
  }

  void Step(v1::OptimizerType type) {
    v1::OptimizerConfig config;
    config.set_type(type);
    config.set_momentum(0.9);
    config.set_beta1(0.9);
    config.set_beta2(0.999);
    config.set_epsilon(1e-8);
    absl::StatusOr<cuda::OptimizerStep> step = cuda::OptimizerStep::Create(config);
    Must(step.status());
    const cuda::StepCoefficients coefficients = step->Next(1e-3, 1);
    std::vector<cuda::StepTensor> tensors;
    const std::size_t part = (elements_ + kTensors - 1) / kTensors;
    for (std::size_t at = 0; at < elements_; at += part) {
      cuda::StepTensor& tensor = tensors.emplace_back();
      tensor = {buffers_.a.as<float>() + at,
                buffers_.b.as<float>() + at,
                buffers_.a.as<float>() + at,
                buffers_.c.as<float>() + at,
                buffers_.d.as<float>() + at,
                std::min(part, elements_ - at),
                0,
                0};
      step->SetDecay(0.01, &tensor);
    }
    // The value, the gradient, the new value; each vector read and written.
    const std::size_t bytes = (3 + 2 * static_cast<std::size_t>(step->vectors())) * elements_ * sizeof(float);
    Report(v1::OptimizerType_Name(type), bytes, [&] { return kernels_.Step(coefficients, tensors); });
  }

  void Report(const std::string& name, std::size_t bytes, absl::FunctionRef<absl::Status()> work) {
    const double milliseconds = stopwatch_.Median(work);
    const double rate = static_cast<double>(bytes) / milliseconds / 1e6;
    if (name == "copy") copy_rate_ = rate;
    std::puts(nlohmann::json{{"kernel", name},
                             {"elements", elements_},
                             {"microseconds", milliseconds * 1e3},
                             {"gbPerSecond", rate},
                             {"ofCopy", rate / copy_rate_}}
                  .dump()
                  .c_str());
    std::fflush(stdout);
  }

  DeviceKernels& kernels_;
  const std::size_t elements_;
  const Stopwatch stopwatch_;
  const Buffers buffers_;
  double copy_rate_ = 0;
};

}  // namespace
}  // namespace downpour::bench

int main(int argc, char** argv) {
  using namespace downpour;  // NOLINT(google-build-using-namespace)
  CLI::App app("Measures the kernels for GPUs");
  std::string path = cuda::PluginPath();
  int device = 0;
  // A slice, which stays in a large GPU's cache, and what does not.
  std::vector<std::size_t> elements = {std::size_t{1} << 20, std::size_t{1} << 26};
  app.add_option("--plugin", path, "the library of kernels")->capture_default_str();
  app.add_option("--device", device, "the number of the GPU")->capture_default_str();
  app.add_option("--elements", elements, "values a gradient has; each in turn")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 30))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  const absl::StatusOr<const cuda::PluginTable*> table = cuda::LoadPlugin(path);
  bench::Must(table.status());
  absl::StatusOr<std::unique_ptr<cuda::DeviceKernels>> kernels = cuda::MakePluginKernels(**table, device, nullptr);
  bench::Must(kernels.status());
  for (const std::size_t count : elements) bench::Bench(**table, **kernels, count).Run();
  return 0;
}
