#include "trainer/checkpoint/manifest.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "trainer/checkpoint/about.h"
#include "trainer/checkpoint/block.h"
#include "trainer/core/bitmap.h"
#include "trainer/core/job_uid.h"
#include "trainer/core/layout.h"

namespace downpour::checkpoint {
namespace {

constexpr absl::string_view kMagic = "DPCM";
constexpr std::uint16_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 24;
constexpr std::size_t kJobDigits = 8;
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 30;

using Header = Block<kHeaderBytes>;

absl::Status CheckBits(const std::string& what, std::uint32_t bits, const std::string& bytes) {
  if (bytes.size() <= (std::size_t{bits} + 7) / 8 &&
      (bytes.size() * 8 <= bits || (static_cast<unsigned char>(bytes.back()) >> (bits % 8)) == 0)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", bytes.size(), " bytes with bits beyond ", bits));
}

// How many slices the tensors have, without making them: what is not trusted must not fill the memory.
absl::StatusOr<std::uint64_t> CountSlices(const v1::CheckpointManifest& manifest) {
  constexpr std::uint64_t kElements = core::kSliceBytes / sizeof(float);
  std::uint64_t slices = 0;
  for (const v1::TensorSpec& tensor : manifest.tensors()) {
    std::uint64_t elements = 1;
    for (const std::int64_t extent : tensor.shape()) {
      if (extent <= 0 || __builtin_mul_overflow(elements, static_cast<std::uint64_t>(extent), &elements)) {
        return absl::InvalidArgumentError(absl::StrCat("tensor ", tensor.name(), ": no shape"));
      }
    }
    if (__builtin_add_overflow(slices, elements / kElements + (elements % kElements != 0 ? 1 : 0), &slices)) {
      return absl::InvalidArgumentError("tensors: too many elements");
    }
  }
  return slices;
}

absl::Status CheckFiles(const v1::CheckpointManifest& manifest) {
  const absl::StatusOr<std::uint64_t> count = CountSlices(manifest);
  if (!count.ok()) return count.status();
  std::uint64_t listed = 0;
  for (const v1::PsFiles& files : manifest.files()) listed += static_cast<std::uint64_t>(files.slices_size());
  if (listed != *count) {
    return absl::InvalidArgumentError(absl::StrCat("the files have ", listed, " slices, the tensors ", *count));
  }
  const std::vector<v1::TensorSpec> tensors(manifest.tensors().begin(), manifest.tensors().end());
  if (const auto slices = core::CutTensors(tensors); !slices.ok()) return slices.status();
  std::vector<bool> seen(*count);
  std::set<std::uint32_t> ps;
  for (const v1::PsFiles& files : manifest.files()) {
    const std::string who = absl::StrCat("ps ", files.ps());
    if (!ps.insert(files.ps()).second) return absl::InvalidArgumentError(absl::StrCat(who, ": is there twice"));
    const std::pair<const v1::CheckpointFile&, std::string> names[] = {{files.weights(), WeightsFileName(files.ps())},
                                                                       {files.state(), StateFileName(files.ps())}};
    for (const auto& [file, name] : names) {
      if (file.name() == name) continue;
      return absl::InvalidArgumentError(absl::StrCat(who, ": file \"", file.name(), "\", expected ", name));
    }
    std::optional<std::uint32_t> before;
    for (const std::uint32_t slice : files.slices()) {
      if (slice >= *count) {
        return absl::InvalidArgumentError(absl::StrCat(who, ": slice ", slice, ", there are ", *count));
      }
      if (before.has_value() && slice <= *before) {
        return absl::InvalidArgumentError(absl::StrCat(who, ": slice ", slice, " comes after slice ", *before));
      }
      if (seen[slice]) return absl::InvalidArgumentError(absl::StrCat("slice ", slice, " is there twice"));
      seen[slice] = true;
      before = slice;
    }
  }
  return absl::OkStatus();
}

Ledger CommonLedger(const core::DataPlan& plan, const v1::CheckpointManifest& manifest) {
  Ledger common = Ledger::Everything(plan);
  for (const v1::PsFiles& files : manifest.files()) common.And(Ledger::Of(files));
  return common;
}

// What no slice lacks of the number of updates, and the data shard behind all that any of them has begun.
std::uint64_t LeastUpdates(const v1::CheckpointManifest& manifest) {
  std::uint64_t updates = std::numeric_limits<std::uint64_t>::max();
  for (const v1::PsFiles& files : manifest.files()) updates = std::min(updates, files.updates());
  return updates;
}

v1::ShardId LatestEnd(const v1::CheckpointManifest& manifest) {
  v1::ShardId end;
  for (const v1::PsFiles& files : manifest.files()) {
    if (std::pair(files.end().dataset_epoch(), files.end().shard()) > std::pair(end.dataset_epoch(), end.shard())) {
      end = files.end();
    }
  }
  return end;
}

std::string EncodeMessage(const v1::CheckpointManifest& manifest) {
  const std::string message = manifest.SerializeAsString();
  Header header;
  header.PutMagic(kMagic);
  header.Put<std::uint16_t>(4, kVersion);
  header.Put<std::uint16_t>(6, kHeaderBytes);
  header.Put<std::uint64_t>(8, message.size());
  header.Put(16, wire::Crc32c(BytesOf(message)));
  header.Seal();
  return std::string(reinterpret_cast<const char*>(header.bytes().data()), kHeaderBytes) + message;
}

// Whatever it says.
absl::StatusOr<v1::CheckpointManifest> DecodeMessage(absl::Span<const std::uint8_t> bytes) {
  if (bytes.size() < kHeaderBytes) {
    return absl::DataLossError(absl::StrCat(bytes.size(), " bytes, too short for a manifest"));
  }
  Header header;
  std::copy_n(bytes.begin(), kHeaderBytes, header.mutable_bytes().begin());
  bytes.remove_prefix(kHeaderBytes);
  if (!header.HasMagic(kMagic)) return absl::DataLossError("no manifest of a checkpoint");
  if (const auto version = header.Get<std::uint16_t>(4); version != kVersion) {
    return absl::DataLossError(absl::StrCat("format version ", version, ", expected ", kVersion));
  }
  if (const auto length = header.Get<std::uint16_t>(6); length != kHeaderBytes) {
    return absl::DataLossError(absl::StrCat("header length ", length, ", expected ", kHeaderBytes));
  }
  if (!header.IsWhole()) return absl::DataLossError("the checksum of the header is wrong");
  if (const auto length = header.Get<std::uint64_t>(8); length != bytes.size()) {
    return absl::DataLossError(absl::StrCat("a message of ", bytes.size(), " bytes, expected ", length));
  }
  const std::uint32_t expected = header.Get<std::uint32_t>(16);
  if (const std::uint32_t found = wire::Crc32c(bytes); found != expected) {
    return absl::DataLossError(absl::StrFormat("the message has checksum %08x, expected %08x", found, expected));
  }
  v1::CheckpointManifest manifest;
  if (!manifest.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::DataLossError("the message is no CheckpointManifest");
  }
  return manifest;
}

absl::StatusOr<std::vector<std::uint8_t>> ReadAll(Store& store, const std::string& name) {
  const absl::StatusOr<std::unique_ptr<StoreReader>> file = store.Open(name);
  if (!file.ok()) return file.status();
  if ((*file)->size() > kMaxBytes) {
    return absl::DataLossError(absl::StrCat(name, ": ", (*file)->size(), " bytes, too long for a manifest"));
  }
  std::vector<std::uint8_t> bytes((*file)->size());
  if (absl::Status read = (*file)->ReadAt(0, absl::MakeSpan(bytes)); !read.ok()) return read;
  return bytes;
}

absl::Status WriteAll(Store& store, const std::string& name, const std::string& content) {
  const absl::StatusOr<std::unique_ptr<StoreWriter>> file = store.Create(name);
  if (!file.ok()) return file.status();
  if (absl::Status written = (*file)->Append(BytesOf(content)); !written.ok()) return written;
  return (*file)->Commit();
}

}  // namespace

std::string WeightsFileName(std::uint32_t ps) { return absl::StrCat("ps-", ps, ".safetensors"); }
std::string StateFileName(std::uint32_t ps) { return absl::StrCat("ps-", ps, ".state"); }

std::string CheckpointName(const v1::CheckpointManifest& manifest) {
  return CheckpointName(manifest.cut(), manifest.generation(), manifest.incarnation(), manifest.job_uid());
}

std::optional<CheckpointId> ParseCheckpointName(absl::string_view name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '-');
  if (parts.size() != 5 || parts[2].empty() || parts[3].empty()) return std::nullopt;
  CheckpointId id;
  if (!absl::SimpleAtoi(parts[1], &id.cut) || !absl::SimpleAtoi(parts[2].substr(1), &id.generation) ||
      !absl::SimpleAtoi(parts[3].substr(1), &id.incarnation)) {
    return std::nullopt;
  }
  id.job = std::string(parts[4]);
  const bool digits = id.job.size() == kJobDigits && id.job.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!digits || CheckpointName(id.cut, id.generation, id.incarnation, id.job) != name) return std::nullopt;
  return id;
}

