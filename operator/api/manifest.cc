#include "operator/api/manifest.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <random>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "operator/api/document.h"
#include "operator/api/document_choice.h"
#include "operator/api/field_errors.h"
#include "operator/api/field_reader.h"
#include "operator/api/override.h"
#include "operator/api/pod_template.h"
#include "operator/api/relations.h"
#include "operator/api/text_checks.h"

namespace downpour::api {
namespace {

namespace fs = std::filesystem;

// Puts the directory before the paths of the document that are relative; true if there was one.
bool TakeFrom(const std::string& directory, DocumentNode& root) {
  bool relative = false;
  DocumentNode* const spec = root.Find("spec");
  if (spec == nullptr || directory.empty()) return false;
  using Path = std::vector<const char*>;
  for (const Path& path :
       {Path{"dataset", "path"}, Path{"dataset", "testPath"}, Path{"dataset", "cache", "directory"},
        Path{"output", "directory"}, Path{"model", "plugin", "path"}, Path{"model", "torchScript", "path"},
        Path{"model", "initialWeights", "path"}, Path{"checkpoint", "uri"}, Path{"checkpoint", "resumeFrom", "uri"},
        Path{"tracking", "tensorboard", "directory"}}) {
    DocumentNode* node = spec;
    for (std::size_t i = 0; i < path.size() && node != nullptr; ++i) node = node->Find(path[i]);
    if (node == nullptr || node->kind != DocumentNode::Kind::kString) continue;
    // What no path may be is refused as it is written.
    if (!schema::IsPath(node->text).empty() || node->text.starts_with('/')) continue;
    const bool may_be_uri = std::string_view(path.back()) == "uri" || std::string_view(path[0]) == "tracking" ||
                            std::string_view(path[0]) == "dataset";
    const bool refuses_uri = std::string_view(path[1]) == "initialWeights";
    if ((may_be_uri || refuses_uri) && node->text.find("://") != std::string::npos) continue;
    node->text = (fs::path(directory) / node->text).lexically_normal().string();
    relative = true;
  }
  return relative;
}

// On a cluster nobody says from where a path would be taken, and what is written there has to be found again.
void RefuseRelativePaths(const TrainingJobSpec& spec, FieldErrors& errors) {
  const auto check = [&errors](const std::string& path, const std::string& value, const char* expected) {
    if (value.empty() || value.starts_with('/') || value.starts_with("s3://") || !errors.IsClean(path)) return;
    errors.Add(path, absl::StrCat("must be an absolute path", expected, " on a cluster, got ", Quote(value)));
  };
  if (spec.checkpoint.has_value()) {
    check("spec.checkpoint.uri", spec.checkpoint->uri, " or s3://BUCKET/PREFIX");
    check("spec.checkpoint.resumeFrom.uri", spec.checkpoint->resume_from.uri, " or s3://BUCKET/PREFIX");
  }
  if (spec.tracking.has_value() && spec.tracking->tensorboard.has_value()) {
    check("spec.tracking.tensorboard.directory", spec.tracking->tensorboard->directory, "");
  }
}

// What is taken for a mode that is not there depends on the strategy.
void TakeModeOfStrategy(const DocumentNode& root, TrainingJobSpec& spec) {
  if (spec.strategy != Strategy::kAllReduce) return;
  const DocumentNode* node = root.Find("spec");
  for (const char* name : {"update", "mode"}) {
    if (node != nullptr) node = node->Find(name);
  }
  if (node == nullptr || node->kind == DocumentNode::Kind::kNull) spec.update.mode = UpdateMode::kSynchronous;
}

ParsedManifest Parse(std::string_view text, const std::vector<std::pair<std::string, std::string>>& overrides,
                     const std::string& directory, bool stored) {
  ParsedManifest parsed;
  ChosenDocument chosen = ChooseDocument(text);
  Document& document = chosen.document;
  parsed.notes = std::move(chosen.notes);
  if (!document.readable) {
    for (LocatedError& error : document.errors) parsed.errors.push_back(std::move(error.error));
    return parsed;
  }
  parsed.has_relative_path = TakeFrom(directory, document.root);
  if (document.root.kind == DocumentNode::Kind::kMap) {
    for (const auto& [path, value] : overrides) Override(document, path, value);
  }
  FieldErrors errors(std::move(document.errors));
  ReadFields(document.root, parsed.job, errors);
  TakeModeOfStrategy(document.root, parsed.job.spec);
  if (document.root.Find("spec") != nullptr && document.root.Find("spec")->kind == DocumentNode::Kind::kMap) {
    CheckRelations(parsed.job.spec, errors);
    if (!stored) {
      for (FieldError& error : CheckPodTemplates(parsed.job.spec)) errors.Add(error.path, std::move(error.message));
    } else {
      RefuseRelativePaths(parsed.job.spec, errors);
    }
  }
  if (document.root.Find("metadata") != nullptr && document.root.Find("metadata")->kind == DocumentNode::Kind::kMap) {
    CheckRelations(parsed.job.metadata, errors);
  }
  parsed.errors = errors.Take();
  return parsed;
}

}  // namespace

ParsedManifest ParseManifest(std::string_view text, const std::vector<std::pair<std::string, std::string>>& overrides,
                             const std::string& directory) {
  return Parse(text, overrides, directory, /*stored=*/false);
}

ParsedManifest ParseStored(std::string_view text) { return Parse(text, {}, {}, /*stored=*/true); }

std::string MakeName(const Metadata& metadata) {
  if (!metadata.name.empty()) return metadata.name;
  constexpr std::string_view kLetters = "bcdfghjklmnpqrstvwxz2456789";  // which spell no words
  std::random_device device;
  std::uniform_int_distribution<std::size_t> letter(0, kLetters.size() - 1);
  std::string name = metadata.generate_name;
  for (int i = 0; i < 5; ++i) name += kLetters[letter(device)];
  return name;
}

absl::StatusOr<ParsedManifest> ReadManifest(const std::string& path,
                                            const std::vector<std::pair<std::string, std::string>>& overrides) {
  const auto fail = [&path](int error) { return absl::ErrnoToStatus(error, absl::StrCat("cannot read ", path)); };
  const bool standard_input = path == "-";
  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
  const File opened(standard_input ? nullptr : std::fopen(path.c_str(), "rb"), &std::fclose);
  std::FILE* const file = standard_input ? stdin : opened.get();
  if (file == nullptr) return fail(errno);
  // One byte more than is allowed, so that the parser sees that there is too much.
  std::string text(kMaxManifestBytes + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  if (std::ferror(file) != 0) return fail(errno);
  std::error_code error;
  const fs::path directory = standard_input ? fs::current_path(error) : fs::absolute(path, error).parent_path();
  if (error) return fail(error.value());
  return ParseManifest(text, overrides, directory.string());
}

absl::StatusOr<TrainingJobStatus> StatusFromJson(std::string_view text, TimeFormat times) {
  Document document = ParseDocument(text);
  TrainingJobStatus status;
  FieldErrors errors(std::move(document.errors));
  if (document.readable) ReadFields(document.root, times, status, errors);
  const std::vector<FieldError> wrong = errors.Take();
  if (!wrong.empty()) return absl::InvalidArgumentError(absl::StrCat("status: ", wrong.front().ToString()));
  return status;
}

std::string_view ToString(Role role) {
  switch (role) {
    case Role::kCoordinator:
      return "coordinator";
    case Role::kParameterServer:
      return "ps";
    case Role::kWorker:
      return "worker";
  }
  return "unknown";
}

}  // namespace downpour::api
