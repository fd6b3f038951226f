#include "trainer/model/gradient_sum.h"

#include <algorithm>
#include <utility>

namespace downpour::model {

HostGradientSum::HostGradientSum(std::size_t replicas, std::size_t tensors, std::string description)
    : description_(std::move(description)),
      weights_(replicas),
      given_(replicas, std::vector<std::vector<float>>(tensors)),
      missing_(tensors) {}

absl::Status HostGradientSum::Begin(absl::Span<const float> weights) {
  weights_.assign(weights.begin(), weights.end());
  const auto active = std::count_if(weights_.begin(), weights_.end(), [](float weight) { return weight > 0; });
  const absl::MutexLock lock(&mutex_);
  std::fill(missing_.begin(), missing_.end(), static_cast<std::size_t>(active));
  complete_.clear();
  ended_ = false;
  return absl::OkStatus();
}

absl::StatusOr<StepResult> HostGradientSum::Compute(std::size_t replica, Model& model, const data::Batch& part,
                                                    std::uint64_t seed, const Model::OnLoss& on_loss) {
  return model.ComputeGradients(part, seed, on_loss, [&](std::size_t tensor, absl::Span<const float> gradient) {
    Give(replica, tensor, gradient);
  });
}

void HostGradientSum::Give(std::size_t replica, std::size_t tensor, absl::Span<const float> gradient) {
  std::vector<float>& kept = given_[replica][tensor];
  kept.resize(gradient.size());
  const float weight = weights_[replica];
  for (std::size_t i = 0; i < kept.size(); ++i) kept[i] = weight * gradient[i];
  const absl::MutexLock lock(&mutex_);
  if (--missing_[tensor] == 0) complete_.push_back(tensor);
}

void HostGradientSum::End() {
  const absl::MutexLock lock(&mutex_);
  ended_ = true;
}

std::optional<GradientSum::Sum> HostGradientSum::Next() {
  std::size_t tensor = 0;
  {
    const auto woken = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ended_ || !complete_.empty(); };
    const absl::MutexLock lock(&mutex_);
    // Bounded by the replicas, each of which gives its gradients or ends.
    mutex_.Await(absl::Condition(&woken));
    if (complete_.empty()) return std::nullopt;
    tensor = complete_.front();
    complete_.pop_front();
  }
  std::vector<float>* sum = nullptr;
  for (std::size_t replica = 0; replica < given_.size(); ++replica) {
    if (weights_[replica] == 0) continue;
    std::vector<float>& given = given_[replica][tensor];
    if (sum == nullptr) {
      sum = &given;
      continue;
    }
    for (std::size_t i = 0; i < given.size(); ++i) (*sum)[i] += given[i];
  }
  return Sum{tensor, *sum};
}

}  // namespace downpour::model
