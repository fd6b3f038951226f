#include "trainer/worker/initial_weights.h"

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"
#include "trainer/checkpoint/initial_weights.h"

namespace downpour::worker {

absl::StatusOr<std::uint32_t> TakeInitialWeights(const v1::InitialWeightsConfig& config, model::Model& model) {
  const std::vector<model::Tensor>& tensors = model.tensors();
  const std::vector<model::Model::Frozen> frozen = model.frozen();
  std::vector<checkpoint::WantedTensor> wanted;
  wanted.reserve(tensors.size() + frozen.size());
  for (const model::Tensor& tensor : tensors) wanted.push_back({tensor.name, tensor.shape});
  for (const model::Model::Frozen& one : frozen) {
    // Buffers that are float are shared, and not among these.
    wanted.push_back({one.tensor.name, one.tensor.shape, one.tensor.kind == model::TensorKind::kBuffer});
  }
  const absl::StatusOr<checkpoint::InitialWeights> weights =
      checkpoint::ReadInitialWeights(config.path(), wanted, !config.any_names());
  if (!weights.ok()) {
    return absl::Status(weights.status().code(),
                        absl::StrCat("spec.model.initialWeights.path: ", weights.status().message()));
  }
  if (weights->values.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("spec.model.initialWeights.path: ", config.path(),
                     ": has no tensor of the model: ", checkpoint::NameDifference(*weights)));
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto found = weights->values.find(wanted[i].name);
    if (found == weights->values.end()) continue;
    if (i < tensors.size()) {
      model.SetParameter(i, found->second);
    } else {
      model.SetFrozen(i - tensors.size(), found->second);
    }
  }
  const std::string names = checkpoint::NameDifference(*weights);
  spdlog::log(names.empty() ? spdlog::level::info : spdlog::level::warn, "{} of {} tensors begin with those of {}{}{}",
              weights->values.size(), wanted.size(), config.path(), names.empty() ? "" : "; of its names ", names);
  return weights->crc32c;
}

}  // namespace downpour::worker
