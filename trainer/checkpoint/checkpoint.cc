#include "trainer/checkpoint/checkpoint.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/checkpoint/about.h"
#include "trainer/checkpoint/block.h"
#include "trainer/checkpoint/state_file.h"
#include "trainer/core/bitmap.h"
#include "trainer/core/job_uid.h"
#include "trainer/core/layout.h"

namespace downpour::checkpoint {
namespace {

// The data shard behind all that the table has something of.
std::pair<std::uint32_t, std::uint32_t> EndOf(const core::DataPlan& plan, const v1::SliceLedger& table) {
  std::pair<std::uint32_t, std::uint32_t> end(table.watermark(), 0);
  for (const v1::EpochTable& epoch : table.epochs()) {
    const std::uint32_t shards = plan.shards_in_epoch(epoch.dataset_epoch());
    const core::Bitmap retired = core::Bitmap::FromBytes(shards, epoch.retired());
    for (std::uint32_t shard = 0; shard < shards; ++shard) {
      if (retired.Test(shard)) end = std::max(end, std::pair(epoch.dataset_epoch(), shard + 1));
    }
    for (const v1::ShardTable& open : epoch.open()) {
      end = std::max(end, std::pair(epoch.dataset_epoch(), open.shard() + 1));
    }
  }
  return end;
}

std::string Path(const std::string& checkpoint, absl::string_view file) { return absl::StrCat(checkpoint, "/", file); }

// What the weights file of a ps begins with. A tensor that is one slice is there under its name, as it is; a piece of
// one is flat and says where it begins.
absl::StatusOr<std::string> WeightsHeader(const std::string& checkpoint, std::uint32_t ps,
                                          absl::Span<const v1::TensorSpec> tensors, absl::Span<const core::Slice> all,
                                          absl::Span<const std::uint32_t> slices) {
  std::vector<TensorShape> shapes;
  shapes.reserve(slices.size());
  for (const std::uint32_t number : slices) {
    const core::Slice& slice = all[number];
    const v1::TensorSpec& tensor = tensors[slice.tensor];
    const bool last = number + 1 == all.size() || all[number + 1].tensor != slice.tensor;
    if (slice.offset == 0 && last) {
      shapes.push_back({tensor.name(), {tensor.shape().begin(), tensor.shape().end()}});
    } else {
      shapes.push_back({absl::StrCat(tensor.name(), "/", slice.offset), {slice.elements}});
    }
  }
  return EncodeSafetensorsHeader(shapes, {{"format", "pt"}, {"checkpoint", checkpoint}, {"ps", absl::StrCat(ps)}});
}

absl::Status CheckSnapshot(const core::SliceSnapshot& snapshot, std::uint32_t number, const core::Slice& slice) {
  const std::size_t elements = snapshot.value == nullptr ? 0 : snapshot.value->size();
  if (snapshot.number == number && snapshot.slice.elements == slice.elements && elements == slice.elements) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("the snapshot of slice ", snapshot.number, " with ", elements,
                                                 " elements, expected slice ", number, " with ", slice.elements));
}

// Reads slices of a checkpoint; keeps the files open that it has come to. `manifest` and the store must outlive it.
class SliceReader {
 public:
  static absl::StatusOr<std::unique_ptr<SliceReader>> Create(Store& store, const std::string& checkpoint,
                                                             const v1::CheckpointManifest& manifest) {
    std::unique_ptr<SliceReader> reader(new SliceReader(store, checkpoint, manifest));
    if (absl::Status valid = About(Path(checkpoint, kManifestFile), CheckManifest(manifest)); !valid.ok()) return valid;
    reader->tensors_.assign(manifest.tensors().begin(), manifest.tensors().end());
    reader->slices_ = *core::CutTensors(reader->tensors_);
    reader->plan_ = *core::DataPlan::Create(manifest.data());
    reader->job_uid_ = *core::ParseJobUid(manifest.job_uid());
    reader->parts_.resize(static_cast<std::size_t>(manifest.files_size()));
    reader->owners_.resize(reader->slices_.size());
    for (int i = 0; i < manifest.files_size(); ++i) {
      for (const std::uint32_t slice : manifest.files(i).slices()) reader->owners_[slice] = i;
    }
    return reader;
  }

