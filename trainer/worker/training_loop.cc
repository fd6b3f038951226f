#include "trainer/worker/training_loop.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace downpour::worker {

std::vector<v1::TensorSpec> TensorSpecsOf(const model::Model& model) {
  std::vector<v1::TensorSpec> specs;
  specs.reserve(model.tensors().size());
  for (const model::Tensor& tensor : model.tensors()) {
    v1::TensorSpec spec;
    spec.set_name(tensor.name);
    spec.set_type(v1::FLOAT32);
    spec.set_kind(tensor.kind == model::TensorKind::kBuffer ? v1::BUFFER : v1::PARAMETER);
    for (std::int64_t dimension : tensor.shape) spec.add_shape(dimension);
    specs.push_back(std::move(spec));
  }
  return specs;
}

std::string DeviceOf(const model::Model& model) {
  const std::string why = model.without_gpu();
  return absl::StrCat(model.description(), why.empty() ? "" : "; no GPU: ", why);
}

data::PrefetchOptions PrefetchOf(const v1::DatasetConfig& config) {
  data::PrefetchOptions options;
  if (config.has_prefetch()) options.batches = config.prefetch();
  return options;
}

}  // namespace downpour::worker
