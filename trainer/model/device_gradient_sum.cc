#include "trainer/model/device_gradient_sum.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/model/thrown.h"

namespace downpour::model {
namespace {

// Later layers first, buffers last: the order in which a model gives them.
std::vector<std::size_t> OrderOf(const std::vector<Tensor>& tensors) {
  std::vector<std::size_t> order;
  for (std::size_t i = tensors.size(); i-- > 0;) {
    if (tensors[i].kind == TensorKind::kParameter) order.push_back(i);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].kind == TensorKind::kBuffer) order.push_back(i);
  }
  return order;
}

}  // namespace

DeviceGradientSum::DeviceGradientSum(const std::vector<Tensor>& tensors,
                                     std::vector<std::unique_ptr<cuda::DeviceKernels>> kernels,
                                     collective::LocalMembers members, const DeviceSumOptions& options)
    : options_(options), places_(tensors.size()), members_(std::move(members)), host_(kernels.size(), tensors.size()) {
  for (const std::size_t tensor : OrderOf(tensors)) {
    const auto elements = static_cast<std::size_t>(tensors[tensor].elements());
    if (buckets_.empty() || (buckets_.back().elements + elements) * sizeof(float) > options_.bucket_bytes) {
      buckets_.push_back({elements_, 0, {}});
    }
    places_[tensor] = {buckets_.size() - 1, elements_, elements};
    buckets_.back().elements += elements;
    buckets_.back().tensors.push_back(tensor);
    elements_ += elements;
  }
  for (auto& one : kernels) {
    devices_.emplace_back();
    devices_.back().kernels = std::move(one);
  }
}

DeviceGradientSum::~DeviceGradientSum() {
  ends_.clear();
  for (Device& device : devices_) {
    for (void* const event : device.complete) device.kernels->DestroyEvent(event);
    if (device.idle != nullptr) device.kernels->DestroyEvent(device.idle);
    device.kernels->Free(device.values);
  }
  devices_.front().kernels->FreeHost(host_values_);
}

absl::StatusOr<std::unique_ptr<GradientSum>> DeviceGradientSum::Create(
    const std::vector<Tensor>& tensors, std::vector<std::unique_ptr<cuda::DeviceKernels>> kernels,
    collective::LocalMembers members, const DeviceSumOptions& options,
    std::vector<std::unique_ptr<collective::NcclApi>> nccl) {
  if (kernels.empty() || members.size() != static_cast<int>(kernels.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("kernels of ", kernels.size(), " devices for ", members.size(), " members"));
  }
  std::unique_ptr<DeviceGradientSum> sum(
      new DeviceGradientSum(tensors, std::move(kernels), std::move(members), options));
  sum->nccl_ = std::move(nccl);
  if (absl::Status allocated = sum->Allocate(); !allocated.ok()) return allocated;
  if (absl::Status formed = sum->FormGroup(); !formed.ok()) return formed;
  return sum;
}

absl::Status DeviceGradientSum::Allocate() {
  const std::size_t bytes = std::max<std::size_t>(elements_, 1) * sizeof(float);
  for (Device& device : devices_) {
    const absl::StatusOr<void*> values = device.kernels->Allocate(bytes);
    if (!values.ok()) return values.status();
    device.values = static_cast<float*>(*values);
    const absl::StatusOr<void*> idle = device.kernels->CreateEvent();
    if (!idle.ok()) return idle.status();
    device.idle = *idle;
    for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
      const absl::StatusOr<void*> complete = device.kernels->CreateEvent();
      if (!complete.ok()) return complete.status();
      device.complete.push_back(*complete);
    }
  }
  const absl::StatusOr<void*> host = devices_.front().kernels->AllocateHost(bytes);
  if (!host.ok()) return host.status();
  host_values_ = static_cast<float*>(*host);
  return absl::OkStatus();
}

absl::Status DeviceGradientSum::FormGroup() {
  absl::StatusOr<std::vector<std::unique_ptr<collective::Collective>>> ends = members_.Form(options_.limit);
  if (!ends.ok()) return ends.status();
  ends_ = *std::move(ends);
  return absl::OkStatus();
}

absl::Status DeviceGradientSum::Begin(absl::Span<const float> weights) {
  by_host_ = std::find(weights.begin(), weights.end(), 0.0F) != weights.end();
  if (by_host_) return host_.Begin(weights);
  weights_.assign(weights.begin(), weights.end());
  const absl::MutexLock lock(&mutex_);
  if (failed_) ends_.clear();
  if (ends_.empty()) {
    if (absl::Status formed = FormGroup(); !formed.ok()) return formed;
  }
  complete_.clear();
  failed_ = false;
  ended_ = false;
  return absl::OkStatus();
}