  absl::Span<const core::Slice> slices() const { return slices_; }
  // Where in the manifest the ps is that has the slice.
  int owner(std::uint32_t slice) const { return owners_[slice]; }

  absl::StatusOr<core::SliceSnapshot> Read(std::uint32_t number) {
    const absl::StatusOr<Found> found = Find(number);
    if (!found.ok()) return found.status();
    core::SliceSnapshot snapshot;
    snapshot.number = number;
    snapshot.slice = slices_[number];
    absl::StatusOr<std::vector<float>> value = ReadValue(*found, number);
    if (!value.ok()) return value.status();
    snapshot.value = std::make_shared<const std::vector<float>>(*std::move(value));
    absl::StatusOr<StateFileReader::Contents> contents = found->part->state->Read(*found->record);
    if (!contents.ok()) return contents.status();
    snapshot.optimizer.type = contents->state.optimizer();
    snapshot.optimizer.vectors = std::move(contents->vectors);
    for (const v1::StateScalar& scalar : contents->state.scalars()) {
      snapshot.optimizer.scalars.push_back({scalar.name(), scalar.value()});
    }
    if (contents->state.table().slice() != number) {
      return Wrong(number, StateName(number), absl::StrCat("its table is of slice ", contents->state.table().slice()));
    }
    if (absl::Status valid = CheckTable(plan_, contents->state.table()); !valid.ok()) {
      return Wrong(number, StateName(number), absl::StrCat("its table: ", valid.message()));
    }
    snapshot.table = std::move(*contents->state.mutable_table());
    return snapshot;
  }

  absl::StatusOr<std::vector<float>> ReadValue(std::uint32_t number) {
    const absl::StatusOr<Found> found = Find(number);
    if (!found.ok()) return found.status();
    return ReadValue(*found, number);
  }

  // All of one ps: also what loading its slices does not need.
  absl::Status VerifyPs(int index) {
    const v1::PsFiles& files = manifest_.files(index);
    if (absl::Status opened = OpenPart(index); !opened.ok()) return opened;
    const Part& part = *parts_[static_cast<std::size_t>(index)];
    const std::string weights = Path(checkpoint_, files.weights().name());
    absl::StatusOr<std::string> expected =
        WeightsHeader(CheckpointName(manifest_), files.ps(), tensors_, slices_,
                      std::vector<std::uint32_t>(files.slices().begin(), files.slices().end()));
    if (!expected.ok()) return About(weights, absl::DataLossError(expected.status().message()));
    std::uint64_t position = expected->size();
    std::string header(std::min<std::uint64_t>(position, part.weights->size()), '\0');
    absl::Status read = part.weights->ReadAt(0, {reinterpret_cast<std::uint8_t*>(header.data()), header.size()});
    if (!read.ok()) return read;
    if (header != *expected) return About(weights, absl::DataLossError("the header is not that of its slices"));

    Ledger common = Ledger::Everything(plan_);
    std::uint64_t updates = std::numeric_limits<std::uint64_t>::max();
    std::pair<std::uint32_t, std::uint32_t> end(0, 0);
    for (const StateRecord& record : part.state->records()) {
      if (record.value_begin != position) {
        return Wrong(record.slice, weights, absl::StrCat("begins at ", record.value_begin, ", expected ", position));
      }
      position += slices_[record.slice].bytes();
      const absl::StatusOr<core::SliceSnapshot> snapshot = Read(record.slice);
      if (!snapshot.ok()) return snapshot.status();
      common.And(Ledger::Of(snapshot->table));
      updates = std::min(updates, snapshot->table.version());
      end = std::max(end, EndOf(plan_, snapshot->table));
    }
    if (position != part.weights->size()) {
      return About(weights, absl::DataLossError(absl::StrCat(part.weights->size(), " bytes, expected ", position)));
    }
    const Ledger said = Ledger::Of(files);
    if (common.watermark != said.watermark || common.retired != said.retired || updates != files.updates() ||
        end != std::pair(files.end().dataset_epoch(), files.end().shard())) {
      return About(Path(checkpoint_, kManifestFile),
                   absl::DataLossError(absl::StrCat("ps ", files.ps(), ": the ledger is not that of its slices")));
    }
    return absl::OkStatus();
  }

