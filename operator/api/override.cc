#include "operator/api/override.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace downpour::api {
namespace {

using Kind = DocumentNode::Kind;

// "a.b[0][\"c.d\"]" as keys and indices; nothing if it is no path.
struct Step {
  std::string key;
  std::optional<std::size_t> index;
};
std::optional<std::vector<Step>> SplitPath(std::string_view path) {
  std::vector<Step> steps;
  while (!path.empty() || steps.empty()) {
    if (path.starts_with("[\"")) {
      const std::size_t end = path.find("\"]");
      if (end == std::string_view::npos || end < 2) return std::nullopt;
      steps.push_back({std::string(path.substr(2, end - 2)), std::nullopt});
      path.remove_prefix(end + 2);
    } else if (path.starts_with('[')) {
      const std::size_t end = std::min(path.find(']'), path.size());
      std::size_t index = 0;
      const auto [stop, error] = std::from_chars(path.data() + 1, path.data() + end, index);
      if (error != std::errc() || end == path.size() || stop != path.data() + end) return std::nullopt;
      steps.push_back({"", index});
      path.remove_prefix(end + 1);
    } else {
      const std::size_t end = std::min(path.find_first_of(".["), path.size());
      if (end == 0) return std::nullopt;
      steps.push_back({std::string(path.substr(0, end)), std::nullopt});
      path.remove_prefix(end);
    }
    if (path.starts_with('.')) {
      path.remove_prefix(1);
      if (path.empty() || path.front() == '.' || path.front() == '[') return std::nullopt;
    } else if (!path.empty() && !path.starts_with('[')) {
      return std::nullopt;
    }
    if (steps.size() > kMaxManifestDepth) return std::nullopt;
  }
  return steps;
}

}  // namespace

void Override(Document& document, const std::string& name, const std::string& text) {
  const auto fail = [&](const std::string& path, const std::string& message) {
    document.errors.push_back({document.next_position++, {path, message}});
  };
  std::optional<std::vector<Step>> steps = SplitPath(name);
  if (!steps.has_value()) return fail("", absl::StrCat(Quote(name), " is not a path, as worker.replicas"));
  constexpr std::string_view kTop[] = {"apiVersion", "kind", "metadata", "spec", "status"};
  if (std::find(std::begin(kTop), std::end(kTop), steps->front().key) == std::end(kTop)) {
    steps->insert(steps->begin(), Step{"spec", std::nullopt});
  }

  std::string whole;
  for (const Step& step : *steps) whole = step.index ? JoinPath(whole, *step.index) : JoinPath(whole, step.key);
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return fail(whole, "needs a value");
  Document value = ParseYamlValue(text, document.next_position);
  document.next_position = value.next_position;
  for (LocatedError& error : value.errors) {
    error.error.path = whole;
    document.errors.push_back(std::move(error));
  }
  if (!value.readable) return;

  DocumentNode* node = &document.root;
  std::string path;
  for (const Step& step : *steps) {
    if (node->kind == Kind::kNull) {
      node->kind = Kind::kMap;
      node->text.clear();
    }
    const std::string at = step.index ? JoinPath(path, *step.index) : JoinPath(path, step.key);
    if (step.index.has_value()) {
      if (node->kind != Kind::kList) return fail(path, absl::StrCat("is not a list, so ", at, " cannot be set"));
      if (*step.index >= node->items.size()) {
        return fail(at, absl::StrCat("cannot be set: the list has ", node->items.size(), " items"));
      }
      node = &node->items[*step.index];
    } else {
      if (node->kind != Kind::kMap) return fail(path, absl::StrCat("is not a map, so ", at, " cannot be set"));
      DocumentNode* child = node->Find(step.key);
      if (child == nullptr) {
        DocumentNode made;
        made.position = document.next_position++;
        made.key = step.key;
        child = &node->items.emplace_back(std::move(made));
      }
      node = child;
    }
    path = at;
  }
  value.root.key = std::move(node->key);
  *node = std::move(value.root);
}

}  // namespace downpour::api
