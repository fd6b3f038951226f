#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "trainer/data/transforms/transform.h"

namespace downpour::data {

absl::StatusOr<Transform> Tokenise(const Column& column, std::shared_ptr<const Vocabulary> vocabulary,
                                   std::int64_t max_length) {
  if (!column.text) return absl::InvalidArgumentError(absl::StrCat("Tokenize is for text, not for ", TypeText(column)));
  Column output{column.name, ElementType::kI32, {kAnyExtent}};
  output.classes = vocabulary->size();
  return Transform{std::move(output),
                   [vocabulary = std::move(vocabulary), max_length](const Value& value,
                                                                    Random* /*random*/) -> absl::StatusOr<Value> {
                     std::vector<std::int32_t> ids =
                         vocabulary->Ids({reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()});
                     if (max_length > 0) ids.resize(std::min(ids.size(), static_cast<std::size_t>(max_length)));
                     if (ids.empty()) ids.push_back(Vocabulary::kUnknown);  // no model takes a text of nothing
                     Value result{{static_cast<std::int64_t>(ids.size())},
                                  std::vector<std::byte>(ids.size() * sizeof(std::int32_t))};
                     std::memcpy(result.bytes.data(), ids.data(), result.bytes.size());
                     return result;
                   }};
}

}  // namespace downpour::data
