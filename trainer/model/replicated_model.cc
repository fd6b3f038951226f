#include "trainer/model/replicated_model.h"

#include <algorithm>
#include <future>
#include <optional>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "trainer/data/random.h"
#include "trainer/model/batch_parts.h"
#include "trainer/model/replica_step.h"
#include "trainer/model/thrown.h"
#include "trainer/model/work_thread.h"

namespace downpour::model {
namespace {

constexpr std::uint64_t kPurpose = 0x6465766963657321u;  // of a replica's seed

// The status of `body`, or kInternal with what was thrown.
template <typename Body>
auto Caught(const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (...) {
    return absl::InternalError(WhatWasThrown());
  }
}

// A model and the thread that it is used on.
class Replica {
 public:
  // The model is destroyed where it was made.
  ~Replica() {
    On([this](Model*) { model_.reset(); });
  }

  absl::Status Create(int number, const CreateReplica& create) {
    return On([&](Model*) -> absl::Status {
      absl::StatusOr<std::unique_ptr<Model>> model = create(number);
      if (!model.ok()) return model.status();
      model_ = *std::move(model);
      changed_.resize(model_->tensors().size());
      return absl::OkStatus();
    });
  }

  // For what does not compute.
  Model& model() const { return *model_; }

  // body(model) on its thread. Throws what that throws.
  template <typename Body>
  auto On(Body body) -> decltype(body(nullptr)) {
    std::packaged_task<decltype(body(nullptr))()> task([&] { return body(model_.get()); });
    auto result = task.get_future();
    thread_.Start([&task] { task(); });
    thread_.Wait();
    return result.get();
  }

  WorkThread& thread() { return thread_; }

  // The next step begins with another value.
  void Change(std::size_t tensor) { changed_[tensor] = true; }
  // On its thread.
  void TakeChanges(const std::vector<std::vector<float>>& values) {
    for (std::size_t tensor = 0; tensor < changed_.size(); ++tensor) {
      if (!changed_[tensor]) continue;
      model_->SetParameter(tensor, values[tensor]);
      changed_[tensor] = false;
    }
  }

 private:
  std::unique_ptr<Model> model_;
  std::vector<bool> changed_;  // by tensor: it has another value now
  WorkThread thread_;
};

// What each replica has of a batch; those behind have nothing.
class Parts {
 public:
  Parts(const data::Batch& batch, std::size_t replicas)
      : batch_(batch), parts_(PartsOf(batch, static_cast<int>(replicas))), weights_(replicas) {
    while (parts_.back().samples == 0) parts_.pop_back();
    double samples = 0;
    for (const BatchPart& part : parts_) samples += static_cast<double>(part.samples);
    for (std::size_t r = 0; r < parts_.size(); ++r) {
      weights_[r] = static_cast<float>(static_cast<double>(parts_[r].samples) / samples);
    }
  }
  std::size_t size() const { return parts_.size(); }
  const std::vector<float>& weights() const { return weights_; }  // of all replicas

  // body(the part of replica r), which is copied unless it is the whole.
  template <typename Body>
  auto With(std::size_t r, const Body& body) const {
    return parts_.size() == 1 ? body(batch_) : body(CopyPart(batch_, parts_[r]));
  }

  double Mean(const std::vector<double>& values) const {
    double sum = 0, samples = 0;
    for (std::size_t r = 0; r < parts_.size(); ++r) {
      sum += values[r] * static_cast<double>(parts_[r].samples);
      samples += static_cast<double>(parts_[r].samples);
    }
    return sum / samples;
  }

 private:
  const data::Batch& batch_;
  std::vector<BatchPart> parts_;
  std::vector<float> weights_;
};

class ReplicatedModel final : public Model {
 public:
  ReplicatedModel(std::vector<std::unique_ptr<Replica>> replicas, std::unique_ptr<GradientSum> sum, std::string suffix)
      : replicas_(std::move(replicas)), suffix_(std::move(suffix)), values_(tensors().size()), sum_(std::move(sum)) {}

  const std::vector<Tensor>& tensors() const override { return first().model().tensors(); }

  std::vector<Frozen> frozen() const override {
    return first().On([](Model* model) { return model->frozen(); });
  }
  void SetFrozen(std::size_t index, absl::Span<const float> values) override {
    for (const auto& replica : replicas_) replica->On([&](Model* model) { model->SetFrozen(index, values); });
  }

  // Each replica takes the value when it computes next, all at once and on threads of their own.
  void SetParameter(std::size_t tensor, absl::Span<const float> values) override {
    values_[tensor].assign(values.begin(), values.end());
    for (const auto& replica : replicas_) replica->Change(tensor);
  }
  void GetParameter(std::size_t tensor, absl::Span<float> values) const override {
    first().On([&](Model* model) {
      first().TakeChanges(values_);
      model->GetParameter(tensor, values);
    });
  }