 private:
  struct Part {
    std::unique_ptr<StoreReader> weights;
    std::unique_ptr<StateFileReader> state;
  };
  struct Found {
    const Part* part;
    const StateRecord* record;
  };

  SliceReader(Store& store, std::string checkpoint, const v1::CheckpointManifest& manifest)
      : store_(store), checkpoint_(std::move(checkpoint)), manifest_(manifest) {}

  std::string WeightsName(std::uint32_t slice) const {
    return Path(checkpoint_, manifest_.files(owners_[slice]).weights().name());
  }
  std::string StateName(std::uint32_t slice) const {
    return Path(checkpoint_, manifest_.files(owners_[slice]).state().name());
  }

  absl::Status Wrong(std::uint32_t slice, const std::string& file, const std::string& what) const {
    return absl::DataLossError(
        absl::StrCat(file, ": slice ", slice, " (", tensors_[slices_[slice].tensor].name(), "): ", what));
  }

  absl::StatusOr<std::unique_ptr<StoreReader>> OpenFile(const v1::CheckpointFile& file) {
    const std::string name = Path(checkpoint_, file.name());
    absl::StatusOr<std::unique_ptr<StoreReader>> reader = store_.Open(name);
    if (absl::IsNotFound(reader.status())) return absl::DataLossError(absl::StrCat(name, " is missing"));
    if (reader.ok() && (*reader)->size() != file.bytes()) {
      return absl::DataLossError(absl::StrCat(name, " has ", (*reader)->size(), " bytes, expected ", file.bytes()));
    }
    return reader;
  }

  absl::Status OpenPart(int index) {
    std::optional<Part>& part = parts_[static_cast<std::size_t>(index)];
    if (part.has_value()) return absl::OkStatus();
    const v1::PsFiles& files = manifest_.files(index);
    absl::StatusOr<std::unique_ptr<StoreReader>> weights = OpenFile(files.weights());
    if (!weights.ok()) return weights.status();
    absl::StatusOr<std::unique_ptr<StoreReader>> file = OpenFile(files.state());
    if (!file.ok()) return file.status();
    const std::string name = Path(checkpoint_, files.state().name());
    absl::StatusOr<std::unique_ptr<StateFileReader>> state = StateFileReader::Open(*std::move(file), name);
    if (!state.ok()) return state.status();
    const StateFileHeader expected{job_uid_, manifest_.generation(), manifest_.incarnation(), manifest_.cut(),
                                   files.ps()};
    if (const StateFileHeader& found = (*state)->header(); found != expected) {
      return absl::DataLossError(
          absl::StrFormat("%s: of ps %d, cut %d, generation %d, incarnation %d%s, expected ps %d, cut %d, generation "
                          "%d, incarnation %d",
                          name, found.ps, found.cut, found.generation, found.incarnation,
                          found.job_uid == expected.job_uid ? "" : " of another job", expected.ps, expected.cut,
                          expected.generation, expected.incarnation));
    }
    const std::vector<StateRecord>& records = (*state)->records();
    const bool same = std::equal(records.begin(), records.end(), files.slices().begin(), files.slices().end(),
                                 [](const StateRecord& record, std::uint32_t slice) { return record.slice == slice; });
    if (!same) return absl::DataLossError(absl::StrCat(name, ": not the slices that the manifest lists"));
    part = Part{*std::move(weights), *std::move(state)};
    return absl::OkStatus();
  }

