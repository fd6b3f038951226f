#include "trainer/model/staged_values.h"

#include <algorithm>
#include <utility>

namespace downpour::model {
namespace {

constexpr absl::Duration kCopyLimit = absl::Minutes(2);  // for what takes milliseconds

}  // namespace

StagedValues::StagedValues(std::unique_ptr<CopyQueue> queue, std::vector<at::Tensor> tensors)
    : queue_(std::move(queue)), computed_(queue_->NewMark()) {
  staged_.reserve(tensors.size());
  for (at::Tensor& tensor : tensors) staged_.push_back({std::move(tensor), {}, queue_->NewMark()});
}

void StagedValues::Set(std::size_t tensor, absl::Span<const float> values) {
  try {
    Copy(&staged_[tensor], values);
  } catch (...) {
    if (thrown_ == nullptr) thrown_ = std::current_exception();
  }
}

void StagedValues::Copy(Staged* staged, absl::Span<const float> values) {
  const at::NoGradGuard no_grad;
  const at::Tensor value = staged->value.detach();
  if (!staged->host.defined()) staged->host = queue_->HostMemory(value.numel(), at::kFloat);
  // A step took place since then, as a rule.
  queue_->Await(*staged->copied, kCopyLimit);
  std::copy(values.begin(), values.end(), staged->host.mutable_data_ptr<float>());
  const bool row_major = value.is_contiguous();
  const at::Tensor here = row_major ? value : Scratch(value);
  // What is under way may still read the values before these.
  queue_->MarkComputing(computed_.get());
  queue_->CopyBehind(*computed_);
  queue_->Copy(here, staged->host.view(value.sizes()));
  if (!row_major) queue_->Copy(value, here);
  queue_->MarkCopies(staged->copied.get());
  staged->used = false;
}

at::Tensor StagedValues::Scratch(const at::Tensor& like) {
  if (!scratch_.defined()) {
    std::int64_t most = 0;
    for (const Staged& staged : staged_) {
      if (!staged.value.is_contiguous()) most = std::max(most, staged.value.numel());
    }
    scratch_ = at::empty({most}, like.options());
  }
  return scratch_.narrow(0, 0, like.numel()).view(like.sizes());
}

void StagedValues::Use(std::size_t tensor) {
  if (thrown_ != nullptr) std::rethrow_exception(std::exchange(thrown_, nullptr));
  Staged& staged = staged_[tensor];
  if (std::exchange(staged.used, true)) return;
  queue_->ComputeBehind(*staged.copied);
}

void StagedValues::UseAll() {
  for (std::size_t tensor = 0; tensor < staged_.size(); ++tensor) Use(tensor);
}

}  // namespace downpour::model
