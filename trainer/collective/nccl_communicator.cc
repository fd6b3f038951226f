#include "trainer/collective/nccl_communicator.h"

#include <thread>

#include "absl/strings/str_cat.h"

namespace downpour::collective {
namespace {

// Asks until it is over, or `limit` is.
template <typename Ask>
NcclResult AskUntil(const NcclClock& now, absl::Duration limit, const Ask& ask) {
  const auto until = now() + absl::ToChronoNanoseconds(limit);
  for (;;) {
    const NcclResult result = ask();
    if (result != NcclResult::kInProgress || now() >= until) return result;
    std::this_thread::sleep_for(kNcclLookPeriod);
  }
}

}  // namespace

absl::Status NcclCommunicator::Begin(int rank, int size, const NcclUniqueId& id) {
  place_.rank = rank;
  place_.size = size;
  absl::Status status = NcclDone(place_.api, "cudaStreamCreateWithFlags", place_.api->StreamCreate(&place_.stream));
  if (!status.ok()) return status;
  return NcclBegun(place_.api, "ncclCommInitRankConfig", place_.api->CommInitRank(&place_.comm, size, id, rank));
}

absl::StatusOr<bool> NcclCommunicator::Form() {
  const NcclResult result = place_.api->AsyncError(place_.comm);
  if (absl::Status status = NcclBegun(place_.api, "ncclCommInitRankConfig", result); !status.ok()) return status;
  return result == NcclResult::kSuccess;
}

absl::StatusOr<int> NcclCommunicator::Advance() {
  int complete = 0;
  NcclApi* const api = place_.api;
  for (bool moved = true; moved && busy();) {
    moved = false;
    const NcclResult state = api->AsyncError(place_.comm);
    if (absl::Status status = NcclBegun(api, "ncclCommGetAsyncError", state); !status.ok()) return status;
    if (state == NcclResult::kSuccess && (launch_.has_value() || !waiting_.empty())) {
      moved = true;
      if (!launch_.has_value()) {
        launch_.emplace(place_, waiting_.front());
        waiting_.pop_front();
      }
      if (!launch_->done()) {
        if (absl::Status status = launch_->Next(); !status.ok()) return status;
        continue;
      }
      launch_.reset();
      NcclEvent event = NcclEvent::kNone;
      absl::Status status = NcclDone(api, "cudaEventCreateWithFlags", api->EventCreate(&event));
      if (!status.ok()) return status;
      flying_.push_back(event);
      status = NcclDone(api, "cudaEventRecord", api->EventRecord(event, place_.stream));
      if (!status.ok()) return status;
    }
    while (!flying_.empty()) {
      const NcclResult result = api->EventQuery(flying_.front());
      if (absl::Status status = NcclBegun(api, "cudaEventQuery", result); !status.ok()) return status;
      if (result == NcclResult::kInProgress) break;
      const NcclEvent event = flying_.front();
      flying_.pop_front();
      absl::Status status = NcclDone(api, "cudaEventDestroy", api->EventDestroy(event));
      if (!status.ok()) return status;
      ++complete;
      moved = true;
    }
  }
  return complete;
}

absl::Status NcclCommunicator::Leave(absl::Duration limit) {
  NcclResult result = place_.api->CommFinalize(place_.comm);
  if (result == NcclResult::kInProgress) {
    result = AskUntil(now_, limit, [this] { return place_.api->AsyncError(place_.comm); });
  }
  if (result != NcclResult::kSuccess) return Abort(limit);
  // Whatever it says, the communicator is no more.
  place_.api->CommDestroy(std::exchange(place_.comm, NcclComm::kNone));
  Release();
  return absl::OkStatus();
}

absl::Status NcclCommunicator::Abort(absl::Duration limit) {
  if (place_.comm != NcclComm::kNone) place_.api->CommAbort(std::exchange(place_.comm, NcclComm::kNone));
  launch_.reset();
  // NCCL's kernels are told to end. Until they have, and what stands behind them on the stream, the values are written.
  NcclResult result = NcclResult::kSuccess;
  if (place_.stream != NcclStream::kNone) {
    result = AskUntil(now_, limit, [this] { return place_.api->StreamQuery(place_.stream); });
  }
  Release();
  if (result != NcclResult::kInProgress) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the device did not stop within ", absl::FormatDuration(limit), " after an abort"));
}

void NcclCommunicator::Release() {
  for (const NcclEvent event : flying_) place_.api->EventDestroy(event);
  flying_.clear();
  waiting_.clear();
  if (place_.stream != NcclStream::kNone) place_.api->StreamDestroy(std::exchange(place_.stream, NcclStream::kNone));
}

}  // namespace downpour::collective