  absl::StatusOr<Found> Find(std::uint32_t number) {
    if (number >= slices_.size()) {
      return absl::InvalidArgumentError(absl::StrCat("slice ", number, ": there are ", slices_.size()));
    }
    if (absl::Status opened = OpenPart(owners_[number]); !opened.ok()) return opened;
    const Part& part = *parts_[static_cast<std::size_t>(owners_[number])];
    const auto record = std::lower_bound(part.state->records().begin(), part.state->records().end(), number,
                                         [](const StateRecord& one, std::uint32_t slice) { return one.slice < slice; });
    const core::Slice& slice = slices_[number];
    if (record->elements != slice.elements) {
      return Wrong(number, StateName(number),
                   absl::StrCat("has ", record->elements, " elements, expected ", slice.elements));
    }
    if (record->value_begin > part.weights->size() || slice.bytes() > part.weights->size() - record->value_begin) {
      return Wrong(number, WeightsName(number), absl::StrCat("begins at ", record->value_begin, ", beyond the file"));
    }
    return Found{&part, &*record};
  }

  absl::StatusOr<std::vector<float>> ReadValue(const Found& found, std::uint32_t number) {
    std::vector<float> value(slices_[number].elements);
    absl::Status read = found.part->weights->ReadAt(found.record->value_begin, MutableBytesOf(absl::MakeSpan(value)));
    if (!read.ok()) return read;
    if (const std::uint32_t checksum = wire::Crc32c(BytesOf(value)); checksum != found.record->value_checksum) {
      return Wrong(
          number, WeightsName(number),
          absl::StrFormat("the value has checksum %08x, expected %08x", checksum, found.record->value_checksum));
    }
    return value;
  }

  Store& store_;
  const std::string checkpoint_;
  const v1::CheckpointManifest& manifest_;
  std::vector<v1::TensorSpec> tensors_;
  std::vector<core::Slice> slices_;
  core::DataPlan plan_;
  core::JobUid job_uid_{};
  std::vector<int> owners_;  // by slice
  std::vector<std::optional<Part>> parts_;
};

absl::Status CheckFolderName(const std::string& checkpoint) {
  if (absl::Status valid = CheckStoreName(checkpoint); !valid.ok()) return valid;
  if (!absl::StrContains(checkpoint, '/')) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("\"", checkpoint, "\": no name of a checkpoint"));
}

// Folders that are named like checkpoints, with their files and sizes.
using Folders = std::map<std::string, std::map<std::string, std::uint64_t>>;

absl::StatusOr<Folders> ListFolders(Store& store) {
  const absl::StatusOr<std::vector<StoredFile>> files = store.List("cut-");
  if (!files.ok()) return files.status();
  Folders folders;
  for (const StoredFile& file : *files) {
    const std::size_t slash = file.name.find('/');
    if (slash == std::string::npos) continue;
    const std::string folder = file.name.substr(0, slash);
    if (ParseCheckpointName(folder).has_value()) folders[folder][file.name.substr(slash + 1)] = file.bytes;
  }
  return folders;
}

bool IsNewer(const std::string& a, const std::string& b) {
  const auto key = [](const std::string& name) {
    const CheckpointId id = *ParseCheckpointName(name);
    return std::make_tuple(id.cut, id.generation, id.incarnation, id.job);
  };
  return key(a) > key(b);
}

}  // namespace

CheckpointLocation ParseCheckpointUri(absl::string_view uri) {
  absl::string_view folder = uri;
  while (folder.size() > 1 && absl::EndsWith(folder, "/")) folder.remove_suffix(1);
  const std::size_t slash = folder.rfind('/');
  const absl::string_view name = slash == absl::string_view::npos ? folder : folder.substr(slash + 1);
  if (!ParseCheckpointName(name).has_value()) return {std::string(uri), ""};
  std::string store =
      slash == absl::string_view::npos ? "." : std::string(folder.substr(0, std::max<std::size_t>(slash, 1)));
  return {std::move(store), std::string(name)};
}