Ledger Ledger::Of(const v1::SliceLedger& table) {
  Ledger ledger{table.watermark(), {}};
  for (const v1::EpochTable& epoch : table.epochs()) ledger.retired[epoch.dataset_epoch()] = epoch.retired();
  return ledger;
}

Ledger Ledger::Of(const v1::PsFiles& files) {
  Ledger ledger{files.watermark(), {}};
  for (const v1::EpochLedger& epoch : files.ledger()) ledger.retired[epoch.dataset_epoch()] = epoch.retired();
  return ledger;
}

void Ledger::And(const Ledger& other) {
  std::map<std::uint32_t, std::string> common;
  std::set<std::uint32_t> epochs;
  for (const auto& [epoch, bits] : retired) epochs.insert(epoch);
  for (const auto& [epoch, bits] : other.retired) epochs.insert(epoch);
  for (const std::uint32_t epoch : epochs) {
    if (epoch < std::min(watermark, other.watermark)) continue;
    const auto mine = retired.find(epoch);
    const auto theirs = other.retired.find(epoch);
    std::string a = mine == retired.end() ? "" : mine->second;
    std::string b = theirs == other.retired.end() ? "" : theirs->second;
    if (epoch < watermark) {
      a = std::move(b);
    } else if (epoch >= other.watermark) {
      a.resize(std::max(a.size(), b.size()), '\0');
      b.resize(a.size(), '\0');
      for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<char>(a[i] & b[i]);
    }
    common[epoch] = std::move(a);
  }
  watermark = std::min(watermark, other.watermark);
  retired = std::move(common);
}

