#ifndef DOWNPOUR_TRAINER_CHECKPOINT_TESTING_SAMPLE_CHECKPOINT_H_
#define DOWNPOUR_TRAINER_CHECKPOINT_TESTING_SAMPLE_CHECKPOINT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/checkpoint/checkpoint.h"

// A job that has something to write: a small model with one tensor of several slices, optimizers with state, tables in
// the middle of an epoch. Everything follows from the seed.
namespace downpour::checkpoint::testing {

struct SampleJob {
  v1::CheckpointManifest identity;  // with tensors and data, as MakeManifest wants its `base`
  std::vector<core::SliceSnapshot> slices;
};

// `large`: with a tensor of more than one slice (8 MiB in all).
SampleJob MakeSampleJob(std::uint64_t seed, std::uint32_t cut = 1, bool large = false);

// What ps `index` of `ps_count` has of it.
PsCut SamplePart(const SampleJob& job, std::uint32_t index, std::uint32_t ps_count);

// The whole way: claim, files of every ps, manifest.
absl::Status WriteSample(Store& store, const SampleJob& job, std::uint32_t ps_count);

// OK if all slices can be loaded and are those of the job, bit by bit.
absl::Status CompareSample(Store& store, const SampleJob& job);

}  // namespace downpour::checkpoint::testing

#endif  // DOWNPOUR_TRAINER_CHECKPOINT_TESTING_SAMPLE_CHECKPOINT_H_
