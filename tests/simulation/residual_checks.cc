#include "tests/simulation/residual_checks.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/checks.h"
#include "trainer/core/codec/codec.h"

namespace downpour::simulation {

using core::FrameCodec;

ResidualChecks::Residual& ResidualChecks::Find(std::uint64_t process, std::uint64_t generation, std::uint32_t slice,
                                               std::size_t elements) {
  Residual& residual = residuals_[{process, generation, slice}];
  if (residual.may_be.empty()) residual.may_be.emplace(elements, 0.0f);
  return residual;
}

void ResidualChecks::OnSend(const Process& worker, const core::FrameHeader& push) {
  process_of_[push.session] = worker.number;
  if (push.elements == 0) return;  // skipped
  Find(worker.number, push.generation, push.slice, push.elements).unsettled = true;
  const bool fresh = sent_.emplace(push.session, push.generation, push.slice, push.update).second;
  if (fresh && worker.leaving && push.codec != FrameCodec::kFp32) {
    world_->Violation(absl::StrCat(worker.name(), " is leaving and encodes ", NameOf(push.update), " of slice ",
                                   push.slice, ", so that something of it is left"));
  }
}

void ResidualChecks::OnUpdateDone(const Process& worker) {
  for (auto entry = residuals_.lower_bound({worker.number, 0, 0});
       entry != residuals_.end() && std::get<0>(entry->first) == worker.number; ++entry) {
    entry->second.unsettled = false;
  }
}

void ResidualChecks::OnSessionOver(const Process& worker, std::uint64_t session) {
  process_of_.erase(session);
  for (auto entry = residuals_.lower_bound({worker.number, 0, 0});
       entry != residuals_.end() && std::get<0>(entry->first) == worker.number; ++entry) {
    Residual& residual = entry->second;
    if (!std::exchange(residual.unsettled, false)) continue;
    residual.may_be.emplace(residual.may_be.begin()->size(), 0.0f);
    ++forgotten_;
  }
}

void ResidualChecks::OnAnswer(const core::Frame& push, core::ReplyStatus status, const std::vector<float>& gradient) {
  const core::FrameHeader& header = push.header;
  const bool applied = status == core::ReplyStatus::kApplied;
  const auto process = process_of_.find(header.session);
  if (process == process_of_.end()) return;  // it has given the push up, and some ps do not know yet
  Residual& residual = Find(process->second, header.generation, header.slice, gradient.size());
  const std::vector<float> none(gradient.size(), 0.0f);
  std::vector<float> decoded(gradient.size());
  core::Decode(header.codec, push.payload, absl::MakeSpan(decoded));
  std::set<std::vector<float>> after;
  for (const std::vector<float>& before : residual.may_be) {
    std::vector<float> sum(gradient.size());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = gradient[i] + before[i];
    std::vector<std::uint8_t> bytes(core::EncodedBytes(header.codec, codec_.top_k, sum.size()));
    core::Encode(header.codec, codec_.top_k, sum, bytes.data());
    std::vector<float> expected(gradient.size());
    core::Decode(header.codec, core::OwningPayload(std::move(bytes)), absl::MakeSpan(expected));
    if (expected != decoded) continue;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] -= decoded[i];
    after.insert(std::move(sum));
  }
  if (applied) {
    if (after.empty()) {
      world_->Violation(absl::StrCat("session ", header.session, " pushed of ", NameOf(header.update), ", slice ",
                                     header.slice, ", something else than its gradient and what was left out before"));
    }
    flushed_ += after.count(none);
    residual.may_be = std::move(after);
    residual.applied.emplace(header.session, header.update);
    return;
  }
  // Its own, of which the answer is late; in steps it may be the other execution's, and then the residual goes.
  if (steps_) residual.may_be.insert(none);
  // Somebody else's, or its own of a session before. If an answer was lost it takes it for its own of this one.
  if (!steps_ && residual.applied.count({header.session, header.update}) == 0) residual.may_be.merge(after);
}

}  // namespace downpour::simulation