void Ledger::Store(std::uint32_t* number, google::protobuf::RepeatedPtrField<v1::EpochLedger>* epochs) const {
  *number = watermark;
  epochs->Clear();
  for (const auto& [epoch, bits] : retired) {
    v1::EpochLedger* const one = epochs->Add();
    one->set_dataset_epoch(epoch);
    one->set_retired(bits);
  }
}

absl::Status CheckLedger(const core::DataPlan& plan, const Ledger& ledger) {
  if (ledger.watermark > plan.epochs()) {
    return absl::InvalidArgumentError(
        absl::StrCat("watermark ", ledger.watermark, ", there are ", plan.epochs(), " dataset epochs"));
  }
  for (const auto& [epoch, retired] : ledger.retired) {
    const std::string what = absl::StrCat("dataset epoch ", epoch);
    if (epoch < ledger.watermark || epoch >= plan.epochs()) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": the watermark is ", ledger.watermark, " and there are ",
                                                     plan.epochs(), " dataset epochs"));
    }
    if (absl::Status bits = CheckBits(what, plan.shards_in_epoch(epoch), retired); !bits.ok()) return bits;
  }
  return absl::OkStatus();
}

absl::Status CheckTable(const core::DataPlan& plan, const v1::SliceLedger& table) {
  const Ledger ledger = Ledger::Of(table);
  if (ledger.retired.size() != static_cast<std::size_t>(table.epochs_size())) {
    return absl::InvalidArgumentError("a dataset epoch is there twice");
  }
  if (absl::Status status = CheckLedger(plan, ledger); !status.ok()) return status;
  for (const v1::EpochTable& epoch : table.epochs()) {
    for (const v1::ShardTable& shard : epoch.open()) {
      const std::string what = absl::StrCat("dataset epoch ", epoch.dataset_epoch(), ": data shard ", shard.shard());
      const std::uint32_t shards = plan.shards_in_epoch(epoch.dataset_epoch());
      if (shard.shard() >= shards) return absl::InvalidArgumentError(absl::StrCat(what, ", there are ", shards));
      absl::Status bits = CheckBits(what, plan.updates_in_shard(epoch.dataset_epoch(), shard.shard()), shard.applied());
      if (!bits.ok()) return bits;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::CheckpointManifest> MakeManifest(v1::CheckpointManifest base, std::vector<v1::PsFiles> files) {
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.ps() < b.ps(); });
  base.clear_files();
  for (v1::PsFiles& one : files) *base.add_files() = std::move(one);
  const absl::StatusOr<core::DataPlan> plan = core::DataPlan::Create(base.data());
  if (!plan.ok()) return plan.status();
  const Ledger common = CommonLedger(*plan, base);
  std::uint32_t watermark = 0;
  common.Store(&watermark, base.mutable_ledger());
  base.set_watermark(watermark);
  base.set_updates(LeastUpdates(base));
  *base.mutable_end() = LatestEnd(base);
  if (absl::Status valid = CheckManifest(base); !valid.ok()) return valid;
  return base;
}

absl::Status CheckManifest(const v1::CheckpointManifest& manifest) {
  if (const auto uid = core::ParseJobUid(manifest.job_uid()); !uid.ok()) return uid.status();
  const absl::StatusOr<core::DataPlan> plan = core::DataPlan::Create(manifest.data());
  if (!plan.ok()) return plan.status();
  if (absl::Status valid = CheckFiles(manifest); !valid.ok()) return valid;
  for (const v1::PsFiles& files : manifest.files()) {
    absl::Status valid = About(absl::StrCat("ps ", files.ps()), CheckLedger(*plan, Ledger::Of(files)));
    if (!valid.ok()) return valid;
  }
  v1::CheckpointManifest expected;
  const Ledger common = CommonLedger(*plan, manifest);
  std::uint32_t watermark = 0;
  common.Store(&watermark, expected.mutable_ledger());
  if (manifest.watermark() != watermark) {
    return absl::InvalidArgumentError(
        absl::StrCat("watermark ", manifest.watermark(), ", that of the files is ", watermark));
  }
  bool same = manifest.ledger_size() == expected.ledger_size();
  for (int i = 0; same && i < manifest.ledger_size(); ++i) {
    same = manifest.ledger(i).dataset_epoch() == expected.ledger(i).dataset_epoch() &&
           manifest.ledger(i).retired() == expected.ledger(i).retired();
  }
  if (!same) return absl::InvalidArgumentError("the ledger is not what the files hold in common");
  if (const std::uint64_t updates = LeastUpdates(manifest); manifest.updates() != updates) {
    return absl::InvalidArgumentError(absl::StrCat(manifest.updates(), " updates, the files have ", updates));
  }
  const v1::ShardId end = LatestEnd(manifest);
  if (manifest.end().dataset_epoch() != end.dataset_epoch() || manifest.end().shard() != end.shard()) {
    return absl::InvalidArgumentError("the end is not behind all that the files hold");
  }
  return absl::OkStatus();
}

std::string EncodeManifest(const v1::CheckpointManifest& manifest) { return EncodeMessage(manifest); }

absl::StatusOr<v1::CheckpointManifest> ParseManifest(absl::Span<const std::uint8_t> bytes) {
  absl::StatusOr<v1::CheckpointManifest> manifest = DecodeMessage(bytes);
  if (!manifest.ok()) return manifest;
  if (absl::Status valid = CheckManifest(*manifest); !valid.ok()) return absl::DataLossError(valid.message());
  return manifest;
}

absl::Status ClaimCheckpoint(Store& store, const v1::CheckpointManifest& identity) {
  if (const auto uid = core::ParseJobUid(identity.job_uid()); !uid.ok()) return uid.status();
  v1::CheckpointManifest claim;
  claim.set_job_name(identity.job_name());
  claim.set_job_uid(identity.job_uid());
  claim.set_generation(identity.generation());
  claim.set_incarnation(identity.incarnation());
  claim.set_cut(identity.cut());
  claim.set_created_seconds(identity.created_seconds());
  return WriteAll(store, absl::StrCat(CheckpointName(identity), "/", kOpenFile), EncodeMessage(claim));
}

absl::StatusOr<std::string> ReadClaim(Store& store, const std::string& checkpoint) {
  const std::string name = absl::StrCat(checkpoint, "/", kOpenFile);
  const absl::StatusOr<std::vector<std::uint8_t>> bytes = ReadAll(store, name);
  if (!bytes.ok()) return bytes.status();
  const absl::StatusOr<v1::CheckpointManifest> claim = DecodeMessage(*bytes);
  if (!claim.ok()) return About(name, claim.status());
  return claim->job_uid();
}

absl::Status WriteManifest(Store& store, const v1::CheckpointManifest& manifest) {
  if (absl::Status valid = CheckManifest(manifest); !valid.ok()) return valid;
  const std::string encoded = EncodeManifest(manifest);
  // Text that is not UTF-8 can be written and not be read.
  if (const auto again = ParseManifest(BytesOf(encoded)); !again.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("it cannot be read again: ", again.status().message()));
  }
  const std::string checkpoint = CheckpointName(manifest);
  const absl::StatusOr<std::vector<StoredFile>> listed = store.List(absl::StrCat(checkpoint, "/"));
  if (!listed.ok()) return listed.status();
  std::map<std::string, std::uint64_t> files;
  for (const StoredFile& file : *listed) files[file.name.substr(checkpoint.size() + 1)] = file.bytes;
  if (const std::string missing = MissingFile(manifest, files); !missing.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(checkpoint, ": ", missing));
  }
  return WriteAll(store, absl::StrCat(checkpoint, "/", kManifestFile), encoded);
}

absl::StatusOr<v1::CheckpointManifest> ReadManifest(Store& store, const std::string& checkpoint) {
  const std::string name = absl::StrCat(checkpoint, "/", kManifestFile);
  const absl::StatusOr<std::vector<std::uint8_t>> bytes = ReadAll(store, name);
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<v1::CheckpointManifest> manifest = ParseManifest(*bytes);
  if (!manifest.ok()) return About(name, manifest.status());
  return manifest;
}

std::string MissingFile(const v1::CheckpointManifest& manifest, const std::map<std::string, std::uint64_t>& files) {
  for (const v1::PsFiles& ps : manifest.files()) {
    for (const v1::CheckpointFile* const file : {&ps.weights(), &ps.state()}) {
      const auto found = files.find(file->name());
      if (found == files.end()) return absl::StrCat(file->name(), " is missing");
      if (found->second != file->bytes()) {
        return absl::StrCat(file->name(), " has ", found->second, " bytes, expected ", file->bytes());
      }
    }
  }
  return "";
}

}  // namespace downpour::checkpoint