  absl::StatusOr<StepResult> ComputeGradients(const data::Batch& batch, std::uint64_t update_seed,
                                              const OnLoss& on_loss, const OnGradient& on_gradient) override {
    const Parts parts(batch, replicas_.size());
    std::vector<StepResult> results(parts.size());
    ReplicaStep step(parts.size());
    if (absl::Status begun = sum_->Begin(parts.weights()); !begun.ok()) return begun;
    {
      const auto end = absl::MakeCleanup([&] {
        step.Decide(false);
        for (const auto& replica : replicas_) replica->thread().Wait();
      });
      for (std::size_t r = 0; r < parts.size(); ++r) {
        replicas_[r]->thread().Start([&, r] {
          const absl::StatusOr<StepResult> computed =
              On<StepResult>(r, parts, [&](Model& model, const data::Batch& part) {
                return sum_->Compute(r, model, part, ReplicaSeed(update_seed, r),
                                     [&](double loss) { return step.AwaitDecision(r, loss); });
              });
          if (computed.ok()) results[r] = *computed;
          if (step.End(computed.status()) || !computed.ok()) sum_->End();
        });
      }
      const absl::Status told = Caught([&] {
        const std::optional<std::vector<double>> losses = step.AwaitLosses();
        if (!losses.has_value()) return absl::OkStatus();
        step.Decide(!on_loss || on_loss(parts.Mean(*losses)));
        while (const std::optional<GradientSum::Sum> sum = sum_->Next()) {
          if (on_gradient) on_gradient(sum->tensor, sum->values);
        }
        return absl::OkStatus();
      });
      if (!told.ok()) return told;
    }
    if (absl::Status status = step.status(); !status.ok()) return status;
    StepResult result;
    std::vector<double> losses;
    for (const StepResult& one : results) {
      losses.push_back(one.loss);
      result.forward_seconds = std::max(result.forward_seconds, one.forward_seconds);
      result.backward_seconds = std::max(result.backward_seconds, one.backward_seconds);
    }
    result.loss = parts.Mean(losses);
    return result;
  }

  absl::StatusOr<EvaluationResult> Evaluate(const data::Batch& batch) override {
    const Parts parts(batch, replicas_.size());
    std::vector<absl::StatusOr<EvaluationResult>> results(parts.size());
    for (std::size_t r = 0; r < parts.size(); ++r) {
      replicas_[r]->thread().Start([&, r] {
        results[r] =
            On<EvaluationResult>(r, parts, [](Model& model, const data::Batch& part) { return model.Evaluate(part); });
      });
    }
    for (const auto& replica : replicas_) replica->thread().Wait();
    for (const absl::StatusOr<EvaluationResult>& result : results) {
      if (!result.ok()) return result.status();
    }
    EvaluationResult all = **results.begin();
    for (std::size_t r = 1; r < parts.size(); ++r) {
      Add(results[r]->loss, &all.loss);
      for (std::size_t i = 0; i < all.metrics.size(); ++i) Add(results[r]->metrics[i], &all.metrics[i]);
    }
    return all;
  }

  // Each minibatch is cut on the host.
  absl::StatusOr<bool> TakeData(data::Dataset* /*dataset*/, HoldChoice hold) override {
    if (hold != HoldChoice::kAlways || gpus().empty()) return false;
    return absl::FailedPreconditionError(
        "spec.dataset.onDevice: found Always, expected Auto or Never for a worker of several GPUs");
  }

  std::string description() const override {
    return absl::StrCat(first().model().description(), suffix_, sum_->description());
  }
  std::string without_gpu() const override { return first().model().without_gpu(); }
  int devices() const override { return static_cast<int>(replicas_.size()); }
  std::vector<int> gpus() const override {
    std::vector<int> all;
    for (const auto& replica : replicas_) {
      const std::vector<int> own = replica->model().gpus();
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  }
  DeviceTraffic traffic() const override {
    DeviceTraffic all;
    for (const auto& replica : replicas_) all += replica->model().traffic();
    return all;
  }

 private:
  // On the thread of replica r: what `body` computes of its part with the newest values.
  template <typename Result, typename Body>
  absl::StatusOr<Result> On(std::size_t r, const Parts& parts, const Body& body) {
    absl::StatusOr<Result> result = Caught([&]() -> absl::StatusOr<Result> {
      replicas_[r]->TakeChanges(values_);
      return parts.With(r, [&](const data::Batch& part) { return body(replicas_[r]->model(), part); });
    });
    if (result.ok() || replicas_.size() == 1) return result;
    return absl::Status(result.status().code(), absl::StrCat("device ", r, ": ", result.status().message()));
  }

  static void Add(const Measured& part, Measured* all) {
    all->sum += part.sum;
    all->count += part.count;
  }

  Replica& first() const { return *replicas_.front(); }

  const std::vector<std::unique_ptr<Replica>> replicas_;
  const std::string suffix_;
  std::vector<std::vector<float>> values_;  // by tensor: what the replicas were given last
  const std::unique_ptr<GradientSum> sum_;
};

}  // namespace

std::uint64_t ReplicaSeed(std::uint64_t update_seed, std::size_t replica) {
  return replica == 0 ? update_seed : data::Random(update_seed, kPurpose, replica).Next();
}

absl::StatusOr<std::unique_ptr<Model>> CreateReplicatedModel(const ReplicaOptions& options,
                                                             const CreateReplica& create) {
  std::vector<std::unique_ptr<Replica>> replicas;
  for (int number = 0; number < options.replicas; ++number) {
    replicas.push_back(std::make_unique<Replica>());
    if (absl::Status created = replicas.back()->Create(number, create); !created.ok()) return created;
  }
  const std::vector<Tensor>& tensors = replicas.front()->model().tensors();
  std::unique_ptr<GradientSum> sum;
  if (options.create_sum) {
    absl::StatusOr<std::unique_ptr<GradientSum>> made = options.create_sum(tensors);
    if (!made.ok()) return made.status();
    sum = *std::move(made);
  } else {
    sum = std::make_unique<HostGradientSum>(replicas.size(), tensors.size());
  }
  return std::make_unique<ReplicatedModel>(std::move(replicas), std::move(sum), options.suffix);
}

}  // namespace downpour::model