absl::StatusOr<v1::PsFiles> WritePsFiles(Store& store, const PsCut& cut, const TakeSnapshot& take) {
  const std::optional<CheckpointId> id = ParseCheckpointName(cut.checkpoint);
  if (!id.has_value()) return absl::InvalidArgumentError(absl::StrCat(cut.checkpoint, ": no name of a checkpoint"));
  const absl::StatusOr<core::JobUid> job_uid = core::ParseJobUid(cut.job_uid);
  if (!job_uid.ok()) return job_uid.status();
  const absl::StatusOr<core::DataPlan> plan = core::DataPlan::Create(cut.data);
  if (!plan.ok()) return plan.status();
  const absl::StatusOr<std::vector<core::Slice>> all = core::CutTensors(cut.tensors);
  if (!all.ok()) return all.status();
  for (std::size_t i = 0; i < cut.slices.size(); ++i) {
    if (cut.slices[i] >= all->size() || (i > 0 && cut.slices[i] <= cut.slices[i - 1])) {
      return absl::InvalidArgumentError(absl::StrCat("slice ", cut.slices[i], ": twice, out of order or too large"));
    }
  }
  v1::PsFiles files;
  files.set_ps(cut.ps);
  files.mutable_slices()->Add(cut.slices.begin(), cut.slices.end());
  files.mutable_weights()->set_name(WeightsFileName(cut.ps));
  files.mutable_state()->set_name(StateFileName(cut.ps));
  const std::string weights_name = Path(cut.checkpoint, files.weights().name());
  const std::string state_name = Path(cut.checkpoint, files.state().name());

  const absl::StatusOr<std::string> header = WeightsHeader(cut.checkpoint, cut.ps, cut.tensors, *all, cut.slices);
  if (!header.ok()) return About(weights_name, header.status());
  const absl::StatusOr<std::unique_ptr<StoreWriter>> weights = store.Create(weights_name);
  if (!weights.ok()) return weights.status();
  const absl::StatusOr<std::unique_ptr<StoreWriter>> state = store.Create(state_name);
  if (!state.ok()) return state.status();
  StateFileWriter records(**state);
  absl::Status status = (*weights)->Append(BytesOf(*header));
  if (status.ok()) {
    status = records.Begin({*job_uid, id->generation, id->incarnation, id->cut, cut.ps});
  }
  std::uint64_t position = header->size();
  Ledger common = Ledger::Everything(*plan);
  std::uint64_t updates = std::numeric_limits<std::uint64_t>::max();
  std::pair<std::uint32_t, std::uint32_t> end(0, 0);
  for (const std::uint32_t number : cut.slices) {
    if (!status.ok()) return status;
    const absl::StatusOr<core::SliceSnapshot> snapshot = take(number);
    if (!snapshot.ok()) return snapshot.status();
    status = CheckSnapshot(*snapshot, number, (*all)[number]);
    if (status.ok()) status = About(absl::StrCat("slice ", number), CheckTable(*plan, snapshot->table));
    if (status.ok()) status = (*weights)->Append(BytesOf(*snapshot->value));
    if (status.ok()) status = records.Append(*snapshot, position);
    position += (*all)[number].bytes();
    common.And(Ledger::Of(snapshot->table));
    updates = std::min(updates, snapshot->table.version());
    end = std::max(end, EndOf(*plan, snapshot->table));
  }
  if (status.ok()) status = records.Finish();
  if (status.ok()) status = (*weights)->Commit();
  if (!status.ok()) return status;
  if (status = (*state)->Commit(); !status.ok()) {
    // The other one alone is of no use, and may take the room that was lacking. If it stays it goes with the folder.
    store.Remove(weights_name).IgnoreError();
    return status;
  }
  files.mutable_weights()->set_bytes(position);
  files.mutable_state()->set_bytes(records.bytes());
  std::uint32_t watermark = 0;
  common.Store(&watermark, files.mutable_ledger());
  files.set_watermark(watermark);
  files.set_updates(updates);
  files.mutable_end()->set_dataset_epoch(end.first);
  files.mutable_end()->set_shard(end.second);
  return files;
}

