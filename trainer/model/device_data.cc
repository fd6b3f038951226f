#include "trainer/model/device_data.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/model/batch_check.h"
#include "trainer/model/torch_types.h"

namespace downpour::model {
namespace {

constexpr std::int64_t kReadSamples = 1024;  // at once, when all are read

std::vector<std::int64_t> ShapeOf(const data::Field& field, std::int64_t samples) {
  std::vector<std::int64_t> shape = field.shape;
  shape.insert(shape.begin(), samples);
  return shape;
}

at::Tensor View(const data::Array& array) {
  return at::from_blob(const_cast<std::byte*>(array.bytes.data()), array.shape, TorchType(array.type));
}

// One number, or one for each channel of values [N, channels, ...]. A tensor, as a device multiplies by the reciprocal
// of a number, and is another bit away from the host.
at::Tensor OfChannels(const std::vector<float>& numbers, std::size_t dimensions, at::Device device) {
  std::vector<std::int64_t> shape(std::max<std::size_t>(1, dimensions), 1);
  shape.front() = static_cast<std::int64_t>(numbers.size());
  return at::tensor(numbers, at::kFloat).view(shape).to(device);
}

// `top` and `left` [N] of what is kept of images [N, C, H, W].
at::Tensor Cropped(const data::BatchStep& step, const at::Tensor& images, const at::Tensor& top,
                   const at::Tensor& left) {
  const std::int64_t samples = images.size(0), channels = images.size(1), p = step.padding;
  const at::Tensor padded = p > 0 ? at::constant_pad_nd(images, {p, p, p, p}, 0) : images;
  const auto places = [&](const at::Tensor& begin, std::int64_t kept) {
    return (begin + p).unsqueeze(1) + at::arange(kept, begin.options()).unsqueeze(0);
  };
  const at::Tensor rows = places(top, step.height).view({samples, 1, step.height, 1});
  const at::Tensor columns = places(left, step.width).view({samples, 1, 1, step.width});
  return padded.gather(2, rows.expand({samples, channels, step.height, padded.size(3)}))
      .gather(3, columns.expand({samples, channels, step.height, step.width}));
}

}  // namespace

std::string WhyNotHeld(const data::Deferred& deferred, std::int64_t samples, std::optional<std::int64_t> free,
                       HoldChoice choice) {
  if (choice == HoldChoice::kNever) return "nobody wants it to";
  if (!deferred.fixed) return "its samples are drawn anew each time by steps that only the host has";
  std::int64_t bytes = 0;  // of a sample
  for (const auto* fields : {&deferred.inputs, &deferred.targets}) {
    for (const data::Deferred::Of& field : *fields) {
      if (field.stored.ragged()) return absl::StrCat("its samples differ in length (", ToString(field.stored), ")");
      const std::int64_t elements =
          std::accumulate(field.stored.shape.begin(), field.stored.shape.end(), std::int64_t{1}, std::multiplies<>());
      bytes += elements * static_cast<std::int64_t>(data::BytesOf(field.stored.type));
    }
  }
  if (choice == HoldChoice::kAlways) return "";
  // Of huge numbers: nothing overflows.
  std::int64_t most = kMostHeldBytes;
  if (free.has_value()) most = std::min(most, *free / kPartOfFreeMemory);
  if (samples <= most / std::max<std::int64_t>(1, bytes)) return "";
  return absl::StrFormat("%d samples of %d bytes are more than %d bytes", samples, bytes, most);
}

std::optional<std::int64_t> FreeMemory(at::Device device) {
  if (device.is_cpu()) return std::nullopt;
  return static_cast<std::int64_t>(at::getDeviceAllocator(device.type())->getMemoryInfo(device.index()).first);
}

DeviceData::DeviceData(at::Device device, data::Deferred deferred) : device_(device), deferred_(std::move(deferred)) {
  for (const data::Deferred::Of* of : {&deferred_.inputs.front(), &deferred_.targets.front()}) {
    Chain& chain = chains_.emplace_back();
    data::ElementType type = of->stored.type;
    for (const data::BatchStep& step : of->steps) {
      Step& made = chain.steps.emplace_back(Step{step, {}, {}, {}});
      switch (step.type) {
        case data::BatchStep::Type::kCrop:
          rows_ += 2;
          break;
        case data::BatchStep::Type::kFlip:
          rows_ += 1;
          break;
        case data::BatchStep::Type::kNormalise:
          if (type == data::ElementType::kU8) made.divisor = OfChannels({255}, 1, device_);
          made.mean = OfChannels(step.mean, of->stored.shape.size(), device_);
          made.deviation = OfChannels(step.deviation, of->stored.shape.size(), device_);
          type = data::ElementType::kF32;
          break;
        case data::BatchStep::Type::kCast:
          type = step.element_type;
          break;
      }
    }
  }
}

absl::Status DeviceData::Hold(const data::Dataset& dataset) {
  const std::int64_t samples = dataset.size();
  const data::Field* const stored[] = {&input(), &target()};
  for (std::size_t i = 0; i < chains_.size(); ++i) {
    chains_[i].held =
        at::empty(ShapeOf(*stored[i], samples), at::TensorOptions().dtype(TorchType(stored[i]->type)).device(device_));
  }
  for (std::int64_t first = 0; first < samples; first += kReadSamples) {
    std::vector<std::int64_t> indices(static_cast<std::size_t>(std::min(kReadSamples, samples - first)));
    std::iota(indices.begin(), indices.end(), first);
    const absl::StatusOr<data::Batch> batch = dataset.ReadUncounted(indices, std::nullopt);
    if (!batch.ok()) return batch.status();
    if (!batch->broken.empty()) return absl::FailedPreconditionError(batch->broken.front().why);
    // What each minibatch would be looked through for.
    if (absl::Status right = CheckBatch(input(), target(), *batch); !right.ok()) return right;
    const data::Array* const arrays[] = {&batch->inputs.front(), &batch->targets.front()};
    for (std::size_t i = 0; i < chains_.size(); ++i) {
      chains_[i].held.narrow(0, first, batch->size()).copy_(View(*arrays[i]));
    }
  }
  held_ = samples;
  return absl::OkStatus();
}

void DeviceData::Release() {
  held_ = 0;
  for (Chain& chain : chains_) chain.held = at::Tensor();
}

absl::Status DeviceData::Check(const data::Batch& batch) const {
  if (!IsByIndex(batch)) {
    if (static_cast<std::int64_t>(batch.indices.size()) == batch.size()) return CheckBatch(input(), target(), batch);
    return absl::InvalidArgumentError(
        absl::StrFormat("a batch of %d samples with %d indices", batch.size(), batch.indices.size()));
  }
  for (const std::int64_t index : batch.indices) {
    if (index >= 0 && index < held_) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("a batch with the sample %d, of %d that the device holds", index, held_));
  }
  return absl::OkStatus();
}

