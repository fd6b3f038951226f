#include "trainer/collective/collective.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/host_port.h"

namespace downpour::collective {

std::string Describe(const Operation& operation) {
  const std::string of = absl::StrCat(" of ", operation.values.size(), " values",
                                      operation.travels == Precision::kBfloat16 ? " as bfloat16" : "");
  switch (operation.kind) {
    case OperationKind::kAllReduce:
      return absl::StrCat("all-reduce", of);
    case OperationKind::kReduceScatter:
      return absl::StrCat("reduce-scatter", of);
    case OperationKind::kAllGather:
      return absl::StrCat("all-gather", of);
    case OperationKind::kBroadcast:
      return absl::StrCat("broadcast", of, " by rank ", operation.peer);
    case OperationKind::kSend:
      return absl::StrCat("send", of, " to rank ", operation.peer);
    case OperationKind::kReceive:
      break;
  }
  return absl::StrCat("receive", of, " from rank ", operation.peer);
}

std::string DescribeMember(int rank, int size, const std::string& view) {
  return absl::StrCat("rank ", rank, " of ", size, ", view ", view);
}

Collective::Collective(int rank, int size, std::string view) : rank_(rank), size_(size), view_(std::move(view)) {}

absl::Status Collective::About(const Operation& operation, const absl::Status& status) const {
  if (status.ok()) {
    return status;
  }
  return absl::Status(status.code(), absl::StrCat(Describe(operation), ", ", DescribeMember(rank_, size_, view_), ": ",
                                                  status.message()));
}

absl::StatusOr<Handle> Collective::CheckAndStart(const Operation& operation) {
  if (operation.peer < 0 || operation.peer >= size_) {
    return About(operation, absl::InvalidArgumentError("there is no such rank"));
  }
  const bool message = operation.kind == OperationKind::kSend || operation.kind == OperationKind::kReceive;
  if (message && operation.peer == rank_) {
    return About(operation, absl::InvalidArgumentError("a rank sends nothing to itself"));
  }
  return Start(operation);
}

absl::StatusOr<Handle> Collective::StartAllReduce(absl::Span<float> values, Precision travels) {
  return CheckAndStart({OperationKind::kAllReduce, values, 0, travels});
}

absl::StatusOr<Handle> Collective::StartReduceScatter(absl::Span<float> values, Precision travels) {
  return CheckAndStart({OperationKind::kReduceScatter, values, 0, travels});
}

absl::StatusOr<Handle> Collective::StartAllGather(absl::Span<float> values) {
  return CheckAndStart({OperationKind::kAllGather, values, 0});
}

absl::StatusOr<Handle> Collective::StartBroadcast(absl::Span<float> values, int root) {
  return CheckAndStart({OperationKind::kBroadcast, values, root});
}

absl::StatusOr<Handle> Collective::StartSend(absl::Span<const float> values, int to) {
  return CheckAndStart({OperationKind::kSend, absl::MakeSpan(const_cast<float*>(values.data()), values.size()), to});
}

absl::StatusOr<Handle> Collective::StartReceive(absl::Span<float> values, int from) {
  return CheckAndStart({OperationKind::kReceive, values, from});
}

absl::Status Collective::Finish(const absl::StatusOr<Handle>& handle, absl::Duration limit) {
  return handle.ok() ? Wait(*handle, limit) : handle.status();
}

absl::Status Collective::AllReduce(absl::Span<float> values, absl::Duration limit, Precision travels) {
  return Finish(StartAllReduce(values, travels), limit);
}

absl::Status Collective::ReduceScatter(absl::Span<float> values, absl::Duration limit, Precision travels) {
  return Finish(StartReduceScatter(values, travels), limit);
}

absl::Status Collective::AllGather(absl::Span<float> values, absl::Duration limit) {
  return Finish(StartAllGather(values), limit);
}

absl::Status Collective::Broadcast(absl::Span<float> values, int root, absl::Duration limit) {
  return Finish(StartBroadcast(values, root), limit);
}

absl::Status Collective::Send(absl::Span<const float> values, int to, absl::Duration limit) {
  return Finish(StartSend(values, to), limit);
}

absl::Status Collective::Receive(absl::Span<float> values, int from, absl::Duration limit) {
  return Finish(StartReceive(values, from), limit);
}

absl::Status CheckGroupOptions(const GroupOptions& options) {
  if (options.view.empty()) {
    return absl::InvalidArgumentError("group: view is empty");
  }
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("group of view ", options.view, ": rank ", options.rank, " of ", options.size));
  }
  if (options.size > 1) {
    const absl::StatusOr<HostPort> store = SplitHostPort(options.store);
    if (!store.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("group of view ", options.view, ": store: ", store.status().message()));
    }
    if (options.host.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("group of view ", options.view, ": host is empty"));
    }
  }
  return absl::OkStatus();
}

}  // namespace downpour::collective
