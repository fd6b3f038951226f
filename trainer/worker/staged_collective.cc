#include "trainer/worker/staged_collective.h"

#include <cstddef>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/cuda/device_event.h"

namespace downpour::worker {
namespace {

using collective::Collective;
using collective::Handle;
using collective::Operation;
using collective::OperationKind;

class StagedCollective final : public Collective {
 public:
  StagedCollective(Collective* group, cuda::DeviceKernels* kernels, StagedIn staged_in)
      : Collective(group->rank(), group->size(), group->view()),
        group_(group),
        kernels_(kernels),
        staged_in_(staged_in) {}
  ~StagedCollective() override {
    for (const Place& place : places_) {
      staged_in_ == StagedIn::kHost ? kernels_->FreeHost(place.memory) : kernels_->Free(place.memory);
    }
  }

  absl::Status Wait(Handle handle, absl::Duration limit) override {
    absl::Status waited = group_->Wait(handle, limit);
    const auto found = under_way_.find(handle);
    if (found == under_way_.end()) return waited;
    const auto [operation, place] = found->second;
    under_way_.erase(found);
    // Of one that failed, somebody may still write there.
    if (!waited.ok()) return waited;
    if (operation.kind != OperationKind::kSend) {
      waited = Moved(operation, operation.values.data(), places_[place].memory);
    }
    places_[place].taken = !waited.ok();
    return waited;
  }

  void Abort() override { group_->Abort(); }

 private:
  struct Place {
    void* memory = nullptr;
    std::size_t bytes = 0;
    bool taken = false;
  };
  struct UnderWay {
    Operation operation;
    std::size_t place;
  };

  absl::StatusOr<Handle> Start(const Operation& operation) override {
    absl::StatusOr<std::size_t> place = Take(operation.values.size() * sizeof(float));
    if (!place.ok()) return Broken(operation, place.status());
    const absl::Span<float> staged(static_cast<float*>(places_[*place].memory), operation.values.size());
    if (operation.kind != OperationKind::kReceive) {
      if (absl::Status moved = Moved(operation, staged.data(), operation.values.data()); !moved.ok()) return moved;
    }
    absl::StatusOr<Handle> handle = StartIn(operation, staged);
    if (handle.ok()) under_way_[*handle] = {operation, *place};
    if (!handle.ok()) places_[*place].taken = false;
    return handle;
  }

  absl::StatusOr<Handle> StartIn(const Operation& operation, absl::Span<float> staged) {
    switch (operation.kind) {
      case OperationKind::kAllReduce:
        return group_->StartAllReduce(staged, operation.travels);
      case OperationKind::kReduceScatter:
        return group_->StartReduceScatter(staged, operation.travels);
      case OperationKind::kAllGather:
        return group_->StartAllGather(staged);
      case OperationKind::kBroadcast:
        return group_->StartBroadcast(staged, operation.peer);
      case OperationKind::kSend:
        return group_->StartSend(staged, operation.peer);
      case OperationKind::kReceive:
        return group_->StartReceive(staged, operation.peer);
    }
    return absl::InternalError("no operation");
  }

  // The smallest that is free and large enough.
  absl::StatusOr<std::size_t> Take(std::size_t bytes) {
    std::size_t best = places_.size();
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const Place& place = places_[i];
      if (place.taken || place.bytes < bytes) continue;
      if (best == places_.size() || place.bytes < places_[best].bytes) best = i;
    }
    if (best == places_.size()) {
      const absl::StatusOr<void*> memory =
          staged_in_ == StagedIn::kHost ? kernels_->AllocateHost(bytes) : kernels_->Allocate(bytes);
      if (!memory.ok()) return memory.status();
      places_.push_back({*memory, bytes, false});
    }
    places_[best].taken = true;
    return best;
  }

  absl::Status Moved(const Operation& operation, void* to, const void* from) {
    absl::Status moved;
    if (!copied_.has_value()) {
      absl::StatusOr<cuda::DeviceEvent> event = cuda::DeviceEvent::Create(kernels_);
      moved = event.status();
      if (event.ok()) copied_ = *std::move(event);
    }
    if (moved.ok()) moved = kernels_->Copy(to, from, operation.values.size() * sizeof(float));
    if (moved.ok()) moved = copied_->AwaitAll();
    return moved.ok() ? moved : Broken(operation, moved);
  }

  // Others must not wait for what does not come.
  absl::Status Broken(const Operation& operation, const absl::Status& status) {
    group_->Abort();
    return About(operation, absl::InternalError(status.message()));
  }

  Collective* const group_;
  cuda::DeviceKernels* const kernels_;
  const StagedIn staged_in_;
  std::optional<cuda::DeviceEvent> copied_;
  std::vector<Place> places_;
  std::map<Handle, UnderWay> under_way_;
};

}  // namespace

std::unique_ptr<collective::Collective> StageValues(collective::Collective* group, cuda::DeviceKernels* kernels,
                                                    StagedIn staged_in) {
  return std::make_unique<StagedCollective>(group, kernels, staged_in);
}

}  // namespace downpour::worker