std::vector<at::Tensor> DeviceData::Travelling(const data::Batch& batch) const {
  std::vector<at::Tensor> travelling;
  const auto samples = static_cast<std::int64_t>(batch.indices.size());
  if (IsByIndex(batch)) travelling.push_back(at::tensor(batch.indices, at::kLong));
  if (rows_ == 0) return travelling;
  const at::Tensor draws = at::empty({rows_, samples}, at::kLong);
  std::int64_t* const values = draws.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < samples; ++i) {
    std::int64_t* value = values + i;
    const auto put = [&value, samples](std::int64_t drawn) {
      *value = drawn;
      value += samples;
    };
    for (const data::Deferred::Of* of : {&deferred_.inputs.front(), &deferred_.targets.front()}) {
      std::vector<std::int64_t> shape = of->stored.shape;
      for (const data::BatchStep& step : of->steps) {
        // As data::SourceDataset does for one sample.
        std::optional<data::Random> random;
        if (batch.seed.has_value() && step.random) {
          random.emplace(*batch.seed, step.number,
                         static_cast<std::uint64_t>(batch.indices[static_cast<std::size_t>(i)]));
        }
        data::Random* const draw = random.has_value() ? &*random : nullptr;
        if (step.type == data::BatchStep::Type::kCrop) {
          put(data::DrawCrop(shape[1], step.height, step.padding, draw));
          put(data::DrawCrop(shape[2], step.width, step.padding, draw));
          shape = {shape[0], step.height, step.width};
        } else if (step.type == data::BatchStep::Type::kFlip) {
          put(data::DrawFlip(step.probability, draw) ? 1 : 0);
        }
      }
    }
  }
  travelling.push_back(draws);
  return travelling;
}

at::Tensor DeviceData::Apply(const Chain& chain, at::Tensor value, const at::Tensor& draws, std::int64_t* row) const {
  for (const Step& step : chain.steps) {
    switch (step.of.type) {
      case data::BatchStep::Type::kCrop:
        value = Cropped(step.of, value, draws[*row], draws[*row + 1]);
        *row += 2;
        break;
      case data::BatchStep::Type::kFlip:
        value = at::where(draws[(*row)++].view({-1, 1, 1, 1}).to(at::kBool), value.flip(3), value);
        break;
      case data::BatchStep::Type::kNormalise:
        value = value.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
        if (step.divisor.defined()) value.div_(step.divisor);
        value.sub_(step.mean).div_(step.deviation);
        break;
      case data::BatchStep::Type::kCast:
        value = value.to(TorchType(step.of.element_type));
        break;
    }
  }
  return value;
}

std::vector<at::Tensor> DeviceData::Make(const std::vector<at::Tensor>& here) const {
  const at::NoGradGuard no_grad;
  const at::Tensor draws = rows_ > 0 ? here.back() : at::Tensor();
  const bool by_index = static_cast<std::int64_t>(here.size()) == (rows_ > 0 ? 2 : 1);
  std::vector<at::Tensor> made;
  std::int64_t row = 0;
  for (std::size_t i = 0; i < chains_.size(); ++i) {
    made.push_back(Apply(chains_[i], by_index ? chains_[i].held.index_select(0, here.front()) : here[i], draws, &row));
  }
  return made;
}

}  // namespace downpour::model
