#include "trainer/model/staged_batches.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace downpour::model {
namespace {

constexpr absl::Duration kCopyLimit = absl::Minutes(2);  // for what takes milliseconds

}  // namespace

StagedBatches::StagedBatches(std::unique_ptr<CopyQueue> queue) : queue_(std::move(queue)) {
  for (Slot& slot : slots_) {
    slot.copied = queue_->NewMark();
    slot.computed = queue_->NewMark();
  }
}

void StagedBatches::Copy(const std::vector<at::Tensor>& arrays, Slot* slot) {
  // What is copied from this memory: done long before, as a rule.
  queue_->Await(*slot->copied, kCopyLimit);
  slot->arrays.clear();
  slot->buffers.resize(std::max(slot->buffers.size(), arrays.size()));
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const auto bytes = static_cast<std::int64_t>(arrays[i].nbytes());
    Buffer& buffer = slot->buffers[i];
    if (buffer.host.defined() && buffer.host.numel() >= bytes) continue;
    // The memory that is given back, or taken, may be of use to what is computed still.
    queue_->Await(*slot->computed, kCopyLimit);
    buffer.host = queue_->HostMemory(bytes, at::kByte);
    buffer.device = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(queue_->device()));
    queue_->MarkComputing(slot->computed.get());
  }
  queue_->CopyBehind(*slot->computed);
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const auto bytes = static_cast<std::int64_t>(arrays[i].nbytes());
    const at::Tensor host = slot->buffers[i].host.narrow(0, 0, bytes);
    const at::Tensor device = slot->buffers[i].device.narrow(0, 0, bytes);
    std::memcpy(host.mutable_data_ptr(), arrays[i].const_data_ptr(), static_cast<std::size_t>(bytes));
    queue_->Copy(device, host);
    slot->arrays.push_back(device.view(arrays[i].scalar_type()).view(arrays[i].sizes()));
  }
  queue_->MarkCopies(slot->copied.get());
}

void StagedBatches::Stage(std::shared_ptr<const data::Batch> batch, const std::vector<at::Tensor>& arrays) {
  next().batch = nullptr;  // of what is not whole nobody may take anything
  Copy(arrays, &next());
  next().batch = std::move(batch);
}

bool StagedBatches::IsStaged(const data::Batch& batch) const { return slots_[1 - taken_].batch.get() == &batch; }

const std::vector<at::Tensor>& StagedBatches::Begin(const data::Batch& batch, const std::vector<at::Tensor>& arrays) {
  Slot& slot = next();
  if (!IsStaged(batch)) {
    slot.batch = nullptr;
    Copy(arrays, &slot);
  }
  slot.batch = nullptr;
  // All that reads the arrays of the one before has been handed over.
  queue_->MarkComputing(slots_[taken_].computed.get());
  queue_->ComputeBehind(*slot.copied);
  taken_ = 1 - taken_;
  return slot.arrays;
}

}  // namespace downpour::model
