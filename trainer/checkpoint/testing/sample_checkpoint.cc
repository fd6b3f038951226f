#include "trainer/checkpoint/testing/sample_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/core/applied_table.h"
#include "trainer/core/layout.h"

namespace downpour::checkpoint::testing {
namespace {

void AddTensor(v1::CheckpointManifest& manifest, const std::string& name, const std::vector<std::int64_t>& shape,
               v1::TensorKind kind = v1::PARAMETER) {
  v1::TensorSpec* const tensor = manifest.add_tensors();
  tensor->set_name(name);
  tensor->mutable_shape()->Add(shape.begin(), shape.end());
  tensor->set_type(v1::FLOAT32);
  tensor->set_kind(kind);
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

bool Same(const core::SliceSnapshot& a, const core::SliceSnapshot& b) {
  const core::OptimizerState& left = a.optimizer;
  const core::OptimizerState& right = b.optimizer;
  return a.number == b.number && a.slice.tensor == b.slice.tensor && a.slice.offset == b.slice.offset &&
         a.slice.elements == b.slice.elements && SameBits(*a.value, *b.value) && left.type == right.type &&
         std::equal(left.vectors.begin(), left.vectors.end(), right.vectors.begin(), right.vectors.end(),
                    [](const auto& x, const auto& y) { return x.name == y.name && SameBits(*x.values, *y.values); }) &&
         std::equal(left.scalars.begin(), left.scalars.end(), right.scalars.begin(), right.scalars.end(),
                    [](const auto& x, const auto& y) { return x.name == y.name && x.value == y.value; }) &&
         a.table.SerializeAsString() == b.table.SerializeAsString();
}

}  // namespace

SampleJob MakeSampleJob(std::uint64_t seed, std::uint32_t cut, bool large) {
  std::mt19937_64 random(seed * 1000 + cut);
  SampleJob job;
  v1::CheckpointManifest& identity = job.identity;
  identity.set_job_name("sample");
  identity.set_job_uid("00112233-4455-6677-8899-aabbccddeeff");
  identity.set_generation(1);
  identity.set_incarnation(1);
  identity.set_cut(cut);
  AddTensor(identity, "conv.weight", {3, 2, 2});
  AddTensor(identity, "conv.bias", {3});
  AddTensor(identity, "norm.mean", {}, v1::BUFFER);
  AddTensor(identity, "fc.weight", {4, 5});
  if (large) AddTensor(identity, "embedding.weight", {1025, 2048});
  v1::DataPlan* const data = identity.mutable_data();
  data->set_sample_count(103);
  data->set_batch_size(4);
  data->set_updates_per_shard(3);
  data->set_epochs(4);
  data->set_seed(7);
  identity.set_mode(v1::ASYNC);
  identity.mutable_optimizer()->set_type(v1::SGD);
  identity.mutable_optimizer()->set_learning_rate(0.1);

  const core::DataPlan plan = *core::DataPlan::Create(*data);
  const std::vector<v1::TensorSpec> tensors(identity.tensors().begin(), identity.tensors().end());
  const std::vector<core::Slice> slices = *core::CutTensors(tensors);
  const auto values = [&](std::uint32_t count) {
    std::vector<float> result(count);
    for (float& value : result) value = static_cast<float>(static_cast<std::int32_t>(random())) * 1e-6F;
    return std::make_shared<const std::vector<float>>(std::move(result));
  };
  const auto epoch = static_cast<std::uint32_t>(random() % data->epochs());
  for (std::uint32_t number = 0; number < slices.size(); ++number) {
    core::SliceSnapshot snapshot;
    snapshot.number = number;
    snapshot.slice = slices[number];
    snapshot.value = values(snapshot.slice.elements);
    if (identity.tensors(static_cast<int>(snapshot.slice.tensor)).kind() == v1::BUFFER) {
      snapshot.optimizer.type = "Buffer";
    } else {
      snapshot.optimizer = {
          "Adam", {{"m", values(snapshot.slice.elements)}, {"v", values(snapshot.slice.elements)}}, {{"step", 12.5}}};
    }
    core::AppliedTable table(plan);
    for (std::uint32_t e = 0; e <= epoch; ++e) {
      for (std::uint32_t shard = 0; shard < plan.shards_in_epoch(e); ++shard) {
        for (std::uint32_t group = 0; group < plan.updates_in_shard(e, shard); ++group) {
          if (e < epoch || random() % 8 != 0) table.Insert({e, shard, group});
        }
        if (random() % 4 != 0 || e < epoch) table.Retire(e, shard);
      }
    }
    table.Advance(epoch - static_cast<std::uint32_t>(epoch > 0 ? random() % 2 : 0));
    table.Export(&snapshot.table);
    snapshot.table.set_slice(number);
    snapshot.table.set_version(random() % 1000);
    snapshot.table.set_skipped(random() % 10);
    job.slices.push_back(std::move(snapshot));
  }
  return job;
}

PsCut SamplePart(const SampleJob& job, std::uint32_t index, std::uint32_t ps_count) {
  PsCut part;
  part.checkpoint = CheckpointName(job.identity);
  part.job_uid = job.identity.job_uid();
  part.ps = index;
  part.tensors.assign(job.identity.tensors().begin(), job.identity.tensors().end());
  part.data = job.identity.data();
  std::vector<core::Slice> slices;
  for (const core::SliceSnapshot& snapshot : job.slices) slices.push_back(snapshot.slice);
  const std::vector<std::uint32_t> places = core::PlaceSlices(slices, ps_count);
  for (std::uint32_t number = 0; number < places.size(); ++number) {
    if (places[number] == index) part.slices.push_back(number);
  }
  return part;
}

absl::Status WriteSample(Store& store, const SampleJob& job, std::uint32_t ps_count) {
  if (absl::Status claimed = ClaimCheckpoint(store, job.identity); !claimed.ok()) return claimed;
  std::vector<v1::PsFiles> files;
  for (std::uint32_t ps = 0; ps < ps_count; ++ps) {
    absl::StatusOr<v1::PsFiles> written = WritePsFiles(store, SamplePart(job, ps, ps_count), [&](std::uint32_t slice) {
      return absl::StatusOr<core::SliceSnapshot>(job.slices[slice]);
    });
    if (!written.ok()) return written.status();
    files.push_back(*std::move(written));
  }
  const absl::StatusOr<v1::CheckpointManifest> manifest = MakeManifest(job.identity, std::move(files));
  return manifest.ok() ? WriteManifest(store, *manifest) : manifest.status();
}

absl::Status CompareSample(Store& store, const SampleJob& job) {
  const std::string checkpoint = CheckpointName(job.identity);
  const absl::StatusOr<v1::CheckpointManifest> manifest = ReadManifest(store, checkpoint);
  if (!manifest.ok()) return manifest.status();
  std::vector<std::uint32_t> numbers(job.slices.size());
  std::iota(numbers.begin(), numbers.end(), 0U);
  std::size_t read = 0;
  absl::Status status = ReadSlices(store, checkpoint, *manifest, numbers, [&](core::SliceSnapshot snapshot) {
    ++read;
    if (Same(snapshot, job.slices[snapshot.number])) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("slice ", snapshot.number, " is another"));
  });
  if (status.ok() && read != numbers.size()) status = absl::InternalError(absl::StrCat(read, " slices"));
  return status;
}

}  // namespace downpour::checkpoint::testing
