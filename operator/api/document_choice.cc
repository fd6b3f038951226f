#include "operator/api/document_choice.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "operator/api/training_job.h"
#include "operator/api/yaml_reader.h"

namespace downpour::api {
namespace {

using Kind = DocumentNode::Kind;

constexpr std::string_view kSpace = " \t\r\n";

// The documents of a text, or why it has none.
struct Documents {
  std::vector<Document> read;
  std::vector<std::string> notes;
  std::optional<FieldError> error;
};

// Reads one piece between separators; false if it is no document.
bool AddYaml(std::string_view text, std::size_t first_line, Documents& documents) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  Document document;
  if (ReadYaml(text, first_line, document) == YamlRest::kMore) {
    documents.notes.push_back("what follows a line of three points (...) is not read, as by kubectl");
  }
  if (!document.readable) {
    documents.error = std::move(document.errors.front().error);
    return false;
  }
  if (document.root.kind != Kind::kNull) documents.read.push_back(std::move(document));
  return true;
}

void ReadYamlDocuments(std::string_view text, std::size_t first_line, Documents& documents) {
  if ((documents.error = CheckYamlCharacters(text))) return;
  std::string piece;
  std::size_t piece_line = first_line;
  std::size_t line_number = first_line;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    bool separator = false;
    if (line.starts_with("---")) {
      const std::size_t rest = line.find_first_not_of(kSpace, 3);
      if (rest != std::string_view::npos && line[rest] != '#') {
        documents.error = {"", absl::StrCat("not valid YAML: line ", line_number,
                                            ": only a comment may follow --- on its line, for kubectl")};
        return;
      }
      separator = !piece.empty();
    }
    if (separator) {
      if (!AddYaml(piece, piece_line, documents)) return;
      piece.clear();
      piece_line = line_number + 1;
    } else {
      piece.append(line).push_back('\n');
    }
    ++line_number;
  }
  if (!piece.empty()) AddYaml(piece, piece_line, documents);
}

// As kubectl guesses: JSON while it is JSON, and YAML from where it is not, unless two values have been read.
Documents ReadDocuments(std::string_view text) {
  Documents documents;
  std::size_t at = 0;
  std::istringstream stream{std::string(text)};  // one for all values, of which there may be many
  std::optional<FieldError> json_error;
  for (std::size_t count = 0;; ++count) {
    const std::size_t begin = text.find_first_not_of(kSpace, at);
    if (begin == std::string_view::npos) return documents;
    if (text[begin] != '{') break;
    stream.seekg(static_cast<std::streamoff>(begin));
    JsonDocument read = ReadJson(stream);
    if (!read.document.readable) {
      json_error = read.document.errors.front().error;
      if (read.wrong_syntax && count < 2) break;
      documents.error = std::move(json_error);
      return documents;
    }
    documents.read.push_back(std::move(read.document));
    at = static_cast<std::size_t>(std::streamoff(stream.tellg()));
  }
  // White space up to the end of the line belongs to what was read.
  if (at > 0) {
    const std::size_t next = text.find_first_not_of(" \t\r", at);
    at = text[next] == '\n' ? next + 1 : next;
  }
  const auto line = static_cast<std::size_t>(std::count(text.begin(), text.begin() + at, '\n')) + 1;
  ReadYamlDocuments(text.substr(at), line, documents);
  if (documents.error.has_value() && json_error.has_value()) documents.error = std::move(json_error);
  return documents;
}

std::string_view TextOf(const DocumentNode* node) {
  return node != nullptr && node->kind == Kind::kString ? std::string_view(node->text) : std::string_view();
}

bool IsTrainingJob(const DocumentNode& root) {
  const std::string_view version = kApiVersion;
  const std::string_view group = version.substr(0, version.find('/') + 1);
  return TextOf(root.Find("kind")) == kKind && TextOf(root.Find("apiVersion")).starts_with(group);
}

// `ConfigMap "settings"`.
std::string Describe(const DocumentNode& root) {
  const DocumentNode* const metadata = root.Find("metadata");
  const DocumentNode* const name = metadata == nullptr ? nullptr : metadata->Find("name");
  const std::string kind(TextOf(root.Find("kind")));
  return name == nullptr ? kind : absl::StrCat(kind, " ", Display(*name));
}

// Something to choose, and the document it stands in: what is wrong there is copied for the one that is chosen alone.
struct Candidate {
  DocumentNode root;
  const Document* document;
};

// The items of a List in its place.
std::vector<Candidate> Flatten(std::vector<Document>& documents) {
  std::vector<Candidate> flat;
  for (Document& document : documents) {
    DocumentNode* const items = document.root.Find("items");
    if (items == nullptr || items->kind != Kind::kList || !TextOf(document.root.Find("kind")).ends_with("List")) {
      flat.push_back({std::move(document.root), &document});
      continue;
    }
    for (DocumentNode& item : items->items) flat.push_back({std::move(item), &document});
  }
  return flat;
}

ChosenDocument Refuse(std::string message) {
  ChosenDocument chosen;
  chosen.document.errors.push_back({0, {"", std::move(message)}});
  return chosen;
}

ChosenDocument Take(Candidate candidate, std::vector<std::string> notes) {
  ChosenDocument chosen;
  chosen.document = {std::move(candidate.root), candidate.document->errors, true, candidate.document->next_position};
  chosen.notes = std::move(notes);
  return chosen;
}

ChosenDocument Choose(std::vector<Candidate> candidates, std::vector<std::string> notes) {
  if (candidates.empty()) return Refuse("the document is empty");
  if (candidates.size() == 1) return Take(std::move(candidates.front()), std::move(notes));
  std::vector<std::size_t> jobs;
  std::vector<std::string> found;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const DocumentNode& root = candidates[i].root;
    if (TextOf(root.Find("kind")).empty() || TextOf(root.Find("apiVersion")).empty()) {
      return Refuse(absl::StrCat("document ", i + 1, " has no kind or no apiVersion"));
    }
    found.push_back(Describe(root));
    if (IsTrainingJob(root)) {
      jobs.push_back(i);
    } else {
      notes.push_back(absl::StrCat("document ", i + 1, ", ", found.back(), ", is not read"));
    }
  }
  if (jobs.empty()) return Refuse(absl::StrCat("must hold a TrainingJob, got ", absl::StrJoin(found, ", ")));
  if (jobs.size() > 1) {
    return Refuse(absl::StrCat("must hold one TrainingJob, got ", found[jobs[0]], " and ", found[jobs[1]]));
  }
  return Take(std::move(candidates[jobs.front()]), std::move(notes));
}

}  // namespace

ChosenDocument ChooseDocument(std::string_view text) {
  if (text.size() > kMaxManifestBytes) {
    return Refuse(absl::StrCat("must be at most ", kMaxManifestBytes, " bytes, got ", text.size()));
  }
  if (!IsUtf8(text)) return Refuse("not valid UTF-8");
  Documents documents = ReadDocuments(text);
  if (documents.error.has_value()) {
    ChosenDocument chosen;
    chosen.document.errors.push_back({0, *std::move(documents.error)});
    return chosen;
  }
  return Choose(Flatten(documents.read), std::move(documents.notes));
}

}  // namespace downpour::api