absl::Status ReadSlices(Store& store, const std::string& checkpoint, const v1::CheckpointManifest& manifest,
                        absl::Span<const std::uint32_t> slices, const SnapshotSink& sink) {
  const absl::StatusOr<std::unique_ptr<SliceReader>> reader = SliceReader::Create(store, checkpoint, manifest);
  if (!reader.ok()) return reader.status();
  const std::size_t count = (*reader)->slices().size();
  std::vector<std::uint32_t> order(slices.begin(), slices.end());
  for (const std::uint32_t slice : order) {
    if (slice >= count) return absl::InvalidArgumentError(absl::StrCat("slice ", slice, ": there are ", count));
  }
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::pair((*reader)->owner(a), a) < std::pair((*reader)->owner(b), b);
  });
  for (const std::uint32_t slice : order) {
    absl::StatusOr<core::SliceSnapshot> snapshot = (*reader)->Read(slice);
    if (!snapshot.ok()) return snapshot.status();
    if (absl::Status taken = sink(*std::move(snapshot)); !taken.ok()) return taken;
  }
  return absl::OkStatus();
}

absl::Status ReadSlices(const v1::RestoreSource& source, absl::Span<const std::uint32_t> slices,
                        const SnapshotSink& sink) {
  const absl::StatusOr<std::unique_ptr<Store>> store = OpenStore(source.store());
  if (!store.ok()) return store.status();
  const absl::StatusOr<v1::CheckpointManifest> manifest = ReadManifest(**store, source.checkpoint());
  if (!manifest.ok()) return manifest.status();
  return ReadSlices(**store, source.checkpoint(), *manifest, slices, sink);
}

