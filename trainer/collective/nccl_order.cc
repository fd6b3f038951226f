#include "trainer/collective/nccl_order.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace downpour::collective {

OperationShape ShapeOf(const Operation& operation) {
  return {operation.kind, operation.travels, operation.values.size(), operation.peer};
}

std::string Describe(const OperationShape& shape) {
  // Of the values only their number is looked at.
  return Describe(Operation{shape.kind, absl::Span<float>(nullptr, shape.count), shape.peer, shape.travels});
}

absl::Status NcclOrder::Started(int rank, const OperationShape& shape, std::vector<Turn>* turns) {
  const bool sends = shape.kind == OperationKind::kSend;
  if (sends || shape.kind == OperationKind::kReceive) {
    const int from = sends ? rank : shape.peer;
    const int to = sends ? shape.peer : rank;
    Messages& messages = messages_[{from, to}];
    (sends ? messages.sends : messages.receives).push_back(shape.count);
    if (messages.sends.empty() || messages.receives.empty()) return CheckThatAllCome();
    const OperationShape send = {OperationKind::kSend, Precision::kFloat32, messages.sends.front(), to};
    const OperationShape receive = {OperationKind::kReceive, Precision::kFloat32, messages.receives.front(), from};
    messages.sends.pop_front();
    messages.receives.pop_front();
    if (send.count != receive.count) {
      return absl::InternalError(absl::StrCat("the members disagree: rank ", from, " does a ", Describe(send),
                                              ", rank ", to, " a ", Describe(receive)));
    }
    turns->push_back({from, send});
    turns->push_back({to, receive});
    return absl::OkStatus();
  }
  started_[static_cast<std::size_t>(rank)].push_back(shape);
  if (std::any_of(started_.begin(), started_.end(), [](const auto& of_rank) { return of_rank.empty(); })) {
    return CheckThatAllCome();
  }
  const OperationShape first = started_.front().front();
  for (std::size_t other = 0; other < started_.size(); ++other) {
    const OperationShape there = started_[other].front();
    started_[other].pop_front();
    if (!(there == first)) {
      return absl::InternalError(
          absl::StrCat("the members disagree: rank 0 does ", Describe(first), ", rank ", other, " ", Describe(there)));
    }
    turns->push_back({static_cast<int>(other), first});
  }
  return absl::OkStatus();
}

absl::Status NcclOrder::Left(int rank) {
  left_[static_cast<std::size_t>(rank)] = true;
  return CheckThatAllCome();
}

bool NcclOrder::all_left() const {
  return std::all_of(left_.begin(), left_.end(), [](bool left) { return left; });
}

absl::Status NcclOrder::CheckThatAllCome() const {
  const auto missing = [](int rank, const OperationShape& shape) {
    return absl::UnavailableError(absl::StrCat("rank ", rank, " left the group before a ", Describe(shape)));
  };
  for (std::size_t gone = 0; gone < left_.size(); ++gone) {
    if (!left_[gone] || !started_[gone].empty()) continue;
    for (const auto& of_rank : started_) {
      if (!of_rank.empty()) return missing(static_cast<int>(gone), of_rank.front());
    }
  }
  for (const auto& [ranks, messages] : messages_) {
    const auto& [from, to] = ranks;
    if (!messages.sends.empty() && left_[static_cast<std::size_t>(to)]) {
      return missing(to, {OperationKind::kSend, Precision::kFloat32, messages.sends.front(), to});
    }
    if (!messages.receives.empty() && left_[static_cast<std::size_t>(from)]) {
      return missing(from, {OperationKind::kReceive, Precision::kFloat32, messages.receives.front(), from});
    }
  }
  return absl::OkStatus();
}

}  // namespace downpour::collective
