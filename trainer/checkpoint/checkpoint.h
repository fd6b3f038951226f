#ifndef DOWNPOUR_TRAINER_CHECKPOINT_CHECKPOINT_H_
#define DOWNPOUR_TRAINER_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "downpour/v1/checkpoint.pb.h"
#include "downpour/v1/control.pb.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/store.h"
#include "trainer/core/slice_snapshot.h"

// Checkpoints as a whole: what a ps writes and loads, what is there, what is wrong with it. All of it waits for the
// store; none of it keeps more than one slice in memory.
namespace downpour::checkpoint {

// Where a user says that checkpoints are: a folder of them or, if its last part is named like one, that one in it.
struct CheckpointLocation {
  std::string store;       // URI
  std::string checkpoint;  // empty: the folder as a whole
};
CheckpointLocation ParseCheckpointUri(absl::string_view uri);

// What one ps is to write of a cut.
struct PsCut {
  std::string checkpoint;  // of CheckpointName
  std::string job_uid;
  std::uint32_t ps = 0;
  std::vector<v1::TensorSpec> tensors;
  v1::DataPlan data;
  std::vector<std::uint32_t> slices;  // that it holds, ascending; may be none
};

// Hands a slice's snapshot over. Asked once for each slice, in their order; the snapshot goes before the next one.
using TakeSnapshot = std::function<absl::StatusOr<core::SliceSnapshot>(std::uint32_t slice)>;

// Both files of the ps, durable. After an error neither is there, unless it cannot be removed. kAlreadyExists: one was
// there before. What `take` answers ends it.
absl::StatusOr<v1::PsFiles> WritePsFiles(Store& store, const PsCut& cut, const TakeSnapshot& take);

// Hands these slices to `sink`, by the ps that wrote them. Everything handed over is as it was written: errors
// (kDataLoss) name the file, the slice and its tensor, and what was found. `manifest` is that of `checkpoint`. What
// `sink` answers ends it.
using SnapshotSink = std::function<absl::Status(core::SliceSnapshot)>;
absl::Status ReadSlices(Store& store, const std::string& checkpoint, const v1::CheckpointManifest& manifest,
                        absl::Span<const std::uint32_t> slices, const SnapshotSink& sink);
// Likewise, of the checkpoint that a view begins with; its store is opened for that.
absl::Status ReadSlices(const v1::RestoreSource& source, absl::Span<const std::uint32_t> slices,
                        const SnapshotSink& sink);

// Reads all of it. OK: every byte is as it was written. kNotFound: no checkpoint of that name; kDataLoss: the first
// thing that is wrong.
absl::Status Verify(Store& store, const std::string& checkpoint);

struct ListedCheckpoint {
  std::string name;
  v1::CheckpointManifest manifest;
  std::uint64_t bytes = 0;  // of all its files
};

// What looks like a checkpoint and is none.
struct SkippedCheckpoint {
  std::string name;
  std::string reason;       // "ps-1.state has 100 bytes, expected 2000"
  bool unfinished = false;  // without a manifest: being written, or left over
};

struct CheckpointList {
  std::vector<ListedCheckpoint> checkpoints;  // the newest first: by cut, then generation, then incarnation
  std::vector<SkippedCheckpoint> skipped;     // likewise
};

// Those whose manifest is sound and whose files have the right sizes; their content is not looked at. An error means
// that the store did not answer, never that a checkpoint is damaged.
absl::StatusOr<CheckpointList> ListCheckpoints(Store& store);

// One model file at `path`, of this machine: all tensors, whole, parameters and buffers; see WriteSafetensors.
absl::StatusOr<WrittenFile> Export(Store& store, const std::string& checkpoint, const std::string& path);

// The manifest goes first: what is only half removed is no checkpoint.
absl::Status Remove(Store& store, const std::string& checkpoint);

// Folders of this job without a manifest that older incarnations than this one left; the names of what went. Those of
// other jobs stay.
absl::StatusOr<std::vector<std::string>> RemoveUnfinished(Store& store, const std::string& job_uid,
                                                          std::uint32_t incarnation);

}  // namespace downpour::checkpoint

#endif  // DOWNPOUR_TRAINER_CHECKPOINT_CHECKPOINT_H_
