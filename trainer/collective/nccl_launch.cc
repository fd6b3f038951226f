#include "trainer/collective/nccl_launch.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace downpour::collective {
namespace {

std::string Text(NcclResult result) {
  switch (result) {
    case NcclResult::kSuccess:
      return "success";
    case NcclResult::kUnhandledCudaError:
      return "CUDA failed";
    case NcclResult::kSystemError:
      return "the system failed";
    case NcclResult::kInternalError:
      return "an internal error";
    case NcclResult::kInvalidArgument:
      return "an invalid argument";
    case NcclResult::kInvalidUsage:
      return "an invalid usage";
    case NcclResult::kRemoteError:
      return "a remote rank failed, or the network to it";
    case NcclResult::kInProgress:
      return "not done at once";
  }
  return absl::StrCat("result ", static_cast<int>(result));
}

}  // namespace

absl::Status NcclDone(NcclApi* api, const char* call, NcclResult result) {
  if (result == NcclResult::kSuccess) return absl::OkStatus();
  const std::string more = api->LastError();
  const std::string text = absl::StrCat(call, ": ", Text(result), more.empty() ? "" : ": ", more);
  const bool of_others = result == NcclResult::kRemoteError || result == NcclResult::kSystemError;
  return of_others ? absl::UnavailableError(text) : absl::InternalError(text);
}

absl::Status NcclBegun(NcclApi* api, const char* call, NcclResult result) {
  return result == NcclResult::kInProgress ? absl::OkStatus() : NcclDone(api, call, result);
}

NcclLaunch::NcclLaunch(const NcclPlace& place, const Operation& operation)
    : place_(place),
      operation_(operation),
      count_(operation.values.size()),
      memory_(reinterpret_cast<char*>(operation.values.data())) {
  const bool travels_as_it_is = operation.travels == Precision::kFloat32 || place.size == 1;
  NcclApi* const api = place_.api;
  if (count_ == 0) return;
  switch (operation.kind) {
    case OperationKind::kAllReduce:
    case OperationKind::kReduceScatter: {
      Part part = {0, count_};
      if (!travels_as_it_is) steps_.push_back([this] { return Prepare(); });
      steps_.push_back([this] { return Scatter(); });
      if (operation.kind == OperationKind::kAllReduce) {
        steps_.push_back([this] { return Gather(); });
      } else {
        part = PartOf(count_, place.rank, place.size);
      }
      if (!travels_as_it_is) steps_.push_back([this, part] { return Widen(part.begin, part.end); });
      break;
    }
    case OperationKind::kAllGather:
      steps_.push_back([this] { return Gather(); });
      break;
    case OperationKind::kBroadcast:
      steps_.push_back([this, api] {
        return NcclBegun(api, "ncclBroadcast",
                         api->Broadcast(memory_, count_ * width_, operation_.peer, place_.comm, place_.stream));
      });
      break;
    case OperationKind::kSend:
      steps_.push_back([this, api] {
        return NcclBegun(api, "ncclSend",
                         api->Send(memory_, count_ * width_, operation_.peer, place_.comm, place_.stream));
      });
      break;
    case OperationKind::kReceive:
      steps_.push_back([this, api] {
        return NcclBegun(api, "ncclRecv",
                         api->Receive(memory_, count_ * width_, operation_.peer, place_.comm, place_.stream));
      });
      break;
  }
}

NcclLaunch::~NcclLaunch() {
  // What it fails with the next call on the stream fails with too.
  if (scratch_ != nullptr) place_.api->Free(scratch_, place_.stream);
}

absl::Status NcclLaunch::Next() {
  const std::function<absl::Status()> step = std::move(steps_.front());
  steps_.pop_front();
  return step();
}

absl::Status NcclLaunch::Prepare() {
  element_ = NcclElement::kBfloat16;
  width_ = WidthOf(element_);
  absl::Status status =
      NcclDone(place_.api, "cudaMallocAsync", place_.api->Allocate(&scratch_, count_ * width_, place_.stream));
  if (!status.ok()) return status;
  memory_ = static_cast<char*>(scratch_);
  return NcclDone(place_.api, "rounding to bfloat16",
                  place_.api->Round(operation_.values.data(), memory_, count_, place_.stream));
}

absl::Status NcclLaunch::Scatter() {
  NcclApi* const api = place_.api;
  const std::size_t size = static_cast<std::size_t>(place_.size);
  if (count_ % size == 0) {
    const std::size_t own = count_ / size;
    return NcclBegun(api, "ncclReduceScatter",
                     api->ReduceScatter(memory_, At(static_cast<std::size_t>(place_.rank) * own), own, element_,
                                        place_.comm, place_.stream));
  }
  return ForAll("ncclReduce", [this, api](int rank, const Part& part) {
    return api->Reduce(At(part.begin), At(part.begin), part.end - part.begin, element_, rank, place_.comm,
                       place_.stream);
  });
}

absl::Status NcclLaunch::Gather() {
  NcclApi* const api = place_.api;
  const std::size_t size = static_cast<std::size_t>(place_.size);
  if (count_ % size == 0) {
    const std::size_t own = count_ / size;
    return NcclBegun(api, "ncclAllGather",
                     api->AllGather(At(static_cast<std::size_t>(place_.rank) * own), memory_, own * width_, place_.comm,
                                    place_.stream));
  }
  return ForAll("ncclBroadcast", [this, api](int rank, const Part& part) {
    return api->Broadcast(At(part.begin), (part.end - part.begin) * width_, rank, place_.comm, place_.stream);
  });
}

absl::Status NcclLaunch::ForAll(const char* name, const std::function<NcclResult(int rank, const Part& part)>& call) {
  absl::Status status = NcclDone(place_.api, "ncclGroupStart", place_.api->GroupStart());
  if (!status.ok()) return status;
  for (int rank = 0; rank < place_.size && status.ok(); ++rank) {
    const Part part = PartOf(count_, rank, place_.size);
    if (part.begin < part.end) status = NcclBegun(place_.api, name, call(rank, part));
  }
  // Also after an error: the group is this thread's, whatever communicator comes next.
  const absl::Status ended = NcclBegun(place_.api, "ncclGroupEnd", place_.api->GroupEnd());
  return status.ok() ? ended : status;
}

absl::Status NcclLaunch::Widen(std::size_t begin, std::size_t end) {
  if (begin == end) return absl::OkStatus();
  return NcclDone(place_.api, "widening of bfloat16",
                  place_.api->Widen(At(begin), operation_.values.data() + begin, end - begin, place_.stream));
}

}  // namespace downpour::collective
