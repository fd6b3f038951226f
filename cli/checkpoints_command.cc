#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cli/clock.h"
#include "cli/commands.h"
#include "cli/render/format.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/store.h"

namespace downpour::cli {
namespace {

struct Place {
  std::unique_ptr<checkpoint::Store> store;
  std::string checkpoint;  // empty: all of the store
};

absl::StatusOr<Place> OpenPlace(const std::string& uri) {
  checkpoint::CheckpointLocation location = checkpoint::ParseCheckpointUri(uri);
  absl::StatusOr<std::unique_ptr<checkpoint::Store>> store = checkpoint::OpenStore(location.store);
  if (!store.ok()) return store.status();
  return Place{*std::move(store), std::move(location.checkpoint)};
}

// Only the one that is meant, if one is.
absl::StatusOr<checkpoint::CheckpointList> List(const Place& place) {
  absl::StatusOr<checkpoint::CheckpointList> list = checkpoint::ListCheckpoints(*place.store);
  if (!list.ok() || place.checkpoint.empty()) return list;
  std::erase_if(list->checkpoints, [&](const auto& one) { return one.name != place.checkpoint; });
  std::erase_if(list->skipped, [&](const auto& one) { return one.name != place.checkpoint; });
  return list;
}

absl::Status NoneThere(const std::string& uri) { return absl::NotFoundError(absl::StrCat("no checkpoints in ", uri)); }

void PrintText(const checkpoint::CheckpointList& list, double now) {
  std::vector<std::vector<std::string>> rows = {{"NAME", "JOB", "AGE", "UPDATES", "EPOCHS", "SIZE", "COMPLETE"}};
  for (const checkpoint::ListedCheckpoint& one : list.checkpoints) {
    const v1::CheckpointManifest& manifest = one.manifest;
    rows.push_back({one.name, manifest.job_name(), FormatAge(now - manifest.created_seconds()),
                    absl::StrCat(manifest.updates()), absl::StrCat(manifest.watermark(), "/", manifest.data().epochs()),
                    FormatBytes(one.bytes), "yes"});
  }
  for (const checkpoint::SkippedCheckpoint& one : list.skipped) {
    rows.push_back({one.name, "-", "-", "-", "-", "-", absl::StrCat("no: ", one.reason)});
  }
  std::cout << FormatTable(std::move(rows));
}

void PrintJson(const checkpoint::CheckpointList& list, double now) {
  using nlohmann::ordered_json;
  ordered_json items = ordered_json::array();
  for (const checkpoint::ListedCheckpoint& one : list.checkpoints) {
    const v1::CheckpointManifest& manifest = one.manifest;
    items.push_back({{"name", one.name},
                     {"complete", true},
                     {"job", manifest.job_name()},
                     {"jobUid", manifest.job_uid()},
                     {"ageSeconds", std::max(0.0, now - manifest.created_seconds())},
                     {"updates", manifest.updates()},
                     {"epochs", manifest.watermark()},
                     {"epochsTotal", manifest.data().epochs()},
                     {"bytes", one.bytes}});
  }
  for (const checkpoint::SkippedCheckpoint& one : list.skipped) {
    items.push_back({{"name", one.name}, {"complete", false}, {"reason", one.reason}});
  }
  std::cout << items.dump(2, ' ', false, ordered_json::error_handler_t::replace) << '\n';
}

// What is there is verified; what is being written is only mentioned.
int VerifyAt(const std::string& uri) {
  const absl::StatusOr<Place> place = OpenPlace(uri);
  if (!place.ok()) return Complain(place.status());
  const absl::StatusOr<checkpoint::CheckpointList> list = List(*place);
  if (!list.ok()) return Complain(list.status());
  int exit_code = kExitDone;
  for (const checkpoint::SkippedCheckpoint& one : list->skipped) {
    std::cout << one.name << ": " << CleanText(one.reason) << std::endl;
    if (!one.unfinished || !place->checkpoint.empty()) exit_code = kExitFailed;
  }
  for (const checkpoint::ListedCheckpoint& one : list->checkpoints) {
    const absl::Status verified = checkpoint::Verify(*place->store, one.name);
    std::cout << one.name << ": " << (verified.ok() ? "whole" : CleanText(std::string(verified.message())))
              << std::endl;
    if (!verified.ok()) exit_code = kExitFailed;
  }
  if (list->checkpoints.empty() && list->skipped.empty()) return Complain(NoneThere(uri));
  return exit_code;
}

}  // namespace

int ListCheckpointsCommand(const std::string& uri, bool json) {
  const absl::StatusOr<Place> place = OpenPlace(uri);
  if (!place.ok()) return Complain(place.status());
  const absl::StatusOr<checkpoint::CheckpointList> list = List(*place);
  if (!list.ok()) return Complain(list.status());
  const double now = SystemClock().Now();
  if (json) {
    PrintJson(*list, now);
  } else if (list->checkpoints.empty() && list->skipped.empty()) {
    std::cout << CleanText(std::string(NoneThere(uri).message())) << '\n';
  } else {
    PrintText(*list, now);
  }
  std::cout << std::flush;
  return kExitDone;
}

int VerifyCheckpointsCommand(const std::vector<std::string>& uris) {
  int exit_code = kExitDone;
  for (const std::string& uri : uris) exit_code = std::max(exit_code, VerifyAt(uri));
  return exit_code;
}

int RemoveCheckpointsCommand(const std::vector<std::string>& uris) {
  std::vector<Place> places;
  for (const std::string& uri : uris) {
    absl::StatusOr<Place> place = OpenPlace(uri);
    if (!place.ok()) return Complain(place.status());
    if (place->checkpoint.empty()) {
      return Complain(absl::InvalidArgumentError(
          absl::StrCat(uri, ": names no checkpoint; expected URI/NAME with a NAME that ls prints")));
    }
    const absl::StatusOr<std::vector<checkpoint::StoredFile>> files =
        place->store->List(absl::StrCat(place->checkpoint, "/"));
    if (!files.ok()) return Complain(files.status());
    if (files->empty()) return Complain(absl::NotFoundError(absl::StrCat(uri, ": there is no such checkpoint")));
    places.push_back(*std::move(place));
  }
  for (const Place& place : places) {
    if (absl::Status removed = checkpoint::Remove(*place.store, place.checkpoint); !removed.ok()) {
      return Complain(removed);
    }
    std::cout << place.checkpoint << ": removed" << std::endl;
  }
  return kExitDone;
}

int ExportCheckpointCommand(const std::string& uri, const std::string& path) {
  const absl::StatusOr<Place> place = OpenPlace(uri);
  if (!place.ok()) return Complain(place.status());
  const absl::StatusOr<checkpoint::CheckpointList> list = List(*place);
  if (!list.ok()) return Complain(list.status());
  if (list->checkpoints.empty()) {
    if (list->skipped.empty()) return Complain(NoneThere(uri));
    return Complain(absl::FailedPreconditionError(
        absl::StrCat(list->skipped.front().name, ": is not complete: ", list->skipped.front().reason)));
  }
  const std::string& name = list->checkpoints.front().name;
  const absl::StatusOr<checkpoint::WrittenFile> written = checkpoint::Export(*place->store, name, path);
  if (!written.ok()) return Complain(written.status());
  if (!written->warning.empty()) std::cerr << "downpour: warning: " << CleanLines(written->warning) << std::endl;
  std::cout << CleanText(path) << ": the model of " << name << std::endl;
  return kExitDone;
}

}  // namespace downpour::cli
