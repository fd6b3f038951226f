#include "trainer/core/open_cut.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace downpour::core {

OpenCut::OpenCut(const v1::CutOrder& order, std::set<std::uint32_t> numbers, std::uint64_t extra_bytes_limit)
    : cut_(order.cut()),
      checkpoint_(order.checkpoint()),
      extra_bytes_limit_(extra_bytes_limit),
      sealed_(order.sealed()),
      remaining_(std::move(numbers)) {}

bool OpenCut::BeforePush(SliceState& live, std::uint32_t cut) {
  if (cut < cut_ || remaining_.count(live.number()) == 0 || forks_.count(live.number()) != 0) return true;
  const std::uint64_t bytes = live.bytes();
  // One fork fits always, or a limit below the size of a slice would stop everything.
  const std::uint64_t taken = fork_bytes_ + taken_bytes_;
  if (extra_bytes_limit_ != 0 && taken != 0 && taken + bytes > extra_bytes_limit_) return false;
  fork_bytes_ += bytes;
  forks_.emplace(live.number(), live.Fork());
  return true;
}

SliceState* OpenCut::LatePush(std::uint32_t slice, std::uint32_t cut) {
  if (cut >= cut_) return nullptr;
  const auto fork = forks_.find(slice);
  return fork == forks_.end() ? nullptr : &fork->second;
}

absl::StatusOr<SliceSnapshot> OpenCut::Take(const SliceState& live) {
  taken_bytes_ = 0;
  if (remaining_.erase(live.number()) == 0) {
    return absl::FailedPreconditionError(absl::StrCat("slice ", live.number(), " of cut ", cut_, " is taken already"));
  }
  const auto fork = forks_.find(live.number());
  if (fork == forks_.end()) return live.Export();
  taken_bytes_ = fork->second.bytes();
  fork_bytes_ -= taken_bytes_;
  SliceSnapshot snapshot = fork->second.Export();
  forks_.erase(fork);
  return snapshot;
}

void OpenCut::OnWritten(const absl::StatusOr<v1::PsFiles>& files) {
  taken_bytes_ = 0;
  if (files.ok()) {
    files_ = *files;
    return;
  }
  error_ = std::string(files.status().message());
  // Nobody writes them any more.
  forks_.clear();
  remaining_.clear();
  fork_bytes_ = 0;
}

v1::CutState OpenCut::state() const {
  v1::CutState state;
  state.set_cut(cut_);
  state.set_sealed(sealed_);
  state.set_extra_bytes(fork_bytes_ + taken_bytes_);
  if (files_.has_value()) *state.mutable_files() = *files_;
  state.set_error(error_);
  return state;
}

}  // namespace downpour::core
