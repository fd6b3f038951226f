#ifndef DOWNPOUR_OPERATOR_API_DOCUMENT_H_
#define DOWNPOUR_OPERATOR_API_DOCUMENT_H_

#include <cstddef>
#include <istream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "operator/api/manifest.h"

// The text of a manifest as a tree, with what the reader needs for exact messages. YAML and JSON give the same tree.
namespace downpour::api {

inline constexpr std::size_t kMaxManifestBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaxManifestDepth = 64;

struct DocumentNode {
  enum class Kind { kNull, kBoolean, kNumber, kString, kMap, kList };

  Kind kind = Kind::kNull;
  std::size_t position = 0;  // in the order of the text
  std::string text;          // of a scalar: the string, or what was written
  std::string value;         // of a boolean or a number: as JSON has it, so that 0x10 is 16 and 1e1 is 10
  std::string key;           // of a node in a map
  // Of a map or a list, in the order of the text. The keys of a map are unique.
  std::vector<DocumentNode> items;

  // Null if this is no map or has no such key.
  const DocumentNode* Find(std::string_view name) const;
  DocumentNode* Find(std::string_view name);
};

struct LocatedError {
  std::size_t position = 0;
  FieldError error;
};

struct Document {
  DocumentNode root;
  std::vector<LocatedError> errors;
  bool readable = false;          // false: the text is no document at all, and errors says why
  std::size_t next_position = 0;  // greater than that of every node
};

// Reads the JSON value that the stream goes on with, which is a map or a list, and leaves the stream behind it; one
// after another can be read so. Never throws. Refuses what is deeper than kMaxManifestDepth, duplicate keys and numbers
// that no double holds.
struct JsonDocument {
  Document document;
  bool wrong_syntax = false;  // if it is not readable: because it is no JSON
};
JsonDocument ReadJson(std::istream& text);

// The text is one document, of any size: JSON if the first character is '{', otherwise YAML.
Document ParseDocument(std::string_view text);

// The text is one YAML document; positions begin at `first_position`.
Document ParseYamlValue(std::string_view text, std::size_t first_position);

// An error if the text is not UTF-8, or has a control character that YAML does not allow.
std::optional<FieldError> CheckYamlCharacters(std::string_view text);
bool IsUtf8(std::string_view text);

// "spec.worker", "replicas" -> "spec.worker.replicas"; a key that is no plain word is put in brackets and quotes.
std::string JoinPath(const std::string& path, std::string_view key);
std::string JoinPath(const std::string& path, std::size_t index);

// For messages: a string in quotes, escaped and cut to a readable length; another scalar as written; "a map", "a list".
std::string Display(const DocumentNode& node);
std::string Quote(std::string_view text);

}  // namespace downpour::api

#endif  // DOWNPOUR_OPERATOR_API_DOCUMENT_H_
