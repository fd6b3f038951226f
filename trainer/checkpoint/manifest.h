#ifndef DOWNPOUR_TRAINER_CHECKPOINT_MANIFEST_H_
#define DOWNPOUR_TRAINER_CHECKPOINT_MANIFEST_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "downpour/v1/checkpoint.pb.h"
#include "downpour/v1/control.pb.h"
#include "trainer/checkpoint/store.h"
#include "trainer/core/checkpoint_name.h"
#include "trainer/core/data_plan.h"

// A checkpoint is a folder of a store: the files of each ps, and the manifest, which is written last. Only with a
// manifest is it one (docs/formats.md).
namespace downpour::checkpoint {

inline constexpr char kManifestFile[] = "MANIFEST";
// Made first: whose folder it is, while there is no manifest.
inline constexpr char kOpenFile[] = "OPEN";
std::string WeightsFileName(std::uint32_t ps);  // "ps-3.safetensors"
std::string StateFileName(std::uint32_t ps);    // "ps-3.state"

struct CheckpointId {
  std::uint32_t cut = 0;
  std::uint64_t generation = 0;
  std::uint32_t incarnation = 0;
  std::string job;  // the first eight digits of the job's uid, lower-case
  friend bool operator==(const CheckpointId&, const CheckpointId&) = default;
};

using core::CheckpointName;
std::string CheckpointName(const v1::CheckpointManifest& manifest);
// Nothing: no name that CheckpointName makes.
std::optional<CheckpointId> ParseCheckpointName(absl::string_view name);

// What slices hold in common: every dataset epoch before the watermark, and of later ones the data shards whose bit is
// set. What is not listed is not held.
struct Ledger {
  std::uint32_t watermark = 0;
  std::map<std::uint32_t, std::string> retired;  // by dataset epoch

  // What holds no slice lacks nothing.
  static Ledger Everything(const core::DataPlan& plan) { return {plan.epochs(), {}}; }
  static Ledger Of(const v1::SliceLedger& table);
  static Ledger Of(const v1::PsFiles& files);
  // Keeps what `other` holds too.
  void And(const Ledger& other);
  void Store(std::uint32_t* watermark, google::protobuf::RepeatedPtrField<v1::EpochLedger>* epochs) const;
};

// OK if it is within the plan: epochs, data shards, and no bit beyond them. kInvalidArgument otherwise.
absl::Status CheckLedger(const core::DataPlan& plan, const Ledger& ledger);
absl::Status CheckTable(const core::DataPlan& plan, const v1::SliceLedger& table);

// `base` with the files of all ps (in any order) and the ledger that follows from theirs. `updates` are those of data
// shards that every slice has whole. kInvalidArgument: CheckManifest refuses it.
absl::StatusOr<v1::CheckpointManifest> MakeManifest(v1::CheckpointManifest base, std::vector<v1::PsFiles> files);

// Each slice is in the files of exactly one ps, and the ledger is what these hold in common. kInvalidArgument
// otherwise.
absl::Status CheckManifest(const v1::CheckpointManifest& manifest);

std::string EncodeManifest(const v1::CheckpointManifest& manifest);
// Trusts nothing. kDataLoss: it is no manifest, not whole, or refused by CheckManifest.
absl::StatusOr<v1::CheckpointManifest> ParseManifest(absl::Span<const std::uint8_t> bytes);

// Says that the folder CheckpointName(identity) is about to be filled, and by whom: job, generation, incarnation, cut.
// kAlreadyExists: somebody said so before.
absl::Status ClaimCheckpoint(Store& store, const v1::CheckpointManifest& identity);
// The uid of the job whose folder it is, as ClaimCheckpoint wrote it. kNotFound: it did not.
absl::StatusOr<std::string> ReadClaim(Store& store, const std::string& checkpoint);

// Makes the folder CheckpointName(manifest) a checkpoint, for ever. kAlreadyExists: it is one. kFailedPrecondition: a
// file of it is not there, or has another size.
absl::Status WriteManifest(Store& store, const v1::CheckpointManifest& manifest);
// kNotFound: there is none, so `checkpoint` is none. kDataLoss: it is damaged; the error names the file.
absl::StatusOr<v1::CheckpointManifest> ReadManifest(Store& store, const std::string& checkpoint);

// "": every file that the manifest lists is in `files` and has its size; else which is not, for people.
std::string MissingFile(const v1::CheckpointManifest& manifest, const std::map<std::string, std::uint64_t>& files);

}  // namespace downpour::checkpoint

#endif  // DOWNPOUR_TRAINER_CHECKPOINT_MANIFEST_H_