absl::Status Verify(Store& store, const std::string& checkpoint) {
  if (absl::Status valid = CheckFolderName(checkpoint); !valid.ok()) return valid;
  const absl::StatusOr<v1::CheckpointManifest> manifest = ReadManifest(store, checkpoint);
  if (!manifest.ok()) return manifest.status();
  const absl::StatusOr<std::unique_ptr<SliceReader>> reader = SliceReader::Create(store, checkpoint, *manifest);
  if (!reader.ok()) return reader.status();
  for (int i = 0; i < manifest->files_size(); ++i) {
    if (absl::Status whole = (*reader)->VerifyPs(i); !whole.ok()) return whole;
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckpointList> ListCheckpoints(Store& store) {
  const absl::StatusOr<Folders> folders = ListFolders(store);
  if (!folders.ok()) return folders.status();
  CheckpointList list;
  for (const auto& [name, files] : *folders) {
    if (!files.contains(kManifestFile)) {
      list.skipped.push_back({name, "there is no manifest: it is being written, or was left", true});
      continue;
    }
    absl::StatusOr<v1::CheckpointManifest> manifest = ReadManifest(store, name);
    // Removed meanwhile, or damaged; anything else may be over soon, and must not make a checkpoint forgotten.
    if (absl::IsNotFound(manifest.status())) continue;
    if (!manifest.ok() && !absl::IsDataLoss(manifest.status())) return manifest.status();
    std::string wrong(manifest.status().message());
    if (manifest.ok()) wrong = MissingFile(*manifest, files);
    if (wrong.empty() && CheckpointName(*manifest) != name) {
      wrong = absl::StrCat("its manifest is that of ", CheckpointName(*manifest));
    }
    if (!wrong.empty()) {
      list.skipped.push_back({name, wrong, false});
      continue;
    }
    ListedCheckpoint checkpoint{name, *std::move(manifest), 0};
    for (const auto& [file, bytes] : files) checkpoint.bytes += bytes;
    list.checkpoints.push_back(std::move(checkpoint));
  }
  const auto newer = [](const auto& a, const auto& b) { return IsNewer(a.name, b.name); };
  std::sort(list.checkpoints.begin(), list.checkpoints.end(), newer);
  std::sort(list.skipped.begin(), list.skipped.end(), newer);
  return list;
}

absl::StatusOr<WrittenFile> Export(Store& store, const std::string& checkpoint, const std::string& path) {
  const absl::StatusOr<v1::CheckpointManifest> manifest = ReadManifest(store, checkpoint);
  if (!manifest.ok()) return manifest.status();
  const absl::StatusOr<std::unique_ptr<SliceReader>> reader = SliceReader::Create(store, checkpoint, *manifest);
  if (!reader.ok()) return reader.status();
  std::vector<TensorShape> tensors;
  for (const v1::TensorSpec& tensor : manifest->tensors()) {
    tensors.push_back({tensor.name(), {tensor.shape().begin(), tensor.shape().end()}});
  }
  // The numbers of the slices follow the tensors and the places in them.
  return WriteSafetensors(path, tensors,
                          {{"format", "pt"}, {"job", manifest->job_name()}, {"checkpoint", CheckpointName(*manifest)}},
                          [&](const ValueSink& sink) {
                            const auto count = static_cast<std::uint32_t>((*reader)->slices().size());
                            for (std::uint32_t slice = 0; slice < count; ++slice) {
                              const absl::StatusOr<std::vector<float>> value = (*reader)->ReadValue(slice);
                              if (!value.ok()) return value.status();
                              if (absl::Status taken = sink(*value); !taken.ok()) return taken;
                            }
                            return absl::OkStatus();
                          });
}

absl::Status Remove(Store& store, const std::string& checkpoint) {
  if (absl::Status valid = CheckFolderName(checkpoint); !valid.ok()) return valid;
  const std::string folder = absl::StrCat(checkpoint, "/");
  const absl::StatusOr<std::vector<StoredFile>> files = store.List(folder);
  if (!files.ok()) return files.status();
  if (absl::Status removed = store.Remove(folder + kManifestFile); !removed.ok()) return removed;
  for (const StoredFile& file : *files) {
    if (file.name == folder + kOpenFile) continue;
    if (absl::Status removed = store.Remove(file.name); !removed.ok()) return removed;
  }
  if (absl::Status removed = store.RemoveLeftovers(folder); !removed.ok()) return removed;
  // Last: as long as anything is there, it says whose it is.
  return store.Remove(folder + kOpenFile);
}

absl::StatusOr<std::vector<std::string>> RemoveUnfinished(Store& store, const std::string& job_uid,
                                                          std::uint32_t incarnation) {
  const absl::StatusOr<core::JobUid> own = core::ParseJobUid(job_uid);
  if (!own.ok()) return own.status();
  const absl::StatusOr<Folders> folders = ListFolders(store);
  if (!folders.ok()) return folders.status();
  std::vector<std::string> removed;
  for (const auto& [name, files] : *folders) {
    const CheckpointId id = *ParseCheckpointName(name);
    const bool older = CheckpointName(id.cut, id.generation, id.incarnation, job_uid) == name &&
                       id.incarnation < incarnation && !files.contains(kManifestFile);
    if (!older) continue;
    // Eight digits in common are no proof.
    const absl::StatusOr<std::string> claim = ReadClaim(store, name);
    if (!claim.ok() && !absl::IsNotFound(claim.status()) && !absl::IsDataLoss(claim.status())) return claim.status();
    if (claim.ok() && core::ParseJobUid(*claim) != own) continue;
    if (absl::Status gone = Remove(store, name); !gone.ok()) return gone;
    removed.push_back(name);
  }
  return removed;
}

}  // namespace downpour::checkpoint
