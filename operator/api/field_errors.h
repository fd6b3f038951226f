#ifndef DOWNPOUR_OPERATOR_API_FIELD_ERRORS_H_
#define DOWNPOUR_OPERATOR_API_FIELD_ERRORS_H_

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "operator/api/document.h"
#include "operator/api/manifest.h"

// What is wrong with a manifest, in the order of its text.
namespace downpour::api {

// Not thread-safe.
class FieldErrors {
 public:
  explicit FieldErrors(std::vector<LocatedError> found) : errors_(std::move(found)) {}

  // Where the value at `path` stands in the text.
  void Visit(const DocumentNode& node, const std::string& path) { positions_.emplace(path, node.position); }
  // The place in the text is that of `path`, or of the nearest of its parents that was visited.
  void Add(const std::string& path, std::string message);

  // True if nothing is wrong at the path or below it.
  bool IsClean(const std::string& path) const;
  // Further ones are not kept. One more is than is shown, so that Take knows that some were left out.
  bool IsFull() const;
  std::size_t size() const { return errors_.size(); }

  // All of them, in the order of the text; to be called last.
  std::vector<FieldError> Take();

 private:
  std::vector<LocatedError> errors_;
  std::map<std::string, std::size_t, std::less<>> positions_;
};

}  // namespace downpour::api

#endif  // DOWNPOUR_OPERATOR_API_FIELD_ERRORS_H_
