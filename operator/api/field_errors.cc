#include "operator/api/field_errors.h"

#include <algorithm>
#include <string_view>

namespace downpour::api {
namespace {

// A manifest with more errors than this is not a manifest with typing errors.
constexpr std::size_t kMaxErrors = 100;

}  // namespace

void FieldErrors::Add(const std::string& path, std::string message) {
  if (IsFull()) return;
  std::string_view at = path;
  auto found = positions_.find(at);
  while (found == positions_.end() && !at.empty()) {
    const std::size_t cut = at.find_last_of(".[");
    at = at.substr(0, cut == std::string_view::npos ? 0 : cut);
    found = positions_.find(at);
  }
  errors_.push_back({found == positions_.end() ? 0 : found->second, {path, std::move(message)}});
}

bool FieldErrors::IsClean(const std::string& path) const {
  return std::none_of(errors_.begin(), errors_.end(), [&](const LocatedError& error) {
    const std::string& other = error.error.path;
    return other.starts_with(path) &&
           (other.size() == path.size() || other[path.size()] == '.' || other[path.size()] == '[' || path.empty());
  });
}

bool FieldErrors::IsFull() const { return errors_.size() > kMaxErrors; }

std::vector<FieldError> FieldErrors::Take() {
  std::stable_sort(errors_.begin(), errors_.end(),
                   [](const LocatedError& a, const LocatedError& b) { return a.position < b.position; });
  std::vector<FieldError> errors;
  for (LocatedError& error : errors_) {
    if (errors.size() == kMaxErrors) {
      errors.push_back({"", "too many errors"});
      break;
    }
    errors.push_back(std::move(error.error));
  }
  return errors;
}

}  // namespace downpour::api
