#include "operator/api/manifest.h"

#include <cerrno>
#include <cstdio>
#include <limits>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "operator/api/document.h"
#include "operator/api/field_errors.h"
#include "operator/api/field_reader.h"
#include "operator/api/override.h"
#include "operator/api/relations.h"

namespace downpour::api {

ParsedManifest ParseManifest(std::string_view text, const std::vector<std::pair<std::string, std::string>>& overrides) {
  ParsedManifest parsed;
  Document document = ParseDocument(text);
  if (!document.readable) {
    for (LocatedError& error : document.errors) parsed.errors.push_back(std::move(error.error));
    return parsed;
  }
  if (document.root.kind == DocumentNode::Kind::kMap) {
    for (const auto& [path, value] : overrides) Override(document, path, value);
  }
  FieldErrors errors(std::move(document.errors));
  ReadFields(document.root, parsed.job, errors);
  if (document.root.Find("spec") != nullptr && document.root.Find("spec")->kind == DocumentNode::Kind::kMap) {
    CheckRelations(parsed.job.spec, errors);
  }
  parsed.errors = errors.Take();
  return parsed;
}

absl::StatusOr<ParsedManifest> ReadManifest(const std::string& path,
                                            const std::vector<std::pair<std::string, std::string>>& overrides) {
  const auto fail = [&path](int error) { return absl::ErrnoToStatus(error, absl::StrCat("cannot read ", path)); };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) return fail(errno);
  // One byte more than is allowed, so that the parser sees that there is too much.
  std::string text(kMaxManifestBytes + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) return fail(errno);
  return ParseManifest(text, overrides);
}

absl::StatusOr<TrainingJobStatus> StatusFromJson(std::string_view text, TimeFormat times) {
  // Longer than a manifest may be: a job of many roles has a long status.
  Document document = ParseDocument(text, /*max_bytes=*/std::numeric_limits<std::size_t>::max());
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