absl::StatusOr<StepResult> DeviceGradientSum::Compute(std::size_t replica, Model& model, const data::Batch& part,
                                                      std::uint64_t seed, const Model::OnLoss& on_loss) {
  if (by_host_) return host_.Compute(replica, model, part, seed, on_loss);
  Device& device = devices_[replica];
  device.missing.clear();
  for (const Bucket& bucket : buckets_) device.missing.push_back(bucket.tensors.size());
  absl::Status taken;
  bool go_on = false;
  const auto compute = [&]() -> absl::StatusOr<StepResult> {
    try {
      return model.ComputeDeviceGradients(
          part, seed,
          [&](double loss) {
            go_on = taken.ok() && on_loss(loss);
            return go_on;
          },
          [&](std::size_t tensor, const float* values) {
            if (taken.ok()) taken = Take(replica, model, tensor, values);
          });
    } catch (...) {
      return absl::InternalError(WhatWasThrown());  // the others are to be let go of all the same
    }
  };
  absl::StatusOr<StepResult> result = compute();
  absl::Status status = result.status();
  status.Update(taken);
  if (status.ok() && go_on) status = AddUp(replica);
  status.Update(Settle(device));
  model.ReleaseGradients();
  if (status.ok()) return result;
  bool first = false;
  {
    const absl::MutexLock lock(&mutex_);
    first = !std::exchange(failed_, true);
  }
  // Whoever waits for this one is let go of, and has nothing to tell but that.
  ends_[replica]->Abort();
  return first ? absl::StatusOr<StepResult>(status) : StepResult();
}

absl::Status DeviceGradientSum::Take(std::size_t replica, const Model& model, std::size_t tensor, const float* values) {
  Device& device = devices_[replica];
  const Place& place = places_[tensor];
  if (absl::Status behind = device.kernels->WaitFor(model.compute_stream()); !behind.ok()) return behind;
  const cuda::SumArguments arguments{device.values + place.offset, values, place.elements, weights_[replica], 1};
  if (absl::Status weighed = device.kernels->Sum(arguments); !weighed.ok()) return weighed;
  if (--device.missing[place.bucket] > 0) return absl::OkStatus();
  return device.kernels->Record(device.complete[place.bucket]);
}

absl::Status DeviceGradientSum::AddUp(std::size_t replica) {
  Device& device = devices_[replica];
  for (std::size_t number = 0; number < buckets_.size(); ++number) {
    const Bucket& bucket = buckets_[number];
    void* const event = device.complete[number];
    if (absl::Status there = cuda::Await(*device.kernels, event, options_.limit); !there.ok()) return there;
    float* const values = device.values + bucket.offset;
    if (absl::Status sum = ends_[replica]->AllReduce({values, bucket.elements}, options_.limit); !sum.ok()) return sum;
    if (replica != 0) continue;
    absl::Status copied = device.kernels->Copy(host_values_ + bucket.offset, values, bucket.elements * sizeof(float));
    if (copied.ok()) copied = device.kernels->Record(event);
    if (copied.ok()) copied = cuda::Await(*device.kernels, event, options_.limit);
    if (!copied.ok()) return copied;
    const absl::MutexLock lock(&mutex_);
    complete_.insert(complete_.end(), bucket.tensors.begin(), bucket.tensors.end());
  }
  return absl::OkStatus();
}

absl::Status DeviceGradientSum::Settle(Device& device) const {
  if (absl::Status recorded = device.kernels->Record(device.idle); !recorded.ok()) return recorded;
  return cuda::Await(*device.kernels, device.idle, options_.limit);
}

void DeviceGradientSum::End() {
  if (by_host_) return host_.End();
  const absl::MutexLock lock(&mutex_);
  ended_ = true;
}

std::optional<GradientSum::Sum> DeviceGradientSum::Next() {
  if (by_host_) return host_.Next();
  const auto woken = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ended_ || !complete_.empty(); };
  const absl::MutexLock lock(&mutex_);
  // Bounded by the replicas, each of which adds up or ends.
  mutex_.Await(absl::Condition(&woken));
  if (complete_.empty()) return std::nullopt;
  const std::size_t tensor = complete_.front();
  complete_.pop_front();
  return Sum{tensor, {host_values_ + places_[tensor].offset, places_[tensor].elements}};
}

}  // namespace downpour::model
