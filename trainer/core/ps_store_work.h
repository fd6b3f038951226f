#ifndef DOWNPOUR_TRAINER_CORE_PS_STORE_WORK_H_
#define DOWNPOUR_TRAINER_CORE_PS_STORE_WORK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/open_cut.h"
#include "trainer/core/planted_bug.h"
#include "trainer/core/ps_replicas.h"
#include "trainer/core/slice_snapshot.h"

namespace downpour::core {

// Whether a checkpoint that could not be read may be all right: the store is away, say, or lets nobody in. Whoever
// reads it tries on; only what is damaged, gone or does not fit is passed over for an older one.
bool RestoreMayComeYet(const absl::Status& read);

// What one ps has to write to the store and to read from it: the cut that the coordinator has ordered, and the
// checkpoint that its history begins with. Gives each out once to whoever does the I/O, and keeps what came of it for
// the coordinator. Not thread-safe.
class PsStoreWork {
 public:
  struct Options {
    std::uint32_t ps = 0;
    bool has_store = false;               // somebody writes what is given out
    std::uint64_t extra_bytes_limit = 0;  // see OpenCut
    PlantedBug bug = PlantedBug::kNone;
  };
  // `replicas` are those of the ps, in the history and view that is passed; they outlive this.
  PsStoreWork(PsReplicas* replicas, const Options& options);

  // A new history: what was read for the one before counts no more.
  void Begin();
  // As a directive says: opens a cut, seals or closes it. One that was overtaken must not close a cut, or open it
  // again.
  void Take(const v1::DirectRequest& request);
  // The cut is given up: its slices, or their forks, are not those that are here any more.
  void CloseCut() { open_cut_.reset(); }
  // A push, or a copy with pushes, of this cut is taken.
  void OnPush(std::uint32_t cut);
  // Of what the last directive ordered; null: no cut is open. Invalid once a cut is opened or closed.
  OpenCut* open_cut() { return open_cut_.has_value() ? &*open_cut_ : nullptr; }
  // Of those ordered and of pushes: another cut that is opened here has a higher one.
  std::uint32_t highest_cut() const { return highest_cut_; }
  // Of pushes.
  std::uint32_t applied_cut() const { return applied_cut_; }
  // The cut that is open, if there is one, and what came of the checkpoint.
  void Describe(bool with_cut, v1::DirectReply* reply) const;

  // ---- the open cut, for whoever writes it
  struct CutToWrite {
    std::uint32_t cut = 0;
    std::string checkpoint;
    std::vector<v1::TensorSpec> tensors;
    v1::DataPlan data;
    std::vector<std::uint32_t> slices;
  };
  // Whether TakeCutToWrite or TakeRestore has something.
  bool HasWork(const v1::View& view) const;
  // A cut that is complete and has not been given out before.
  std::optional<CutToWrite> TakeCutToWrite(const v1::View& view);
  // A slice of it, each once. What the one before shared must have been let go. kAborted: the cut is not wanted any
  // more.
  absl::StatusOr<SliceSnapshot> TakeSnapshot(std::uint32_t cut, std::uint32_t slice);
  void OnCutWritten(std::uint32_t cut, const absl::StatusOr<v1::PsFiles>& files);

  // ---- the checkpoint that the history begins with, for whoever reads it
  struct Restore {
    std::uint64_t generation = 0;
    v1::RestoreSource source;
    std::vector<std::uint32_t> slices;
  };
  // One that has not been given out before.
  std::optional<Restore> TakeRestore(const v1::View& view);
  // kAborted: of another generation; kInvalidArgument: it does not fit.
  absl::Status OnSliceRestored(const v1::View& view, std::uint64_t generation, const SliceSnapshot& snapshot);
  // `read`: whether all slices of the checkpoint that is wanted came; see RestoreMayComeYet.
  void OnRestored(const absl::Status& read);

 private:
  PsReplicas& replicas_;
  Options options_;
  std::optional<OpenCut> open_cut_;
  std::uint32_t highest_cut_ = 0;
  std::uint32_t applied_cut_ = 0;
  std::uint32_t incarnation_ = 0;  // of the newest directive
  std::uint64_t sequence_ = 0;     // likewise
  bool restore_given_out_ = false;
  std::string restore_error_, restore_waits_;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_PS_STORE_WORK_H_
